"""What the release writes its own merger makes a Hugging Face folder of, and eval.py judges. Takes no GPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import tuneport.report
from tuneport.registry import catalog

sys.path.insert(0, str(Path(__file__).parent))
from hydra_reference import wheel
from verl_commands import DATA, RELEASES
from verl_reference import python

pytestmark = pytest.mark.upstream
SCRIPT = DATA / "verl_checkpoint.py"


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("given", ["", "global_step_2", "global_step_2/actor"])
def test_shards_are_merged_into_the_model_they_came_from(
    checkpoint: Path, tmp_path: Path, given: str
) -> None:
    done = export(checkpoint, checkpoint / "run" / given, tmp_path / "merged", "fsdp")
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"merging {checkpoint}/run/global_step_2/actor" in done.stdout
    run(checkpoint, SCRIPT, "compare", tmp_path / "merged")


@pytest.mark.parametrize("release", RELEASES)
def test_the_other_backend_is_refused_before_the_merger_is_asked(checkpoint: Path, tmp_path: Path) -> None:
    done = export(checkpoint, checkpoint / "run", tmp_path / "merged", "megatron")
    assert done.returncode == 1
    assert "was written by fsdp: give --checkpoint-format verl-fsdp" in done.stderr
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("release", RELEASES)
def test_the_evaluation_judges_what_a_run_wrote(checkpoint: Path, tmp_path: Path) -> None:
    """First tasks, by the release's scorer and by the experiment's own; then a conversation, by the words."""
    script = catalog.templates("verl/grpo")["eval.py"]
    assert script == catalog.templates("verl/sft")["eval.py"]
    shutil.copy(script, tmp_path)
    task = {"prompt": [{"role": "user", "content": "a b"}], "data_source": "openai/gsm8k"}
    task["reward_model"] = {"style": "rule", "ground_truth": "72"}
    scores, answers = evaluate(checkpoint, tmp_path, "one", [task, task])
    assert scores == [{"task": "openai/gsm8k", "metric": "score", "value": 0.0, "stderr": 0.0, "n": 2}]
    assert answers[0]["asked"] == "a b" and answers[0]["answer"] == answers[1]["answer"] != ""
    (tmp_path / "reward.py").write_text(REWARD)
    scores, _ = evaluate(checkpoint, tmp_path, "two", [task, task | {"reward_model": {"ground_truth": "73"}}])
    assert (scores[0]["value"], round(scores[0]["stderr"], 9), scores[0]["n"]) == (0.5, 0.353553391, 2)
    said = {"role": "assistant", "content": answers[0]["answer"]}
    rows = [{"messages": [*task["prompt"], said]}, {"messages": [*task["prompt"], {**said, "content": "?"}]}]
    scores, _ = evaluate(checkpoint, tmp_path, "three", rows)
    assert (scores[0]["metric"], scores[0]["value"]) == ("exact_match", 0.5)


REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    assert extra_info == {} and not kwargs
    return {"score": float(ground_truth == "72"), "acc": True}
"""


def evaluate(folder: Path, work: Path, name: str, rows: list[Any]) -> tuple[list[Any], list[Any]]:
    """eval.py as a job runs it, on a file of rows: its scores and its answers."""
    out = work / name
    out.mkdir()
    (work / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.copy(Path(tuneport.report.__file__), work / "tuneport_report.py")
    more = {"TUNEPORT_MODEL": str(folder / "run"), "TUNEPORT_VALIDATION_DATA": str(work / "rows.jsonl")}
    more |= {"TUNEPORT_OUTPUT_DIR": str(out), "TUNEPORT_REPORT_FILE": str(out / "report.jsonl")}
    command, env = [str(python()), "eval.py"], surroundings(folder) | more | {"EVAL_LENGTH": "4"}
    done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"{len(rows)} of {len(rows)} judged" in done.stdout
    scores = json.loads((out / "scores.json").read_text())["scores"]
    logged = (out / "report.jsonl").read_text()
    assert all(f"eval/{score['task']}/{score['metric']}" in logged for score in scores)
    return scores, [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {}


@pytest.fixture
def checkpoint(release: str, written: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run`, written by the release's own checkpoint manager from two processes, and `tree`."""
    if release not in written:
        folder = tmp_path_factory.mktemp(release)
        (folder / "tree").symlink_to(wheel("verl", release)[1])
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
        run(folder, *launch, SCRIPT, "write", folder / "run/global_step_2")
        written[release] = folder
    return written[release]


def export(folder: Path, given: Path, out: Path, backend: str) -> subprocess.CompletedProcess[str]:
    """The exporter as a job runs it."""
    more = {"TUNEPORT_CHECKPOINT": str(given), "TUNEPORT_BACKEND": backend, "TUNEPORT_OUTPUT_DIR": str(out)}
    command = [str(python()), str(files("tuneport_verl") / "export_script.py")]
    return subprocess.run(command, env=surroundings(folder) | more, capture_output=True, text=True)


def run(folder: Path, *words: object) -> None:
    command = [str(python()), *map(str, words)]
    done = subprocess.run(command, env=surroundings(folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def surroundings(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder / "tree"), "OMP_NUM_THREADS": "1"}
