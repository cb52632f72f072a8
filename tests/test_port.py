"""`tp port`: what both methods have comes along, in each one's units, and a step takes as much."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tuneport import api, workflow
from tuneport.errors import Invalid, NotFound
from tuneport.experiment.create import new_project
from tuneport.experiment.request import Flags
from tuneport.porting import canonical
from tuneport.porting.carry import alike
from tuneport.porting.port import Ported
from tuneport.registry import catalog
from tuneport.types import Context, Json

REQUEST = {
    "model": "org/model",
    "train_data": "/data/train.jsonl",
    "validation_data": "/data/test.jsonl",
    "profile": "h200:8",
}
# What two experiments that are compared agree on: model and data are the request's.
CONTRACT = [
    "learning_rate",
    "lr_schedule",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "grad_clip",
    "train_batch_size",
    "mini_batch_size",
    "ppo_epochs",
    "rollouts_per_prompt",
    "max_prompt_length",
    "max_response_length",
    "max_length",
    "kl_loss_coef",
    "kl_coef",
    "clip_ratio",
    "clip_ratio_low",
    "clip_ratio_high",
    "entropy_coeff",
    "temperature",
    "epochs",
    "lora_rank",
    "lora_alpha",
    "norm_adv_by_std",
]
SETTINGS: list[dict[str, Json]] = [
    {},
    {
        "train_batch_size": 64,
        "mini_batch_size": 32,
        "rollouts_per_prompt": 16,
        "max_response_length": 2048,
        "max_length": 4096,
    },
    {"learning_rate": 3e-7, "lr_schedule": "cosine", "epochs": 2, "clip_ratio": 0.1, "temperature": 0.7},
    {"use_kl_loss": True, "kl_loss_coef": 0.02, "entropy_coeff": 0.001},
    {"adam_beta1": 0.8, "adam_beta2": 0.95, "weight_decay": 0.1},
    {"lora_rank": 32, "lora_alpha": 64, "learning_rate": 2e-5},
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> api.Project:
    made = api.open_project(new_project(tmp_path / "project"))
    monkeypatch.chdir(tmp_path / "project")
    return made


def ported(name: str, method: str, as_name: str, **request: Any) -> Ported:
    return workflow.port(name, Flags(**{**REQUEST, **request}), method, as_name)


def context(name: str, sets: tuple[str, ...] = ()) -> Context:
    compiled = workflow.validate(name, Flags(**REQUEST, sets=sets)).compiled
    assert compiled is not None
    return compiled.context


def settable(method: str, settings: Mapping[str, Json]) -> tuple[str, ...]:
    known = catalog.method(method).params
    return tuple(f"{name}={text(value)}" for name, value in settings.items() if name in known)


def text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("pair", [("verl", "openrlhf"), ("openrlhf", "verl")])
def test_reinforce_baseline_moves_there_and_back(
    project: api.Project, pair: tuple[str, str], settings: dict[str, Json]
) -> None:
    """Nothing that both methods have is lost, or says something else."""
    first, second = (f"{framework}/reinforce-baseline" for framework in pair)
    project.new("a", first)
    sets = settable(first, settings)
    before = canonical.values(context("a", sets))
    there = ported("a", second, "b", sets=sets)
    assert there.ok, there.findings
    back = ported("b", first, "c")
    after = canonical.values(context("c"))
    both = set(catalog.method(first).params) & set(catalog.method(second).params) - canonical.own_words()
    common = {
        name for name in both if name in before and (before[name].asked or name in canonical.shapes_result())
    }
    assert len(common) > 15
    off = {row.name for row in (*there.rows, *back.rows) if row.how in ("off", "idle")}
    wrong = {
        name: (before[name].value, after[name].value if name in after else None)
        for name in common - off
        if name not in after
        or after[name].value not in (before[name].value, *alike(name, before[name].value))
    }
    assert not wrong
    assert there.steps[0] == there.steps[1] == back.steps[1]
    assert None not in there.steps[0].values()


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("target", ["openrlhf/grpo", "trl/grpo", "nemo-rl/grpo"])
def test_what_is_compared_is_the_same_on_both_sides(
    project: api.Project, target: str, settings: dict[str, Json]
) -> None:
    project.new("a", "verl/grpo")
    made = ported("a", target, "b", sets=settable("verl/grpo", settings))
    assert made.ok, made.findings
    rows = {row.name: row for row in made.rows}
    carried = [name for name in CONTRACT if name in rows and rows[name].how in ("kept", "switch")]
    assert len(carried) >= 12
    assert not [name for name in carried if made.after.get(name) != rows[name].value]
    assert not made.changed
    for word in ("prompts", "answers", "updates"):
        assert made.steps[0][word] == made.steps[1][word] is not None, word


def _native(made: Ported) -> Mapping[str, Any]:
    compiled = workflow.validate(made.path.name, Flags(**REQUEST)).compiled
    assert compiled is not None
    return compiled.context.config


def _openrlhf(config: Mapping[str, Any]) -> dict[str, Any]:
    # openrlhf/trainer/ppo_utils/experience_maker.py and openrlhf/cli/train_ppo_ray.py of 0.11.0: prompts are
    # sampled by rollout.batch_size, each n_samples_per_prompt times; train.batch_size counts answers.
    answers = config["rollout.batch_size"] * config["rollout.n_samples_per_prompt"]
    updates = answers // config["train.batch_size"] * config["train.max_epochs"]
    return {"prompts": config["rollout.batch_size"], "answers": answers, "updates": updates}


def _trl(config: Mapping[str, Any]) -> dict[str, Any]:
    # trl/trainer/grpo_config.py of 1.10.0, GRPOConfig.__post_init__: steps_per_generation is what a
    # generation batch of all processes holds; an optimizer step takes gradient_accumulation_steps of them.
    whole = config["per_device_train_batch_size"] * 8
    steps = config["generation_batch_size"] // whole
    updates = steps // config["gradient_accumulation_steps"] * config["num_iterations"]
    prompts = config["generation_batch_size"] // config["num_generations"]
    return {"prompts": prompts, "answers": config["generation_batch_size"], "updates": updates}


def _nemo(config: Mapping[str, Any]) -> dict[str, Any]:
    # nemo_rl/algorithms/grpo.py of 0.7.0, grpo_train: a step samples num_generations_per_prompt answers to
    # num_prompts_per_step prompts; the policy takes optimizer steps of train_global_batch_size answers.
    answers = config["grpo.num_prompts_per_step"] * config["grpo.num_generations_per_prompt"]
    updates = answers // config["policy.train_global_batch_size"]
    return {"prompts": config["grpo.num_prompts_per_step"], "answers": answers, "updates": updates}


@pytest.mark.parametrize(
    ("target", "counts"), [("openrlhf/grpo", _openrlhf), ("trl/grpo", _trl), ("nemo-rl/grpo", _nemo)]
)
def test_a_step_is_what_the_release_makes_of_it(
    project: api.Project, target: str, counts: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> None:
    """The counts of a step, by the release's own formula over the native keys."""
    project.new("a", "verl/grpo")
    sets = settable("verl/grpo", {"train_batch_size": 128, "mini_batch_size": 32, "rollouts_per_prompt": 4})
    made = ported("a", target, "b", sets=sets)
    assert made.ok, made.findings
    asked = {"prompts": 128, "answers": 512, "updates": 4}
    assert {word: made.steps[0][word] for word in asked} == asked
    assert counts(_native(made)) == asked


def test_shares_of_a_device_shrink_until_they_divide(project: api.Project) -> None:
    """48 answers over 8 devices are 6 each: a share of 6 fits, one of 4 does not."""
    project.new("a", "verl/grpo")
    sets = (
        "train_batch_size=12",
        "mini_batch_size=12",
        "rollouts_per_prompt=4",
        "log_prob_micro_batch_size=6",
    )
    for micro, share in ((6, 6), (4, 2)):
        given = (*sets, f"micro_batch_size={micro}", "dynamic_batching=true", "max_tokens_per_device=8192")
        made = ported("a", "trl/grpo", f"b{micro}", sets=given)
        assert made.ok, made.findings
        config = _native(made)
        assert config["per_device_train_batch_size"] == share
        assert share * config["gradient_accumulation_steps"] == 6


def test_supervised_experiments_move_too(project: api.Project) -> None:
    project.new("a", "trl/sft")
    made = ported(
        "a", "openrlhf/sft", "b", sets=("max_length=1024", "learning_rate=1e-5", "lora=true", "lora_rank=8")
    )
    assert made.ok, made.findings
    assert (made.after["max_length"], made.after["learning_rate"], made.after["lora_rank"]) == (1024, 1e-5, 8)
    assert made.steps[0]["examples"] == made.steps[1]["examples"] is not None


@pytest.mark.parametrize(
    "method", ["trl/dpo", "trl/kto", "trl/grpo", "openrlhf/rm", "nemo-rl/sft", "verl/ppo"]
)
def test_a_method_is_carried_onto_itself(project: api.Project, method: str) -> None:
    project.new("a", method)
    (project.folder.experiments / "a/reward.py").write_text(
        "def reward(completions, **columns):\n    return []\n"
    )
    made = ported("a", method, "b")
    assert made.ok, made.findings
    assert made.steps[0] == made.steps[1] and not made.changed
    assert (made.path / "reward.py").read_text().endswith("return []\n")


def test_what_is_off_stays_off_on_the_way_back(project: api.Project) -> None:
    project.new("a", "verl/grpo")
    assert ported("a", "trl/grpo", "b").ok
    back = ported("b", "verl/grpo", "c")
    assert back.ok, back.findings
    assert "lora_dropout" not in back.after or back.after["lora_rank"] == 0


def test_what_cannot_come_along_is_said(project: api.Project) -> None:
    project.new("a", "verl/grpo")
    config = project.folder.experiments / "a/config.yaml"
    config.write_text(config.read_text() + "algorithm: {use_pf_ppo: true}\n")
    made = ported("a", "nemo-rl/grpo", "b", sets=("ppo_epochs=2",))
    assert "algorithm.use_pf_ppo" in dict(made.left)
    assert [one.message for one in made.findings if one.code == "port-step"] == [
        "updates of a training step: 8 here, 4 there"
    ]
    missing = workflow.port("a", Flags(profile="h200:8"), "openrlhf/grpo", "c")
    assert missing.ok and "request-missing" in {one.code for one in missing.findings}


def test_the_command_prints_both_sides(project: api.Project) -> None:
    project.new("a", "verl/grpo")
    words = ["port", "a", "--method", "openrlhf/grpo", "--as", "b", "--profile", "h200:8", "--model", "org/m"]
    words += ["--train-data", "/d/a.jsonl", "--validation-data", "/d/b.jsonl"]
    done = tp(*words)
    assert done.returncode == 0, done.stderr
    assert "created experiments/b for openrlhf/grpo" in done.stderr
    assert "rollouts_per_prompt" in done.stdout and "answers" in done.stdout
    again = tp(*words, "--json")
    assert again.returncode == 3 and json.loads(again.stdout)["error"]["code"] == "experiment-exists"
    document = json.loads(tp(*words[:5], "c", *words[6:], "--json").stdout)
    assert document["ok"] and document["step"]["from"] == document["step"]["to"]
    assert {row["name"]: row["to"] for row in document["parameters"]}["rollouts_per_prompt"] == 8


def test_what_cannot_be_carried_is_refused(project: api.Project) -> None:
    project.new("a", "verl/grpo")
    with pytest.raises(NotFound):
        ported("a", "verl/nothing", "b")
    with pytest.raises(Invalid, match="a has errors"):
        ported("a", "openrlhf/grpo", "b", sets=("rollouts_per_prompt=0",))
    (project.folder.experiments / "a/config.yaml").write_text("data: {train_batch_siz: 8}\n")
    with pytest.raises(Invalid) as caught:
        ported("a", "openrlhf/grpo", "b")
    assert "key-unknown" in {finding.code for finding in caught.value.findings}
    assert not (project.folder.experiments / "b").exists()


def test_a_term_that_stays_behind_is_a_warning(project: api.Project) -> None:
    project.new("a", "verl/grpo")
    reward = ("use_kl_in_reward=true", "kl_coef=0.01", "use_kl_loss=false")
    lost = [one for one in ported("a", "nemo-rl/grpo", "b", sets=reward).findings if one.code == "port-lost"]
    assert [(one.key, one.severity) for one in lost] == [("kl_coef", "warning")]
    plain = ported("a", "nemo-rl/grpo", "c", sets=("use_kl_loss=true", "kl_loss_coef=0.01"))
    assert "port-lost" not in {one.code for one in plain.findings}


def test_what_only_the_other_side_has_is_told_to_do_nothing(project: api.Project) -> None:
    project.new("a", "trl/grpo")
    assert "kl_coef" not in canonical.values(context("a"))
    made = ported("a", "openrlhf/grpo", "b")
    assert (made.after["kl_coef"], made.after["min_lr_ratio"]) == (0, 0)


def warned(made: Ported, code: str) -> dict[str, str]:
    return {one.key: f"{one.message}; {one.hint}" for one in made.findings if one.code == code}


@pytest.mark.parametrize("target", ["openrlhf/grpo", "trl/grpo", "verl/grpo"])
def test_a_schedule_that_only_the_target_decides_is_told(project: api.Project, target: str) -> None:
    """A list of schedulers that no words of the vocabulary make: this one ends above 0."""
    project.new("a", "nemo-rl/grpo")
    ends = {"name": "torch.optim.lr_scheduler.CosineAnnealingLR", "kwargs": {"T_max": 100, "eta_min": 1e-7}}
    schedulers = {"policy": {"scheduler": [ends, {"milestones": []}]}}
    (Path.cwd() / "experiments/a/config.yaml").write_text(json.dumps(schedulers), "utf-8")
    found = warned(ported("a", target, "b"), "port-default")
    assert (
        set(found) == {"lr_schedule"} and "`policy.scheduler` of nemo-rl/grpo says it" in found["lr_schedule"]
    )
    given = ported("b", target, "c", sets=("lr_schedule=cosine",))
    assert "port-default" not in {one.code for one in given.findings}


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ((), {"lr_schedule": "constant", "warmup_steps": 50}),  # as the release's own file has it
        (("lr_schedule=constant",), {"lr_schedule": "constant"}),
        (
            ("lr_schedule=cosine", "warmup_steps=10", "max_steps=100"),
            {"lr_schedule": "cosine", "warmup_steps": 10},
        ),
        (
            ("lr_schedule=linear", "warmup_steps=1", "max_steps=9"),
            {"lr_schedule": "linear", "warmup_steps": 1},
        ),
    ],
)
def test_a_list_of_schedulers_is_read_where_words_make_the_same(
    project: api.Project, sets: tuple[str, ...], says: dict[str, Json]
) -> None:
    project.new("a", "nemo-rl/grpo")
    said = canonical.values(context("a", sets))
    assert {name: said[name].value for name in ("lr_schedule", "warmup_steps") if name in said} == says
    made = ported("a", "verl/grpo", "b", sets=sets)
    assert {name: made.after[name] for name in says} == says
    assert not warned(made, "port-default")


def test_the_two_halves_of_one_key_come_along(project: api.Project) -> None:
    project.new("a", "nemo-rl/grpo")
    made = ported("a", "openrlhf/grpo", "b", sets=("adam_beta1=0.8", "adam_beta2=0.9"))
    assert (made.after["adam_beta1"], made.after["adam_beta2"]) == (0.8, 0.9)
    back = ported("b", "trl/grpo", "c")
    assert (back.after["adam_beta1"], back.after["adam_beta2"]) == (0.8, 0.9)


@pytest.mark.parametrize("version", ["0.9.0", "0.9.1"])
@pytest.mark.parametrize(
    ("method", "key", "target", "becomes"),
    [
        ("grpo", "actor_rollout_ref.actor.optim.betas", "openrlhf/grpo", "actor.adam.betas"),
        ("ppo", "actor_rollout_ref.actor.optim.betas", "openrlhf/ppo", "actor.adam.betas"),
        ("sft", "optim.betas", "openrlhf/sft", "adam.betas"),
        ("sft", "optim.betas", "nemo-rl/sft", "policy.optimizer.kwargs.betas"),
    ],
)
def test_the_averages_of_adam_come_along_from_defaults_and_native_keys(
    project: api.Project, version: str, method: str, key: str, target: str, becomes: str
) -> None:
    """verl/workers/config/optimizer.py, OptimizerConfig: 0.9 and 0.999, where others have 0.95."""
    parquet = {"train_data": "/data/train.parquet", "validation_data": "/data/test.parquet"}
    project.new("a", f"verl/{method}", version)
    assert _native(ported("a", target, "b", **parquet))[becomes] == [0.9, 0.999]
    config = project.folder.experiments / "a/config.yaml"
    config.write_text(f"{config.read_text()}\n{key}: [0.8, 0.95]\n")
    made = ported("a", target, "c", **parquet)
    assert _native(made)[becomes] == [0.8, 0.95] and key not in dict(made.left)
    back = workflow.port("c", Flags(**{**REQUEST, **parquet}), f"verl/{method}", "d", version)
    assert _native(back)[key] == [0.8, 0.95]


def test_a_rise_that_stays_behind_is_told(project: api.Project) -> None:
    project.new("a", "trl/grpo")
    found = warned(ported("a", "openrlhf/grpo", "b", sets=("warmup_steps=7",)), "port-default")
    assert set(found) == {"warmup_ratio"} and "`warmup_steps` 7 stays behind" in found["warmup_ratio"]


@pytest.mark.parametrize(
    ("source", "target", "word", "becomes"),
    [
        ("verl", "openrlhf", "low_var_kl", "k3"),
        ("verl", "openrlhf", "k2", "k2"),
        ("verl", "nemo-rl", "mse", "k2"),
        ("openrlhf", "verl", "k3", "k3"),
        ("nemo-rl", "openrlhf", "k2", "k2"),
    ],
)
def test_one_estimator_goes_by_the_word_of_each(
    project: api.Project, source: str, target: str, word: str, becomes: str
) -> None:
    """verl/trainer/ppo/core_algos.py, kl_penalty_forward; openrlhf/models/utils.py, compute_approx_kl;
    nemo_rl/algorithms/utils.py, calculate_kl: three formulas, and two words for each of them in one."""
    project.new("a", f"{source}/grpo")
    sets = settable(f"{source}/grpo", {"use_kl_loss": True, "kl_loss_coef": 0.01, "kl_loss_type": word})
    made = ported("a", f"{target}/grpo", "b", sets=sets)
    assert made.ok, made.findings
    assert made.after["kl_loss_type"] == becomes and not made.changed
    (row,) = (row for row in made.rows if row.name == "kl_loss_type")
    assert (row.how, row.word if row.word is not None else row.value) == ("kept", word)


def test_an_estimator_that_only_one_has_is_told(project: api.Project) -> None:
    project.new("a", "verl/grpo")
    sets = ("use_kl_loss=true", "kl_loss_coef=0.01", "kl_loss_type=abs")
    (row,) = (row for row in ported("a", "openrlhf/grpo", "b", sets=sets).rows if row.name == "kl_loss_type")
    assert row.how == "out of range" and "abs" in row.why


@pytest.mark.parametrize(
    ("source", "sets", "says"),
    [
        ("trl/grpo", ("max_steps=200", "train_batch_size=32"), "200 steps x 32 prompts = 6,400 rows"),
        ("trl/dpo", ("max_steps=50", "batch_size=64"), "50 steps x 64 examples = 3,200 rows"),
    ],
)
def test_steps_that_the_target_does_not_count_are_told_in_rows(
    project: api.Project, source: str, sets: tuple[str, ...], says: str
) -> None:
    """OpenRLHF ends by epochs alone: openrlhf/cli/train_dpo.py; trainer/ppo_trainer.py, prepare_datasets."""
    project.new("a", source)
    made = ported("a", f"openrlhf/{source.partition('/')[2]}", "b", sets=sets)
    lost = warned(made, "port-lost")["max_steps"]
    rows = says.rpartition("= ")[2].removesuffix(" rows")
    assert says in lost and f"max_samples {rows.replace(',', '')} and epochs 1" in lost
    kept = ported("a", "verl/grpo", "c") if source.endswith("grpo") else ported("a", "nemo-rl/dpo", "c")
    assert "max_steps" not in warned(kept, "port-lost")


def test_steps_of_another_kind_are_told(project: api.Project) -> None:
    """transformers/trainer.py counts optimizer steps, verl/trainer/ppo/v1/trainer_base.py training steps."""
    project.new("a", "trl/grpo")
    sets = ("max_steps=200", "train_batch_size=64", "mini_batch_size=16")
    said = warned(ported("a", "verl/grpo", "b", sets=sets), "port-step")
    assert set(said) == {"max_steps", "warmup_steps"}
    assert "makes 4: 200 of the first are 50 of the other" in said["max_steps"]
    assert (
        "200 of the first are 800 of the other"
        in warned(ported("b", "trl/grpo", "c"), "port-step")["max_steps"]
    )
    assert "max_steps" not in warned(ported("b", "nemo-rl/grpo", "d"), "port-step")
    one = ported("a", "verl/grpo", "e", sets=("max_steps=200",))
    assert "port-step" not in {finding.code for finding in one.findings}


def test_openrlhf_counts_the_steps_that_verl_counts(project: api.Project) -> None:
    """openrlhf/trainer/ppo_trainer.py, BasePPOTrainer.train_step: one more for each batch of rollouts,
    however many optimizer steps it makes; eval.steps, ckpt.save_steps and logger.logging_steps go by it."""
    project.new("a", "verl/grpo")
    sets = ("train_batch_size=64", "mini_batch_size=16", "eval_every=10", "save_every=20")
    there = ported("a", "openrlhf/grpo", "b", sets=sets)
    back = ported("b", "verl/grpo", "c")
    for made in (there, back):
        assert made.steps[0]["updates"] == made.steps[1]["updates"] == 4
        assert (made.after["eval_every"], made.after["save_every"]) == (10, 20)
        assert not warned(made, "port-step")
    said = warned(ported("b", "trl/grpo", "d", sets=("log_every=5",)), "port-step")
    assert set(said) >= {"eval_every", "save_every", "log_every"}
    assert "10 of the first are 40 of the other" in said["eval_every"]


def test_a_whole_number_is_written_as_one(project: api.Project) -> None:
    project.new("a", "trl/grpo")
    made = ported("a", "verl/grpo", "b")
    assert repr(made.after["epochs"]) == "3"
    assert "key-type" not in {one.code for one in made.findings}


def test_what_measures_and_what_trains_have_nothing_to_carry(project: api.Project) -> None:
    project.new("a", "verl/grpo")
    project.new("e", "evalkit/benchmark")
    for name, method in (("e", "verl/grpo"), ("a", "evalkit/benchmark")):
        with pytest.raises(Invalid, match="measures a finished model") as raised:
            flags = Flags(model="org/model", sets=("tasks=[gsm8k]",)) if name == "e" else Flags(**REQUEST)
            workflow.port(name, flags, method, "z")
        assert raised.value.code == "port-kind"
    assert not (project.folder.experiments / "z").exists()


@pytest.mark.parametrize("value", [2**63, 10**400, -(2**64)])
def test_a_number_that_nothing_holds_is_refused(project: api.Project, value: int) -> None:
    project.new("a", "trl/grpo")
    found = workflow.validate("a", Flags(**REQUEST, sets=(f"train_batch_size={value}",))).findings
    assert [one.code for one in found if one.severity == "error"] == ["param-value"]


def test_a_batch_that_is_not_whole_is_said_once(project: api.Project) -> None:
    project.new("a", "trl/grpo")
    sets = ("train_batch_size=64", "rollouts_per_prompt=8", "mini_batch_size=3")
    found = workflow.validate("a", Flags(**REQUEST, sets=sets)).findings
    assert [one.code for one in found if one.severity == "error"] == ["param-fraction"]


def tp(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tuneport", *words], capture_output=True, text=True, check=False
    )
