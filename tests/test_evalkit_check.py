"""`tp check` and `tp import` of evaluation commands: what people reported, and the way back."""
# ruff: noqa: E501 - commands stand as people write them

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tuneport import api, linter, workflow
from tuneport.experiment.create import new_project
from tuneport.experiment.findings import findings_text
from tuneport.registry import surfaces
from tuneport.types import Ref

ROOT = Path(__file__).resolve().parents[1]
REPORTS = json.loads((ROOT / "tests/data/reports/evalkit.json").read_text("utf-8"))


@pytest.mark.parametrize("record", REPORTS, ids=[record["id"] for record in REPORTS])
def test_reported_mistakes_are_found(record: dict[str, Any]) -> None:
    given = record["minimal_input"]
    report = workflow.check(given["args"], gpus_per_node=given["topology"]["gpus_per_node"])
    wanted = record["expected_severity"]
    said = findings_text([finding for finding in report.findings if finding.severity == wanted])
    assert said, "nothing was found"
    assert any(fault.lstrip("-") in said for fault in record["fault_keys"]), said
    assert report.facts["method"] == "evalkit/benchmark"


@pytest.mark.parametrize(
    ("words", "release"),
    [
        (["lm_eval", "--model", "hf", "-a", "pretrained=m", "-t", "gsm8k"], "lm-eval-0.4.13"),
        (["lm-eval", "run", "-M", "hf", "-a", "pretrained=m", "-t", "gsm8k"], "lm-eval-0.4.13"),
        (["python", "-m", "lm_eval", "-a", "pretrained=m", "-t", "gsm8k"], "lm-eval-0.4.13"),
        (["python3", "-m", "lm_eval", "run", "-a", "pretrained=m", "-t", "gsm8k"], "lm-eval-0.4.13"),
        (["accelerate", "launch", "-m", "lm_eval", "-a", "pretrained=m", "-t", "gsm8k"], "lm-eval-0.4.13"),
        (["torchrun", "--nproc-per-node=2", "-m", "lm_eval", "run", "-a", "pretrained=m", "-t", "gsm8k"], "lm-eval-0.4.13"),
        (["evalscope", "eval", "--model", "m", "--datasets", "gsm8k"], "evalscope-1.14.1"),
        (["python", "-m", "evalscope.cli.cli", "eval", "--model", "m", "--datasets", "gsm8k"], "evalscope-1.14.1"),
        (["CUDA_VISIBLE_DEVICES=0 lm_eval -a pretrained=m -t gsm8k 2>&1 | tee log"], "lm-eval-0.4.13"),
    ],
    ids=lambda item: " ".join(item)[:40] if isinstance(item, list) else "",
)  # fmt: skip
def test_every_way_to_start_a_harness_is_read(words: list[str], release: str) -> None:
    report = workflow.check(words)
    assert not report.findings, findings_text(report.findings)
    assert report.facts["release"] == f"evalkit {release}"


@pytest.mark.parametrize("words", [["lm_eval", "ls", "tasks"], ["evalscope", "perf", "--model", "m"]])
def test_other_words_of_a_harness_evaluate_nothing(words: list[str]) -> None:
    with pytest.raises(Exception, match="no entry point"):
        linter.check(words, linter.Asked())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model_args", "pretrained"], "has no `=`"),
        (["--model_args", '{"pretrained": m}'], "must be JSON"),
        (["--samples", '{"gsm8k": [0,}'], "must be JSON"),
        (["--seed", "1,2"], "four"),
        (["--seed", "a"], "whole numbers"),
        (["--cache_requests", "yes"], "true, refresh, delete"),
        (["--num_fewshot", "five"], "a whole number"),
        (["--taks", "gsm8k"], "tasks"),
    ],
)
def test_values_are_read_as_the_harness_reads_them(flags: list[str], message: str) -> None:
    found = workflow.check(["lm_eval", "-a", "pretrained=m", "-t", "gsm8k", *flags])
    errors = [finding for finding in found.findings if finding.severity == "error"]
    assert errors and message in findings_text(errors), findings_text(found.findings)


COMMANDS = [
    ["lm_eval", "--model", "hf", "--model_args", "pretrained=org/m,dtype=bfloat16,max_length=2048", "--tasks", "gsm8k,mmlu",
     "--num_fewshot", "5", "--batch_size", "auto:4", "--gen_kwargs", "temperature=0.5,do_sample=True,until=['\\n']",
     "--apply_chat_template", "--fewshot_as_multiturn", "false", "--seed", "1,2,3,None", "--device", "cuda:1"],
    ["lm_eval", "-a", '{"pretrained": "org/m", "chat_template_args": {"a": 1}}', "-t", "arc_easy", "arc_challenge", "-b8"],
    ["evalscope", "eval", "--model", "org/m", "--datasets", "gsm8k", "ceval", "--dataset-args", '{"gsm8k": {"few_shot_num": 4}}',
     "--generation-config", "do_sample=true,temperature=0.3,max_tokens=99", "--eval-batch-size", "4", "--no-collect-perf",
     "--model-args", "precision=torch.bfloat16,device_map=auto", "--limit", "0.5"],
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=["lm-eval", "short", "evalscope"])
def test_commands_compile_back_to_the_same_settings(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(new_project(tmp_path / "project"))
    before = linter.check(words, linter.Asked())
    made = workflow.import_command(words, "taken")
    assert made.ok, findings_text(made.findings)
    flags = {name.lstrip("-"): value for name, value in made.flags.items() if name != "--profile"}
    plan = api.Experiment("taken").plan(**flags, profile="h200:1")
    (command,) = plan.commands
    argv = [str(word) for word in command.argv if not isinstance(word, Ref)]
    program = argv[argv.index("--") + 1 :]
    harness = program[program.index("-m") + 1 :]
    again = linter.check(
        ["python", "-m", *harness, *(["--model", flags["model"]] if "evalscope" in words else [])],
        linter.Asked(),
    )
    ours = {"output_path", "log_samples", "work_dir", "no_timestamp", "model_args.pretrained"}

    def settings(checked: linter.Checked) -> dict[str, Any]:
        keys = surfaces.release("evalkit", checked.release, checked.entry).keys
        own = {name: value for name, value in checked.context.own.items() if name not in ours}
        return {name: value for name, value in own.items() if name not in keys or value != keys[name].default}

    assert settings(again) == settings(before)
