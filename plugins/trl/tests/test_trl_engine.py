"""Real training by real TRL, through the public interface: from the template to an exported model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from trl_support import KINDS, RELEASES, ROWS, lines, quiet
from tuneport import api
from tuneport.experiment.create import new_project
from tuneport.jobs.manager import Job

pytestmark = pytest.mark.engine

# The template's settings, made small; two processes share each step.
SMALL = {
    "mixed_precision": "none",
    "micro_batch_size": 1,
    "max_length": 64,
    "max_steps": 4,
    "log_every": 1,
    "eval_every": 2,
    "save_every": 2,
}
LOAD = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder = sys.argv[1]
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
ids = tokenizer("one", return_tensors="pt")["input_ids"]
with torch.no_grad():
    print(json.dumps(model(ids).logits.float().sum().item()))
"""


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, interpreter: Callable[[str], str]
) -> Iterator[api.Project]:
    for release in RELEASES:
        interpreter(release)
    folder = tmp_path_factory.mktemp("trl engine [1]")
    changed = {
        "TUNEPORT_STATE_DIR": str(folder.with_name("trl-engine-state")),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder.with_name("trl-engine-hf")),
    }
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    yield api.open_project(new_project(folder / "project"))
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture(scope="module")
def given(project: api.Project, tiny: Path) -> dict[str, Any]:
    for split, count in (("train", 8), ("validation", 4)):
        for kind in ("chat", *set(ROWS.values())):
            (project.root / f"{kind}-{split}.jsonl").write_text(lines(kind, count), "utf-8")
    return {
        "model": str(tiny),
        "train_data": str(project.root / "chat-train.jsonl"),
        "validation_data": str(project.root / "chat-validation.jsonl"),
    }


def experiment(project: api.Project, release: str, method: str = "sft") -> api.Experiment:
    name = f"{method}-{release}"
    known = project.folder.experiments / name
    return api.Experiment(str(known)) if known.exists() else project.new(name, f"trl/{method}", release)


def version(job: Job) -> str:
    return job.plan().release.rpartition(" ")[2]


# What libstdc++ prints where one of gloo's threads wants the interpreter lock of a process that has ended:
# pull request 179291 of pytorch/pytorch describes it, and no release mends it. A model is saved by then.
ABORTED = "terminate called without an active exception"


def finished(job: Job) -> Job:
    done = job.wait(600)
    lines = [line.text for line in job.logs()]
    if done.state == "FAILED" and any(ABORTED in line for line in lines):
        assert any("Model saved to" in line for line in lines), "\n".join(lines)
        done = job.retry().wait(600)
    assert done.state == "SUCCEEDED", "\n".join(line.text for line in job.logs())
    return done


@pytest.fixture(scope="module", params=RELEASES)
def trained(request: pytest.FixtureRequest, project: api.Project, given: dict[str, Any]) -> Job:
    """Adapters trained on two processes, evaluated and saved on the way."""
    sets = {**SMALL, "lora": True, "lora_targets": "q_proj"}
    return finished(experiment(project, request.param).submit(profile="cpu:2", set=sets, **given))


def series(job: Job) -> dict[str, Any]:
    found = job.metrics()
    assert not found.problems
    return {name: [(point.step, point.value) for point in one.points] for name, one in found.series.items()}


def test_two_processes_share_the_rows_and_curves_have_canonical_names(trained: Job) -> None:
    found = series(trained)
    assert [point[0] for point in found["train/loss"]] == [1, 2, 3, 4]
    assert [point[0] for point in found["validation/loss"]] == [2, 4]
    # Four steps of one row each are half an epoch of eight rows in one process, and a whole one in two.
    assert found["train/epoch"][-1][1] == pytest.approx(1.0)
    assert {"train/token_accuracy", "train/tokens", "train/grad_norm", "train/learning_rate"} <= set(found)


def test_checkpoints_and_the_model_are_where_they_belong(trained: Job) -> None:
    names = {path.name for path in trained.output_dir().iterdir()}
    assert {"checkpoint-2", "checkpoint-4", "adapter_config.json", "adapter_model.safetensors"} <= names


def test_evaluation_takes_an_adapter_and_counts_exact_answers(
    trained: Job, project: api.Project, given: dict[str, Any]
) -> None:
    asked = project.root / "ask.jsonl"
    tasks = [{**KINDS["turns"], "task": task} for task in ("a", "b", "b")]
    asked.write_text("".join(json.dumps(row) + "\n" for row in tasks), "utf-8")
    release = version(trained)
    job = experiment(project, release).evaluate(
        trained.id, **{**given, "validation_data": str(asked)}, profile="cpu:1"
    )
    finished(job)
    found = [(score["task"], score["metric"], score["n"]) for score in api.scores(job)]
    assert found == [("a", "exact_match", 1), ("b", "exact_match", 2)]
    answers = [
        json.loads(line) for line in (job.output_dir() / "answers.jsonl").read_text("utf-8").splitlines()
    ]
    assert [answer["expected"] for answer in answers] == ["two"] * 3


def test_export_merges_the_adapter_into_a_model_that_loads(
    trained: Job, project: api.Project, given: dict[str, Any], interpreter: Callable[[str], str]
) -> None:
    release = version(trained)
    job = finished(experiment(project, release).export(trained.id, profile="cpu:1", **given))
    names = {path.name for path in job.output_dir().iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= names
    assert not any("adapter" in name for name in names)
    merged = logits(interpreter(release), job.output_dir())
    assert merged == pytest.approx(logits(interpreter(release), trained.output_dir()), rel=1e-4)
    assert merged != pytest.approx(logits(interpreter(release), Path(given["model"])), rel=1e-9)


def logits(python: str, folder: Path) -> float:
    done = subprocess.run(
        [python, "-c", LOAD, str(folder)], capture_output=True, text=True, env=quiet(), check=True
    )
    return float(json.loads(done.stdout.splitlines()[-1]))


def test_a_run_cut_short_is_exported_from_its_last_checkpoint(
    trained: Job, project: api.Project, given: dict[str, Any], tmp_path: Path
) -> None:
    release = version(trained)
    cut = tmp_path / "cut"
    for step in (2, 4):
        shutil.copytree(trained.output_dir() / f"checkpoint-{step}", cut / f"checkpoint-{step}")
    job = finished(experiment(project, release).export(str(cut), profile="cpu:1", **given))
    assert any("taking checkpoint-4" in line.text for line in job.logs())
    (tmp_path / "empty").mkdir()
    failed = experiment(project, release).export(str(tmp_path / "empty"), profile="cpu:1", **given).wait(600)
    assert failed.state == "FAILED"
    assert any("holds neither a model" in line.text for line in failed.logs())


def test_training_goes_on_from_a_checkpoint(
    trained: Job, project: api.Project, given: dict[str, Any]
) -> None:
    release = version(trained)
    if release == "1.10.0":
        pytest.skip("this release never resumes, and the parameter is not offered")
    sets = {**SMALL, "lora": True, "lora_targets": "q_proj", "max_steps": 6}
    sets["resume_from"] = str(trained.output_dir() / "checkpoint-4")
    job = finished(experiment(project, release).submit(profile="cpu:2", set=sets, **given))
    assert [point[0] for point in series(job)["train/loss"]] == [5, 6]


METHODS = {
    "dpo": ({"max_length": 64, "lora": True, "lora_targets": ["q_proj", "v_proj"]}, "train/margin"),
    "kto": ({"max_length": 64}, "train/kl"),
    "rm": ({"max_length": 64, "lora": True, "lora_targets": ["q_proj", "v_proj"]}, "train/accuracy"),
    "grpo": ({"rollouts_per_prompt": 2, "max_response_length": 8}, "train/reward"),
    "rloo": ({"rollouts_per_prompt": 2, "max_response_length": 8}, "train/reward"),
    "opsd": ({"max_response_length": 8}, "train/response_length"),
}
STEPS = {
    **{name: SMALL[name] for name in ("mixed_precision", "log_every")},
    "micro_batch_size": 2,
    "eval_micro_batch_size": 2,
    "gradient_accumulation_steps": 1,
    "max_steps": 2,
    "eval_every": 2,
}


def of(given: dict[str, Any], method: str) -> dict[str, Any]:
    """The request with the rows that a method learns from."""
    place = Path(given["train_data"]).parent
    names = {"train_data": "train", "validation_data": "validation"}
    return {**given, **{key: str(place / f"{ROWS[method]}-{split}.jsonl") for key, split in names.items()}}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_saves_and_exports(
    method: str, release: str, project: api.Project, given: dict[str, Any], interpreter: Callable[[str], str]
) -> None:
    sets, curve = METHODS[method]
    asked = {**STEPS, **sets, **({"teacher_model": given["model"]} if method == "opsd" else {})}
    one = experiment(project, release, method)
    # The rewards of two processes are gathered into groups, so this is where sharing goes wrong first.
    profile = "cpu:2" if method == "grpo" else "cpu:1"
    job = finished(one.submit(profile=profile, set=asked, **of(given, method)))
    found = series(job)
    assert [step for step, _ in found["train/loss"]] == [1, 2]
    assert [step for step, _ in found["validation/loss"]] == [2]
    assert curve in found
    out = job.output_dir()
    assert (out / ("adapter_config.json" if sets.get("lora") else "config.json")).is_file()
    # 8 rows, 2 a process and step; of prompts, two answers to one are a process's share.
    share = {"grpo": 4 / 8, "rloo": 2 / 8}.get(method, 4 / 8)
    assert found["train/epoch"][-1][1] == pytest.approx(share)
    exported = finished(one.export(job.id, profile="cpu:1", **of(given, method)))
    names = {path.name for path in exported.output_dir().iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    config = json.loads((exported.output_dir() / "config.json").read_text("utf-8"))
    assert config["architectures"] == [
        "Qwen2ForSequenceClassification" if method == "rm" else "Qwen2ForCausalLM"
    ]


@pytest.fixture
def judge() -> Iterator[tuple[str, list[str]]]:
    """A server that gives points in turn; its address, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body["messages"][-1]["content"])
            points = json.dumps({"correct": 1 + len(asked) % 5, "clear": 3})
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": points},
                "finish_reason": "stop",
            }
            data = json.dumps({"id": "1", "object": "chat.completion", "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("release", RELEASES)
def test_a_judge_gives_the_rewards(
    release: str, project: api.Project, given: dict[str, Any], judge: tuple[str, list[str]]
) -> None:
    address, asked = judge
    sets = {**STEPS, **METHODS["grpo"][0], "eval_every": 0, "judge_url": address}
    job = finished(
        experiment(project, release, "grpo-judge").submit(profile="cpu:1", set=sets, **of(given, "grpo"))
    )
    found = series(job)
    assert len(found["train/reward"]) == 2 and all(0 <= value <= 1 for _, value in found["train/reward"])
    assert asked and all("one?" in question for question in asked)


@pytest.mark.parametrize("release", RELEASES)
def test_a_reward_model_learns_its_pairs_and_is_judged_by_them(
    release: str, project: api.Project, given: dict[str, Any]
) -> None:
    one = experiment(project, release, "rm")
    asked = {**STEPS, "max_length": 64, "max_steps": 12, "learning_rate": 0.01, "eval_every": 0}
    job = finished(one.submit(profile="cpu:1", set=asked, **of(given, "rm")))
    measured = finished(one.evaluate(job.id, profile="cpu:1", **of(given, "rm")))
    (score,) = api.scores(measured)
    assert (score["metric"], score["value"], score["n"]) == ("pairwise_accuracy", 1.0, 4)
    pairs = (measured.output_dir() / "pairs.jsonl").read_text("utf-8").splitlines()
    assert all(pair["chosen"] > pair["rejected"] for pair in map(json.loads, pairs))
    assert series(measured)["validation/pairwise_accuracy"] == [(0, 1.0)]


@pytest.mark.parametrize("release", RELEASES)
def test_a_teacher_of_another_vocabulary_is_refused_here_and_there(
    release: str,
    project: api.Project,
    given: dict[str, Any],
    interpreter: Callable[[str], str],
    tmp_path: Path,
) -> None:
    other = tmp_path / "other"
    shutil.copytree(given["model"], other)
    resize = (
        "import sys; from transformers import AutoModelForCausalLM as A; m = A.from_pretrained(sys.argv[1]);"
    )
    resize += "m.resize_token_embeddings(311); m.save_pretrained(sys.argv[1])"
    subprocess.run(
        [interpreter(release), "-c", resize, str(other)], check=True, env=quiet(), capture_output=True
    )
    asked = {**STEPS, "max_response_length": 8, "teacher_model": str(other), "eval_every": 0}
    report = experiment(project, release, "opsd").validate(profile="cpu:1", set=asked, **of(given, "opsd"))
    (finding,) = [one for one in report.findings if one.severity == "error"]
    assert finding.code == "trl-teacher-vocabulary" and "311" in finding.message
    words = [f"--model_name_or_path={given['model']}", f"--teacher_model_name_or_path={other}", "--use_cpu"]
    words += [f"--dataset_name={tmp_path / 'rows'}", f"--output_dir={tmp_path / 'out'}", "--bf16=false"]
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "train.jsonl").write_text(lines("prompts", 4), "utf-8")
    command = [interpreter(release), "-m", "trl.scripts.distillation", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=quiet())
    assert "requires a shared vocabulary" in done.stderr
