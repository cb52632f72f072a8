"""The adapter: data, parameters that are more than one key, processors, export. No framework is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from trl_support import BASE, RELEASES, Workshop, base, launched
from tuneport import api
from tuneport.compiler.compile import Compiled
from tuneport.errors import Invalid
from tuneport.experiment.findings import findings_text
from tuneport.registry.plugins import Hooks
from tuneport.testing import FrameworkTests
from tuneport.types import Location, Ref

GIVEN = {"model": "org/model", "train_data": "/data/train.jsonl", "profile": "h200:8"}


class TestTrl(FrameworkTests):
    framework = "trl"
    requests: ClassVar[dict[str, dict[str, Any]]] = {
        "trl/dpo": {**GIVEN, "set": {"preference_loss": "ipo", "lora": True, "beta": 0.2}},
        "trl/kto": {**GIVEN, "set": {"undesirable_weight": 1.5, "eval_every": 0}},
        "trl/rm": {**GIVEN, "profile": "h200:16", "set": {"center_rewards": 0.1, "lora": True}},
        "trl/grpo": {
            **GIVEN,
            "validation_data": "/data/validation.jsonl",
            "set": {
                "eval_every": 20,
                "norm_adv_by_std": False,
                "clip_ratio_high": 0.28,
                "mini_batch_size": 32,
            },
        },
        "trl/grpo-judge": {**GIVEN, "set": {"kl_loss_coef": 0.01, "judge_concurrency": 16}},
        "trl/rloo": {**GIVEN, "set": {"reward_function": "reward.py", "kl_coef": 0.1}},
        "trl/opsd": {
            **GIVEN,
            "profile": "cpu:2",
            "set": {"teacher_model": "org/teacher", "divergence_mix": 0.5},
        },
        "trl/sft": {
            "model": "org/model",
            "train_data": "/data/train.jsonl",
            "validation_data": "/data/validation.jsonl",
            "profile": "h200:8",
            "set": {"eval_every": 50, "lora": True, "lora_targets": "all-linear", "mixed_precision": "bf16"},
        },
    }
    golden = Path(__file__).parent / "golden"
    releases = RELEASES


def codes(compiled: Compiled, severity: str = "error") -> list[str]:
    return [finding.code for finding in compiled.findings if finding.severity == severity]


def listed(compiled: Compiled) -> Any:
    """What the data folder of the plan lists, by split."""
    (command,) = launched(compiled).commands
    spec = command.files["tuneport-data/.huggingface.yaml"]
    assert spec.format == "yaml"
    (config,) = spec.content["configs"]
    return {entry["split"]: entry["path"] for entry in config["data_files"]}


def compile_request(
    workshop: Workshop, release: str, config: dict[str, Any], method: str = "sft", **request: Any
) -> Compiled:
    experiment = workshop.experiment(release, method)
    settings = {**base(method), **config}
    (experiment / "config.yaml").write_text(json.dumps(settings).replace("TEACHER", "org/t"), "utf-8")
    given = {"model": str(workshop.model), "profile": "cpu:1", **request}
    compiled = api.Experiment(str(experiment)).validate(**given).compiled
    assert compiled is not None
    return compiled


def test_one_file_becomes_the_training_split(workshop: Workshop) -> None:
    compiled = workshop.compile("1.10.0", BASE)
    assert compiled.context.config["dataset_name"] == Ref("work_dir", "/tuneport-data")
    assert listed(compiled) == {"train": str(workshop.data / "pairs-train.jsonl")}


def test_two_files_become_two_splits_under_the_names_that_the_script_reads(workshop: Workshop) -> None:
    config = {**BASE, "eval_strategy": "steps", "eval_steps": 1, "dataset_test_split": "held_out"}
    compiled = workshop.compile("1.16.0", config, validation=True)
    assert list(listed(compiled)) == ["train", "held_out"]


def test_signs_of_patterns_in_a_file_name_are_quoted(workshop: Workshop) -> None:
    path = workshop.data / "a [1]*?.jsonl"
    path.write_text('{"text": "x"}\n', "utf-8")
    compiled = compile_request(workshop, "1.10.0", {}, train_data=str(path))
    assert listed(compiled)["train"] == f"{workshop.data}/a [[]1][*][?].jsonl"


def test_a_file_of_the_experiment_and_of_a_dataset_are_found_where_the_job_runs(workshop: Workshop) -> None:
    experiment = workshop.experiment("1.10.0")
    (experiment / "own.jsonl").write_text('{"text": "x"}\n', "utf-8")
    own = compile_request(workshop, "1.10.0", {}, train_data="own.jsonl")
    assert listed(own) == {"train": Ref("work_dir", "/own.jsonl")}
    (experiment / "own.jsonl").unlink()
    kept = compile_request(
        workshop, "1.10.0", {}, train_dataset="alice/facts@v2", train_data="part [1].parquet"
    )
    assert listed(kept) == {"train": Ref("dataset", "/part [[]1].parquet", "alice/facts@v2")}


def test_hub_datasets_and_folders_are_named_as_they_are(workshop: Workshop) -> None:
    hub = compile_request(workshop, "1.10.0", {}, train_data="trl-lib/Capybara")
    assert hub.context.config["dataset_name"] == "trl-lib/Capybara"
    folder = workshop.compile("1.10.0", BASE, data="folder")
    assert folder.context.config["dataset_name"] == str(workshop.data / "folder")
    for compiled in (hub, folder):
        assert "tuneport-data/.huggingface.yaml" not in launched(compiled).commands[0].files


@pytest.mark.parametrize(
    ("config", "request_", "code"),
    [
        ({"datasets": [{"path": "x"}]}, {"train_data": "/d/a.jsonl"}, "trl-data-twice"),
        ({"datasets": [{"path": "x"}]}, {"validation_data": "/d/a.jsonl"}, "trl-data-twice"),
        ({}, {"validation_data": "/d/a.jsonl"}, "trl-data-missing"),
        ({"eval_strategy": "epoch"}, {"train_data": "/d/a.jsonl"}, "trl-validation-missing"),
        ({}, {"train_data": "org/a", "validation_data": "/d/a.jsonl"}, "trl-validation-elsewhere"),
        ({}, {"train_data": "/d/a", "validation_data": "/d/b"}, "trl-validation-elsewhere"),
        ({}, {"train_data": "/d/a.jsonl", "validation_data": "org/b"}, "trl-validation-format"),
        ({}, {"train_data": "/d/a.jsonl", "validation_data": "/d/b.csv"}, "trl-validation-format"),
        (
            {"dataset_test_split": "train"},
            {"train_data": "/d/a.jsonl", "validation_data": "/d/b.jsonl"},
            "trl-split-twice",
        ),
        ({"dataset_config": "en"}, {"train_data": "/d/a.jsonl"}, "trl-file-config"),
        (
            {},
            {"train_data": "/d/a.jsonl", "set": {"warmup_steps": 3, "warmup_ratio": 0.1}},
            "trl-warmup-twice",
        ),
    ],
)
def test_what_cannot_be_said_to_the_release_is_an_error(
    config: dict[str, Any], request_: dict[str, Any], code: str, workshop: Workshop
) -> None:
    compiled = compile_request(workshop, "1.10.0", config, **request_)
    assert codes(compiled) == [code], findings_text(compiled.findings)


@pytest.mark.parametrize(
    "request_",
    [
        {"train_data": "org/a", "validation_data": "org/a"},
        {"train_data": "/d/a", "validation_data": "/d/a"},
        {"train_data": "/d/a.jsonl.gz", "validation_data": "/d/b.json"},
    ],
)
def test_pairs_that_the_release_can_read_are_no_error(request_: dict[str, Any], workshop: Workshop) -> None:
    compiled = compile_request(workshop, "1.10.0", {"eval_strategy": "epoch"}, **request_)
    assert codes(compiled) == []


def test_validation_data_that_is_not_read_while_training_is_said(workshop: Workshop) -> None:
    assert "trl-validation-unread" in codes(workshop.compile("1.10.0", BASE, validation=True), "note")


@pytest.mark.parametrize(
    ("params", "native"),
    [
        ({"mixed_precision": "none"}, {"bf16": False, "fp16": False}),
        ({"mixed_precision": "bf16"}, {"bf16": True, "fp16": False}),
        ({"save_every": 5}, {"save_strategy": "steps", "save_steps": 5}),
        ({"save_every": 0}, {"save_strategy": "no"}),
        ({"eval_every": 5}, {"eval_strategy": "steps", "eval_steps": 5}),
        ({"eval_every": 0}, {"eval_strategy": "no"}),
        ({"warmup_ratio": 0.1}, {"warmup_steps": 0.1}),
        ({"warmup_steps": 10}, {"warmup_steps": 10}),
        ({"lora_targets": "all-linear"}, {"lora_target_modules": ["all-linear"]}),
        ({"lora_targets": "q_proj"}, {"lora_target_modules": [r"(.*\.)?q_proj"]}),
        ({"lora_targets": ["q_proj", "v_proj"]}, {"lora_target_modules": ["q_proj", "v_proj"]}),
        ({"max_length": None}, {"max_length": None}),
    ],
)
def test_parameters_become_native_keys(
    params: dict[str, Any], native: dict[str, Any], workshop: Workshop
) -> None:
    context = workshop.compile("1.10.0", {}, validation=True, params=params).context
    assert {key: context.own[key] for key in native} == native
    assert {key for key in context.own if key.startswith(("save_", "eval_"))} <= set(native)


def test_resuming_is_gated_in_the_release_that_ignores_it(workshop: Workshop) -> None:
    refused = api.Experiment(str(workshop.experiment("1.10.0"))).validate(
        model=str(workshop.model),
        profile="cpu:1",
        train_data=workshop.place("pairs"),
        set={"resume_from": "/c"},
    )
    assert not refused.ok
    context = workshop.compile("1.16.0", BASE, params={"resume_from": "/c"}).context
    assert context.own["resume_from_checkpoint"] == "/c"


def test_processors_are_asked_for_by_the_profile_alone(workshop: Workshop) -> None:
    assert workshop.compile("1.10.0", BASE).context.own["use_cpu"] is True
    on_cards = workshop.compile("1.10.0", BASE, profile="h200:2")
    assert "use_cpu" not in on_cards.context.own
    assert "--nproc_per_node=2" in launched(on_cards).commands[0].argv
    assert "platform-key" in codes(workshop.compile("1.10.0", {**BASE, "use_cpu": True}))


def test_several_processes_on_processors_leave_their_group_to_the_end(workshop: Workshop) -> None:
    for profile, expected in (("cpu:1", None), ("cpu:2", "1"), ("h200:2", None)):
        (command,) = launched(workshop.compile("1.16.0", BASE, profile=profile)).commands
        assert command.env.get("FORK_LAUNCHED") == expected


def test_steps_are_counted_and_endless_warmup_is_said(workshop: Workshop) -> None:
    config = {**BASE, "max_steps": -1, "num_train_epochs": 3, "warmup_steps": 6}
    compiled = workshop.compile("1.10.0", config, profile="cpu:2")
    (note,) = [finding for finding in compiled.findings if finding.code == "trl-steps"]
    assert note.message == "4 rows at 2 x 2 x 1 per step make 1 steps an epoch; the run makes 3"
    assert "trl-warmup-endless" in codes(compiled, "warning")
    fine = workshop.compile("1.10.0", {**config, "warmup_steps": 2}, profile="cpu:2")
    assert "trl-warmup-endless" not in codes(fine, "warning")


@pytest.mark.parametrize("release", RELEASES)
def test_export_ships_the_script_and_names_checkpoint_and_model(release: str, workshop: Workshop) -> None:
    context = workshop.compile(release, {**BASE, "trust_remote_code": True}).context
    plan = Hooks("trl").export(context, Location("run", "checkpoint-5", "sft-abc"), "huggingface")
    (command,) = plan.commands
    assert plan.action == "export"
    assert command.argv == (Ref("python"), "tuneport-export.py")
    assert command.env["TUNEPORT_CHECKPOINT"] == Ref("run_output", "/checkpoint-5", "sft-abc")
    assert command.env["TUNEPORT_MODEL"] == str(workshop.model)
    assert command.env["TUNEPORT_TRUST_REMOTE_CODE"] == "1"
    compile(command.files["tuneport-export.py"].content, "tuneport-export.py", "exec")


def test_export_to_an_unknown_format_is_refused(workshop: Workshop) -> None:
    context = workshop.compile("1.10.0", BASE).context
    with pytest.raises(Invalid) as caught:
        Hooks("trl").export(context, Location("path", "/c"), "gguf")
    assert "huggingface" in caught.value.hint


@pytest.mark.parametrize(
    ("method", "params", "native"),
    [
        ("dpo", {"preference_loss": "ipo"}, {"loss_type": ["ipo"]}),
        (
            "dpo",
            {"preference_loss": ["sigmoid", "sft"], "preference_loss_weights": [1, 0.5]},
            {"loss_type": ["sigmoid", "sft"], "loss_weights": [1, 0.5]},
        ),
        ("dpo", {"ipo": True}, {"loss_type": ["ipo"]}),
        ("dpo", {"ipo": False}, {"loss_type": ["sigmoid"]}),
        ("dpo", {"nll_coef": 0.2}, {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.2]}),
        ("dpo", {"ipo": True, "nll_coef": 0.2}, {"loss_type": ["ipo", "sft"], "loss_weights": [1.0, 0.2]}),
        ("kto", {"preference_loss": "apo_zero_unpaired"}, {"loss_type": "apo_zero_unpaired"}),
        ("grpo", {"clip_ratio": 0.1}, {"epsilon": 0.1}),
        ("grpo", {"clip_ratio_low": 0.1}, {"epsilon": 0.1, "epsilon_high": 0.2}),
        ("grpo", {"clip_ratio_high": 0.3}, {"epsilon_high": 0.3}),
        ("grpo", {"clip_ratio": 0.3, "clip_ratio_low": 0.1}, {"epsilon": 0.1, "epsilon_high": 0.3}),
        ("grpo", {"norm_adv_by_std": True}, {"scale_rewards": "group"}),
        ("grpo", {"norm_adv_by_std": False}, {"scale_rewards": "none"}),
        ("grpo", {"rollout_engine": "vllm", "top_k": -1}, {"use_vllm": True, "top_k": 0}),
        ("grpo", {"policy_loss_mode": "cispo"}, {"loss_type": "cispo"}),
        ("grpo", {"reward_function": "reward.py"}, {"reward_funcs": ["reward.reward"]}),
        (
            "rloo",
            {"reward_function": "lib/score.py", "reward_function_name": "both"},
            {"reward_funcs": ["lib.score.both"]},
        ),
        ("grpo", {"reward_functions": ["think_format_reward"]}, {"reward_funcs": ["think_format_reward"]}),
        # 2 answers to a prompt, 2 answers a device at a time, 1 process
        ("grpo", {"mini_batch_size": 4}, {"gradient_accumulation_steps": 4}),
        ("grpo", {"train_batch_size": 8}, {"generation_batch_size": 16}),
        (
            "grpo",
            {"mini_batch_size": 4, "rollouts_per_prompt": 4, "micro_batch_size": 8},
            {"gradient_accumulation_steps": 2, "num_generations": 4, "per_device_train_batch_size": 8},
        ),
        ("opsd", {"teacher_model": "org/t", "divergence_mix": 0}, {"beta": 0}),
    ],
)
def test_parameters_of_other_methods_become_native_keys(
    method: str, params: dict[str, Any], native: dict[str, Any], workshop: Workshop
) -> None:
    context = compile_request(workshop, "1.10.0", {}, method, train_data="/d/a.jsonl", set=params).context
    assert {key: context.own[key] for key in native} == native


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("dpo", {"ipo": True, "preference_loss": "hinge"}, "trl-loss-twice"),
        ("grpo", {"reward_function": "reward.py", "reward_functions": ["a.b"]}, "trl-reward-twice"),
        ("grpo", {"reward_function_name": "b"}, "trl-reward-twice"),
        ("grpo", {"mini_batch_size": 4, "gradient_accumulation_steps": 4}, "trl-batch-twice"),
        ("grpo", {"mini_batch_size": 3, "rollouts_per_prompt": 3, "micro_batch_size": 6}, "param-fraction"),
    ],
)
def test_parameters_that_write_one_key_are_refused(
    method: str, params: dict[str, Any], code: str, workshop: Workshop
) -> None:
    assert code in codes(compile_request(workshop, "1.10.0", {}, method, train_data="/d/a.jsonl", set=params))


_Q, _A, _B = (
    [{"role": role, "content": text}]
    for role, text in (("user", "q"), ("assistant", "a"), ("assistant", "b"))
)
GOOD = {"prompt": _Q, "chosen": _A, "rejected": _B}


@pytest.mark.parametrize(
    ("method", "rows", "code", "says"),
    [
        (
            "dpo",
            [{"prompt": "q", "good": "a", "bad": "b"}],
            "data-columns",
            "no column chosen and no column rejected",
        ),
        ("rm", [{"input_ids_chosen": [1], "input_ids_rejected": [2]}], "data-columns", ""),
        ("dpo", [GOOD, {**GOOD, "rejected": None}], "data-value", "row 2, column rejected: it is null"),
        (
            "dpo",
            [GOOD, GOOD, {"prompt": _Q, "chosen": _A}],
            "data-value",
            "row 3, column rejected: it is not there",
        ),
        (
            "rm",
            [{"chosen": [{"from": "gpt", "value": "x"}], "rejected": _B}],
            "data-value",
            "row 1, column chosen",
        ),
        ("dpo", [GOOD, {**GOOD, "prompt": "q"}], "data-mixed", "row 2, column prompt: it is text"),
        ("dpo", [{**GOOD, "chosen": "a"}], "data-mixed", "row 1, column prompt: it is messages"),
        (
            "kto",
            [{"prompt": _Q, "completion": _A, "label": "yes"}],
            "data-value",
            "has to be true or false",
        ),
        ("grpo", [{"question": "q", "answer": "a"}], "data-columns", "no column prompt"),
        ("sft", [{"prompt": _Q, "completion": "a"}], "data-mixed", "column prompt: it is messages"),
    ],
)
def test_rows_that_are_not_what_the_method_learns_from(
    method: str, rows: list[Any], code: str, says: str, workshop: Workshop, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    found = [
        f
        for f in compile_request(workshop, "1.10.0", {}, method, train_data=str(path)).findings
        if f.code == code
    ]
    assert [(one.severity, one.key) for one in found] == [("error", "dataset_name")]
    assert says in found[0].message and found[0].hint


@pytest.mark.parametrize(
    ("method", "row"),
    [
        ("dpo", {"chosen": "a", "rejected": "b"}),
        ("rm", {**GOOD, "margin": 0.5}),
        ("kto", GOOD),
        ("kto", {"prompt": "q", "completion": "a", "label": False}),
        ("opsd", {"prompt": [{"role": "user", "content": [{"type": "text", "text": "q"}]}]}),
        ("sft", {"messages": _Q + _A, "note": 1}),
        ("sft", {"text": "a"}),
    ],
)
def test_rows_of_every_form_are_no_error(method: str, row: Any, workshop: Workshop, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text((json.dumps(row) + "\n") * 3, "utf-8")
    compiled = compile_request(
        workshop, "1.16.0", {}, method, train_data=str(path), validation_data=str(path)
    )
    assert codes(compiled) == [], findings_text(compiled.findings)


@pytest.mark.parametrize(
    ("text", "funcs", "code"),
    [
        ("def reward(completions, **columns): return []", ["reward.reward"], ""),
        ("from x import *", ["reward.score"], ""),
        ("def reward(completions, solution, **columns): return []", ["reward.reward"], ""),
        ("def reward(completions, answer, **columns): return []", ["reward.reward"], "trl-reward-arguments"),
        ("def reward(completions): return []", ["reward.reward"], "trl-reward-arguments"),
        ("def reward(completions, /, **columns): return []", ["reward.reward"], "trl-reward-arguments"),
        ("def score(completions, **columns): return []", ["reward.reward"], "trl-reward-function"),
        ("def reward(:", ["reward.reward"], "trl-reward-function"),
        ("", ["my_lib.rewards.score"], "trl-reward-file"),
    ],
)
def test_reward_functions_are_looked_up_in_their_file(
    text: str, funcs: list[str], code: str, workshop: Workshop
) -> None:
    experiment = workshop.experiment("1.10.0", "grpo")
    before = (experiment / "reward.py").read_text("utf-8")
    (experiment / "reward.py").write_text(text, "utf-8")
    compiled = workshop.compile("1.10.0", {**base("grpo"), "reward_funcs": funcs}, method="grpo")
    (experiment / "reward.py").write_text(before, "utf-8")
    found = {finding.code for finding in compiled.findings if finding.code.startswith("trl-reward")}
    assert found == ({code} if code else set()), findings_text(compiled.findings)


def test_the_judge_and_its_rubric_go_along(workshop: Workshop) -> None:
    experiment = workshop.experiment("1.16.0", "grpo-judge")
    report = api.Experiment(str(experiment)).validate(
        model="org/m", train_data=workshop.place("prompts"), profile="cpu:1"
    )
    assert report.compiled is not None and not codes(report.compiled), findings_text(report.findings)
    plan = launched(report.compiled)
    (command,) = plan.commands
    assert {"tuneport_judge/__init__.py", "tuneport-judge.json"} <= set(command.files)
    assert plan.labels["rubric"].startswith("sha256:")
    assert not [word for word in command.argv if "judge" in str(word)]


def test_rounds_of_answers_make_the_steps(workshop: Workshop) -> None:
    config = {**base("grpo"), "max_steps": -1, "num_train_epochs": 2}
    for more, steps in (
        ({}, 4),
        ({"num_generations": 4, "gradient_accumulation_steps": 2}, 4),
        ({"num_iterations": 3}, 12),
    ):
        compiled = workshop.compile("1.10.0", {**config, **more}, method="grpo")
        (note,) = [finding for finding in compiled.findings if finding.code == "trl-steps"]
        assert f"make {steps} steps an epoch; the run makes {steps * 2}" in note.message, note.message


def test_an_empty_value_is_a_warning(workshop: Workshop, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "q"}\n{"prompt": ""}\n', "utf-8")
    compiled = compile_request(workshop, "1.10.0", {}, "opsd", train_data=str(path))
    (found,) = [finding for finding in compiled.findings if finding.code == "data-empty"]
    assert found.severity == "warning" and "row 2, column prompt" in found.message
