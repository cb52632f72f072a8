"""The adapter: parameters on both harnesses, devices, the model that a job wrote, the judge in a plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from evalkit_support import EVALSCOPE, LM_EVAL, RUBRIC
from tuneport import api, workflow
from tuneport.compiler.compile import Compiled
from tuneport.experiment.create import new_project
from tuneport.experiment.findings import findings_text
from tuneport.testing import FrameworkTests
from tuneport.types import LaunchPlan, Ref
from tuneport_judge.rubric import digest

JUDGE = {"rubric": "rubric.yaml", "base_url": "http://127.0.0.1:8000/v1", "model": "judge"}


class TestEvalkit(FrameworkTests):
    framework = "evalkit"
    requests: ClassVar[dict[str, dict[str, Any]]] = {
        "evalkit/benchmark": {
            "model": "org/model",
            "profile": "h200:2",
            "set": {
                "few_shot": 2,
                "max_response_length": 64,
                "model_dtype": "bfloat16",
                "val_temperature": 0,
            },
        }
    }
    golden = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> api.Project:
    return api.open_project(new_project(tmp_path_factory.mktemp("evalkit") / "project"))


def compiled(
    project: api.Project,
    release: str,
    config: Mapping[str, Any] | None = None,
    rubric: Mapping[str, Any] | str | None = None,
    **request: Any,
) -> Compiled:
    path = project.folder.experiments / release
    if not path.exists():
        project.new(release, "evalkit/benchmark", release)
        (path / "start.txt").write_text((path / "config.yaml").read_text("utf-8"), "utf-8")
    start = {**yaml.safe_load((path / "start.txt").read_text("utf-8")), **(config or {})}
    (path / "config.yaml").write_text(yaml.safe_dump(start), "utf-8")
    (path / "rubric.yaml").unlink(missing_ok=True)
    if rubric is not None:
        text = rubric if isinstance(rubric, str) else yaml.safe_dump(dict(rubric), sort_keys=False)
        (path / "rubric.yaml").write_text(text, "utf-8")
    report = api.Experiment(str(path)).validate(**{"model": "org/m", "profile": "cpu:1", **request})
    assert report.compiled is not None
    return report.compiled


def plan(found: Compiled) -> LaunchPlan:
    assert found.plan is not None, findings_text(found.findings)
    return found.plan


def words(found: Compiled) -> list[Any]:
    return list(plan(found).commands[0].argv)


def codes(found: Compiled) -> list[str]:
    return [finding.code for finding in found.findings if finding.severity != "note"]


def test_templates_are_clean_and_name_their_harness(project: api.Project) -> None:
    for release, program in ((LM_EVAL, ["lm_eval", "run"]), (EVALSCOPE, ["evalscope.cli.cli", "eval"])):
        found = compiled(project, release)
        assert not found.findings
        argv = words(found)
        assert argv[:4] == [Ref("python"), "tuneport-evalkit.py", "org/m", "--"]
        assert argv[4:7] == ["-m", *program]
        assert plan(found).action == "eval"
        assert plan(found).runtime.variant == "cpu"
        assert not [word for word in argv[7:] if "org/m" in str(word)], "the script says where the model is"


def test_parameters_reach_both_harnesses(project: api.Project) -> None:
    sets = {
        "few_shot": 3,
        "samples_per_task": 7,
        "eval_micro_batch_size": 4,
        "seed": 9,
        "max_response_length": 50,
    }
    one = words(
        compiled(project, LM_EVAL, set={**sets, "apply_chat_template": True, "tasks": ["example", "gsm8k"]})
    )
    for word in (
        "--num_fewshot=3",
        "--limit=7",
        "--batch_size=4",
        "--seed=9",
        '--gen_kwargs={"max_gen_toks": 50}',
    ):
        assert word in one
    assert "--apply_chat_template" in one, "alone: a value would be the template's name"
    assert one[one.index("--tasks") + 1 : one.index("--tasks") + 3] == ["example", "gsm8k"]
    assert "--device=cpu" in one
    given = {"datasets": ["gsm8k", "general_mcq"]}
    other = words(compiled(project, EVALSCOPE, given, set=sets))
    for word in ("--limit=7", "--eval-batch-size=4", "--seed=9", '--model-args={"device_map": "cpu"}'):
        assert word in other
    arguments = json.loads(
        next(str(word) for word in other if str(word).startswith("--dataset-args=")).partition("=")[2]
    )
    assert arguments["gsm8k"] == {"few_shot_num": 3}
    assert arguments["general_mcq"] == {"few_shot_num": 3, "local_path": "data", "subset_list": ["example"]}


@pytest.mark.parametrize(
    ("profile", "config", "several"),
    [
        ("h200:4", {}, True),
        ("h200:1", {}, False),
        ("cpu:4", {}, False),
        ("h200:4", {"model_args": {"parallelize": True}}, False),
        (
            "h200:4",
            {"model": "local-completions", "model_args": {"base_url": "http://h/v1/completions"}},
            False,
        ),
    ],
)
def test_one_copy_for_each_device_where_transformers_computes(
    project: api.Project, profile: str, config: dict[str, Any], several: bool
) -> None:
    argv = words(compiled(project, LM_EVAL, config, profile=profile))
    assert ("torch.distributed.run" in argv) == several
    assert ("--nproc_per_node=4" in argv) == several
    if (
        several
    ):  # docs of the harness: a launcher starts a copy a device, each takes its part of the questions
        at = argv.index("torch.distributed.run")
        assert argv[at - 1] == "-m" and argv[at + 1 :][argv[at + 1 :].index("-m") + 1] == "lm_eval"


def test_what_does_nothing_is_named_inside_a_mapping_too(project: api.Project) -> None:
    for config in ({"model_args": {"tensor_parallel_size": 2}}, {"model_args.tensor_parallel_size": 2}):
        found = compiled(project, LM_EVAL, {"model": "dummy", **config}, profile="h200:2")
        said = [one for one in found.findings if one.code == "inert-key"]
        assert len(said) == 1 and said[0].key.endswith("tensor_parallel_size"), said


def test_the_harness_own_judge_has_parameters(project: api.Project) -> None:
    sets = {"task_judge": "org/judge", "task_judge_url": "http://h/v1", "task_judge_strategy": "llm"}
    found = compiled(project, EVALSCOPE, {}, set=sets)
    assert not codes(found), findings_text(found.findings)
    (given,) = [word for word in map(str, words(found)) if word.startswith("--judge-model-args=")]
    assert json.loads(given.partition("=")[2]) == {"model_id": "org/judge", "api_url": "http://h/v1"}
    assert "--judge-strategy=llm" in words(found)


def test_what_the_runtime_does_not_hold_is_an_error_unless_an_image_does(project: api.Project) -> None:
    assert codes(compiled(project, LM_EVAL, {"model": "vllm"}, profile="h200:1")) == ["lm-eval-engine-absent"]
    image = {"image": f"registry/vllm@sha256:{'0' * 64}"}
    assert not codes(compiled(project, LM_EVAL, {"model": "vllm"}, profile="h200:1", **image))
    backend = {"eval_backend": "OpenCompass", "eval_config": "c.yaml"}
    assert "evalscope-backend-absent" in codes(compiled(project, EVALSCOPE, backend))
    assert "evalscope-sandbox-absent" in codes(compiled(project, EVALSCOPE, {"sandbox": {"enabled": True}}))


@pytest.mark.parametrize(
    ("release", "key"),
    [
        (LM_EVAL, "output_path"),
        (LM_EVAL, "log_samples"),
        (LM_EVAL, "config"),
        (EVALSCOPE, "work_dir"),
        (EVALSCOPE, "api_key"),
    ],
)
def test_keys_that_the_platform_writes_are_refused(project: api.Project, release: str, key: str) -> None:
    found = compiled(project, release, {key: "x"})
    assert [(f.code, f.key) for f in found.findings if f.severity == "error"] == [("platform-key", key)]


@pytest.mark.parametrize("release", [LM_EVAL, EVALSCOPE])
def test_a_judge_is_shipped_with_the_plan_and_hidden_from_the_harness(
    project: api.Project, release: str
) -> None:
    found = compiled(project, release, {"judge": JUDGE}, RUBRIC)
    assert not codes(found)
    made = plan(found)
    (command,) = made.commands
    assert made.labels["rubric"] == digest(RUBRIC)
    assert not [word for word in command.argv if "judge" in str(word)]
    assert {"tuneport_judge/__init__.py", "tuneport_judge/judge.py", "tuneport-judge.json"} <= set(
        command.files
    )
    assert "tuneport_judge/compiled.py" not in command.files
    settings = command.files["tuneport-judge.json"].content
    assert settings == {**JUDGE, "rubric": RUBRIC}
    assert made.config["judge.model" if "judge.model" in made.config else "judge"] in ("judge", JUDGE)
    assert "rubric" not in plan(compiled(project, release)).labels


@pytest.mark.parametrize("release", [LM_EVAL, EVALSCOPE])
def test_a_judge_comes_as_parameters_too(project: api.Project, release: str) -> None:
    sets = {
        "rubric": "rubric.yaml",
        "judge_url": JUDGE["base_url"],
        "judge_model": "judge",
        "judge_concurrency": 3,
    }
    made = plan(compiled(project, release, None, RUBRIC, set=sets))
    assert made.commands[0].files["tuneport-judge.json"].content == {
        **JUDGE,
        "concurrency": 3,
        "rubric": RUBRIC,
    }


def example(scores: dict[str, float]) -> list[dict[str, Any]]:
    return [{"question": "", "answer": "", "scores": scores}]


SCALE = {"min": 1, "max": 5, "step": 1}


@pytest.mark.parametrize(
    ("section", "rubric", "said"),
    [
        ({**JUDGE, "rubric": None}, RUBRIC, "section-schema"),
        ({"rubric": "rubric.yaml"}, RUBRIC, "section-schema section-schema"),
        ({**JUDGE, "api_key": "sk-abcdefghijklmnop"}, RUBRIC, "section-schema"),
        ({**JUDGE, "api_key_env": "sk-abcdefghijklmnop"}, RUBRIC, "judge-key-literal"),
        ({**JUDGE, "api_key_env": "hf_abcdefghijklmnopqrstuvwx"}, RUBRIC, "judge-key-literal"),
        ({**JUDGE, "api_key_env": "OPENAI_API_KEY"}, RUBRIC, ""),
        ({**JUDGE, "base_url": "https://me:secret@h/v1"}, RUBRIC, "judge-key-literal"),
        ({**JUDGE, "base_url": "http://h/v1/chat/completions"}, RUBRIC, "judge-address"),
        ({**JUDGE, "base_url": "h/v1"}, RUBRIC, "section-schema"),
        ({**JUDGE, "concurrency": 0}, RUBRIC, "section-schema"),
        (JUDGE, None, "file-missing"),
        ({**JUDGE, "rubric": "../rubric.yaml"}, RUBRIC, "file-missing"),
        (JUDGE, "", "document-schema"),
        (JUDGE, "rubric: [", "yaml-syntax"),
        (JUDGE, "just text", "document-schema"),
        (JUDGE, {**RUBRIC, "api_key": "x"}, "document-schema"),
        (JUDGE, {**RUBRIC, "criteria": []}, "document-schema"),
        (JUDGE, {k: v for k, v in RUBRIC.items() if k != "version"}, "document-schema"),
        (JUDGE, {**RUBRIC, "scale": {"min": 5, "max": 1}}, "rubric-scale"),
        (JUDGE, {**RUBRIC, "scale": {"min": 0, "max": 1, "step": 2}}, "rubric-scale"),
        (JUDGE, {**RUBRIC, "criteria": RUBRIC["criteria"] * 2}, "rubric-criteria"),
        (JUDGE, {**RUBRIC, "template": "{criteria} {question}"}, "rubric-template"),
        (JUDGE, {**RUBRIC, "template": "{question} {criteria} {answer} {reference}"}, "rubric-template"),
        (JUDGE, {**RUBRIC, "scale": {"min": 0, "max": 10, "step": 3}}, "rubric-scale"),
        (JUDGE, {**RUBRIC, "template": "{answer} {criteria}"}, "rubric-unused"),
        (JUDGE, {**RUBRIC, "reference": "solution"}, "rubric-unused"),
        (JUDGE, {**RUBRIC, "template": "{question} {answer}"}, "rubric-unused"),
        (JUDGE, {**RUBRIC, "template": "{question} {criteria} {answer} {anwser}"}, "rubric-placeholder"),
        (JUDGE, {**RUBRIC, "template": '{question} {criteria} {answer} {"a": {}} {Some Text}'}, ""),
        (JUDGE, {**RUBRIC, "examples": example({"other": 1})}, "rubric-example"),
        (JUDGE, {**RUBRIC, "examples": example({"correct": 6})}, "rubric-example"),
        (JUDGE, {**RUBRIC, "scale": SCALE, "examples": example({"correct": 1.5})}, "rubric-example"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_judge_is_said(
    project: api.Project, section: dict[str, Any], rubric: Any, said: str
) -> None:
    section = {key: value for key, value in section.items() if value is not None}
    found = compiled(project, LM_EVAL, {"judge": section}, rubric)
    assert codes(found) == said.split(), findings_text(found.findings)
    text = findings_text(found.findings)
    assert "abcdefghijklmnop" not in text and "secret" not in text, "a key is never repeated"


def test_findings_about_a_rubric_have_its_file_and_line(project: api.Project) -> None:
    text = yaml.safe_dump({**RUBRIC, "version": 1}, sort_keys=False)
    found = compiled(project, LM_EVAL, {"judge": JUDGE}, text)
    (finding,) = [finding for finding in found.findings if finding.severity == "error"]
    assert finding.file.endswith("rubric.yaml")
    assert finding.line == text.splitlines().index("version: 1") + 1
    assert "version" in finding.message


def test_a_hostile_rubric_is_refused_quickly(project: api.Project) -> None:
    for text in ("a: " + "[" * 5000, "x" * 5_000_000, "rubric: \0", "a: &a [*a, *a]"):
        found = compiled(project, LM_EVAL, {"judge": JUDGE}, text)
        errors = [finding for finding in found.findings if finding.severity == "error"]
        assert errors and all("rubric" in finding.key or "rubric" in finding.file for finding in errors)


def test_a_run_that_another_rubric_trained_is_said(
    project: api.Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEPORT_STATE_DIR", str(tmp_path / "state"))
    trainer = project.new("trainer", "custom/custom")
    (trainer.path / "train.sh").write_text("true\n", "utf-8")
    plan, report = workflow.plan(str(trainer.path), api.flags(profile="cpu:1"))
    job = trainer.perform(replace(plan, labels={"rubric": digest(RUBRIC)}), report)
    assert job.wait(60).state == "SUCCEEDED"
    found = compiled(project, LM_EVAL, {"judge": JUDGE}, RUBRIC)
    place = str(project.folder.experiments / LM_EVAL)

    def said() -> list[str]:
        made, judged = workflow.evaluation_plan(place, api.flags(profile="cpu:1"), job.id)
        assert made.commands[0].argv[2] == Ref("run_output", name=job.id), "the job's output is the model"
        return [finding.message for finding in judged.findings if finding.code == "rubric-differs"]

    assert not said() and found.plan is not None
    compiled(project, LM_EVAL, {"judge": JUDGE}, {**RUBRIC, "version": "2"})
    (message,) = said()
    assert job.id in message and digest(RUBRIC)[:19] in message
    compiled(project, LM_EVAL)
    assert "this evaluation uses none" in said()[0]
