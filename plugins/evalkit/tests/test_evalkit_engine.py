"""Real evaluations by the real harnesses, through the public interface, of a model that TRL has just
trained."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from evalkit_support import CASES, EVALSCOPE, HERE, LM_EVAL, RELEASES, RUBRIC, cases, quiet
from judge_server import Server
from tuneport import api
from tuneport.cli.group import tp
from tuneport.experiment.create import new_project
from tuneport.jobs.manager import Job
from tuneport.registry import catalog, surfaces
from tuneport.registry.schemas import problems, schema
from tuneport_judge.rubric import digest

pytestmark = pytest.mark.engine
TINY = HERE.parents[1] / "trl/tests/tiny_model.py"
TRL = "1.16.0"
SMALL = {
    "mixed_precision": "none",
    "micro_batch_size": 1,
    "max_length": 64,
    "max_steps": 2,
    "log_every": 1,
    "save_every": 1,
}
PROMPT = {
    "prompt": [{"role": "user", "content": "one?"}],
    "completion": [{"role": "assistant", "content": "two"}],
}


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, interpreter: Callable[[str, str], str]
) -> Iterator[api.Project]:
    for release in RELEASES:
        interpreter("evalkit", release)
    folder = tmp_path_factory.mktemp("evalkit engine [1]")
    changed = {
        "TUNEPORT_STATE_DIR": str(folder.with_name("evalkit-engine-state")),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder.with_name("evalkit-engine-hf")),
        "JUDGE_KEY": "secret-of-the-test",
    }
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    yield api.open_project(new_project(folder / "project"))
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, interpreter: Callable[[str, str], str]) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    subprocess.run([interpreter("trl", TRL), str(TINY), str(folder)], check=True, env=quiet())
    return folder


@pytest.fixture(scope="module")
def adapter(project: api.Project, tiny: Path) -> Job:
    """A job of trl/sft that trained adapters on the tiny model."""
    (project.root / "train.jsonl").write_text((json.dumps(PROMPT) + "\n") * 4, "utf-8")
    request = {"model": str(tiny), "train_data": str(project.root / "train.jsonl"), "profile": "cpu:1"}
    sets = {**SMALL, "lora": True, "lora_targets": "q_proj"}
    return finished(project.new("sft", "trl/sft", TRL).submit(**request, set=sets))


def finished(job: Job) -> Job:
    done = job.wait(600)
    assert done.state == "SUCCEEDED", "\n".join(line.text for line in job.logs())
    return done


def bench(project: api.Project, release: str) -> api.Experiment:
    known = project.folder.experiments / release
    return (
        api.Experiment(str(known)) if known.exists() else project.new(release, "evalkit/benchmark", release)
    )


def document(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((job.output_dir() / "scores.json").read_text("utf-8"))
    assert not list(problems(found, schema("scores")))
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_the_template_measures_a_model(project: api.Project, tiny: Path, release: str) -> None:
    job = finished(bench(project, release).submit(model=str(tiny), profile="cpu:1"))
    found = document(job)
    assert (found["harness"], found["harness_version"]) == tuple(release.rsplit("-", 1))
    assert found["model"] == str(tiny)
    (score,) = found["scores"]
    task, metric = {LM_EVAL: ("example", "exact_match"), EVALSCOPE: ("general_mcq", "accuracy")}[release]
    assert (score["task"], score["metric"], score["n"]) == (task, metric, 4)
    assert score["value"] == 0 and score["stderr"] == 0
    assert api.scores(job) == found["scores"]
    series = job.metrics().series
    assert [point.value for point in series[f"eval/{task}/{metric}"].points] == [score["value"]]
    assert any((job.output_dir() / "harness").rglob("*.json")), "what the harness wrote is kept"


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_job_wrote_is_measured_and_attached_to_it(
    project: api.Project, adapter: Job, tiny: Path, release: str, server: Server
) -> None:
    """An adapter, evaluated with a judge by the rubric; the harness's own scores and the judge's in one
    document."""
    texts = iter(["no points from me", '{"correct": 5}'])
    server.answer = lambda body, before: next(texts, '{"correct": 3}')
    experiment = bench(project, release)
    (experiment.path / "rubric.yaml").write_text(yaml.safe_dump(RUBRIC, sort_keys=False), "utf-8")
    sets = {"rubric": "rubric.yaml", "judge_url": server.url, "judge_model": "m", "judge_concurrency": 1}
    config = experiment.path / "config.yaml"
    before = config.read_text("utf-8")
    config.write_text(before + "\njudge: {api_key_env: JUDGE_KEY, cache: false}\n", "utf-8")
    job = finished(experiment.evaluate(adapter.id, profile="cpu:1", set=sets))
    config.write_text(before, "utf-8")
    assert job.record.parent == adapter.id
    assert job.id in [one.id for one in adapter.evaluations()]
    shown = CliRunner().invoke(tp, ["job", "status", adapter.id]).output
    assert job.id in shown and "judge/correct" in shown
    log = "\n".join(line.text for line in job.logs())
    assert f"is an adapter of {tiny}" in log
    assert "judge:" in log and "3 of 4 replies could be taken" in log
    found = document(job)
    assert found["rubric"] == digest(RUBRIC) == job.plan().labels["rubric"]
    assert found["model"] == str(adapter.output_dir())
    rows = {score["metric"]: score for score in found["scores"]}
    assert len(rows) == 3
    # The scale goes from 1 to 5: 5 points are 1, 3 points one half.
    assert (rows["judge"]["value"], rows["judge"]["n"], rows["judge"]["refused"]) == (
        pytest.approx(2 / 3),
        3,
        1,
    )
    assert rows["judge/correct"]["value"] == pytest.approx((5 + 3 + 3) / 3)
    judged = (job.output_dir() / "judged.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["value"] for line in judged] == [None, 1.0, 0.5, 0.5]
    assert "France" in server.seen[0]["messages"][-1]["content"]
    assert set(server.keys) == {"Bearer secret-of-the-test"}
    plan = json.dumps([str(word) for word in job.plan().commands[0].argv]) + json.dumps(
        dict(job.plan().commands[0].env), default=str
    )
    assert "secret-of-the-test" not in plan + log


def test_a_run_cut_short_is_measured_by_its_last_checkpoint(
    project: api.Project, adapter: Job, tmp_path: Path
) -> None:
    cut = tmp_path / "cut"
    cut.mkdir()
    for step in (1, 2):
        (adapter.output_dir() / f"checkpoint-{step}").rename(cut / f"checkpoint-{step}")
    job = finished(bench(project, LM_EVAL).submit(model=str(cut), profile="cpu:1"))
    assert "taking checkpoint-2" in "\n".join(line.text for line in job.logs())
    (tmp_path / "empty").mkdir()
    failed = bench(project, LM_EVAL).submit(model=str(tmp_path / "empty"), profile="cpu:1").wait(600)
    assert failed.state == "FAILED"
    assert any("holds no model" in line.text for line in failed.logs())


ASK = {
    LM_EVAL: """
import argparse, json, sys
from lm_eval._cli.harness import HarnessCLI
from lm_eval.config.evaluate_config import EvaluatorConfig
from lm_eval.tasks import TaskManager
from lm_eval.models import MODEL_MAPPING
cli = HarnessCLI()
parser = cli._subparsers.choices["run"]
config = {k: v for k, v in EvaluatorConfig().__class__.__dataclass_fields__.items()}
defaults = vars_ = {name: getattr(EvaluatorConfig(), name) for name in config}
names = {"tasks": TaskManager().all_tasks, "models": sorted(MODEL_MAPPING)}
judge = EvaluatorConfig.from_cli
""",
    EVALSCOPE: """
import argparse, json, sys
from evalscope.arguments import add_argument
from evalscope.config import TaskConfig
from evalscope.api.registry import BENCHMARK_REGISTRY
import evalscope.benchmarks
parser = argparse.ArgumentParser()
add_argument(parser)
defaults = {name: f.get_default(call_default_factory=True) for name, f in TaskConfig.model_fields.items()}
names = {"tasks": sorted(BENCHMARK_REGISTRY.keys())}
judge = TaskConfig.from_args
""",
}
TELL = """
def plain(value):
    try:
        json.dumps(value)
        return value
    except TypeError:
        return None
actions = {}
for action in parser._actions:
    if action.option_strings and action.dest != "help":
        given = None if action.default is argparse.SUPPRESS else action.default
        given = defaults.get(action.dest) if given in (None, "{}") else given
        actions[action.dest] = {
            "options": action.option_strings, "default": plain(given), "nargs": action.nargs,
            "choices": list(action.choices) if action.choices else None, "const": plain(action.const),
        }
lines = []
asked = json.load(sys.stdin)
for words in asked["words"]:
    space = parser.parse_args(words)
    lines.append({name: plain(value) for name, value in vars(space).items() if name != "func"})
refused = []
for words in asked["judged"]:
    try:
        judge(parser.parse_args(words))
        refused.append("")
    except Exception as error:
        refused.append(f"{type(error).__name__}: {error}")
print("ANSWER" + json.dumps({"actions": actions, "names": names, "parsed": lines, "refused": refused}))
"""
WORDS = {
    LM_EVAL: [
        ["--model_args", "pretrained=m,dtype=float32,x=[1,2],y=True", "--tasks", "a,b", "c", "-b8"],
        [
            "--model_args",
            '{"a": {"b": 1}}',
            "--gen_kwargs",
            "temperature=0.5",
            "until=['x,y']",
            "max_gen_toks=12",
        ],
        ["--seed", "1,None,2,3", "--samples", '{"a": [1]}', "--limit", "0.5"],
        [
            "-M",
            "hf",
            "-a",
            "pretrained='a,b'",
            "revision=1e3",
            "-a",
            "z=007",
            "--apply_chat_template",
            "--log_samples",
        ],
    ],
    EVALSCOPE: [
        [
            "--model-args",
            "precision=torch.float16,device_map=auto,n=3,t=true,f=False",
            "--datasets",
            "a",
            "b",
        ],
        [
            "--dataset-args",
            '{"a": {"b": [1]}}',
            "--generation-config",
            '{"n": 1}',
            "--no-collect-perf",
            "--limit",
            "3",
        ],
        [
            "--generation-config",
            "temperature=0.5,stop_seqs=None,do_sample=true",
            "--judge",
            '{"strategy": "auto"}',
        ],
    ],
}


@pytest.mark.parametrize("release", RELEASES)
def test_the_surface_is_what_the_harness_itself_has(
    interpreter: Callable[[str, str], str], tmp_path: Path, release: str
) -> None:
    """Flags, spellings, defaults, tasks and engines, what its parser makes of words, and what it refuses."""
    from tuneport.checks.rules import nested
    from tuneport.dialects.flags_read import read

    proved = [case for owner, case in cases("rules") if owner == release and case.get("proof") == "config"]
    base = CASES[release.rsplit("-", 1)[0]]["base"]
    judged = [[*case.get("base", base), *case[layer]] for case in proved for layer in ("bad", "good")]
    done = subprocess.run(
        [interpreter("evalkit", release), "-c", ASK[release] + TELL],
        input=json.dumps({"words": WORDS[release], "judged": judged}),
        capture_output=True,
        text=True,
        env={**quiet(), "HF_HOME": str(tmp_path)},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    assert lines, done.stderr[-3000:]
    answer = json.loads(lines[0].removeprefix("ANSWER"))
    entry = catalog.method("evalkit/benchmark", release).spec["entry"]
    held = surfaces.release("evalkit", release, entry)
    assert set(answer["actions"]) == set(held.keys)
    for name, action in answer["actions"].items():
        key = held.keys[name]
        options = {key.flag.get("style", f"--{name}"), *key.flag.get("also", ())}
        if key.flag.get("action") == "boolean_optional":
            options.add(f"--no-{name.replace('_', '-')}")
        assert set(action["options"]) == options, name
        # A secret, an object, a mapping of the flag's words, and a folder of the host.
        if name not in ("api_key", "judge", "cache_requests", "dataset_dir"):
            assert action["default"] == key.default, name
        assert (action["choices"] or []) == list(key.choices) or name == "cache_requests", name
    for name, known in answer["names"].items():
        assert sorted(known) == sorted(held.lists[name]), name
    assert len(proved) >= 4
    for words, refusal, bad in zip(judged, answer["refused"], [True, False] * len(proved), strict=True):
        assert bool(refusal) == bad, (words, refusal)
    for words, parsed in zip(WORDS[release], answer["parsed"], strict=True):
        found = read(words, held.keys)
        assert not [f for f in found.applied.findings if f.severity == "error"], found.applied.findings
        for name, value in nested(found.applied.own).items():
            assert parsed[name] == value or (name == "batch_size" and str(value) == parsed[name]), (
                words,
                name,
            )
