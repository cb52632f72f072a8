"""The adapter: engines, reward functions, pools, places of files, Ray, export. No framework is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tuneport.compiler.compile import Compiled
from tuneport.registry.plugins import Hooks
from tuneport.testing import FrameworkTests
from tuneport.types import FileSpec, Finding, LaunchPlan, Location, Ref, Value
from tuneport_verl import correction, memory

HERE = Path(__file__).parent
DATA = {"train_data": "/data/train.parquet", "validation_data": "/data/test.parquet"}
RL = {"model": "org/model", **DATA, "profile": "h200:8"}
POOLS = str(HERE / "two-pools.yaml")


class TestVerl(FrameworkTests):
    framework = "verl"
    requests: ClassVar[dict[str, dict[str, Any]]] = {
        "verl/grpo": RL,
        "verl/dapo": RL,
        "verl/ppo": RL,
        "verl/rloo": RL,
        "verl/reinforce-baseline": RL,
        "verl/remax": RL,
        "verl/policy-gradient": RL,
        "verl/distillation": {
            "model": "org/model",
            **DATA,
            "resources": POOLS,
            "fleet": "cluster",
            "set": {"teacher_model": "org/teacher"},
        },
        "verl/sft": {**RL, "profile": "h200:16"},
    }
    golden = HERE / "golden"


def launched(compiled: Compiled) -> LaunchPlan:
    return Hooks("verl").launch(compiled.context)


def argv(compiled: Compiled) -> tuple[Value, ...]:
    return launched(compiled).commands[0].argv


def said(compiled: Compiled, severity: str = "error") -> list[str]:
    return [finding.code for finding in compiled.findings if finding.severity == severity]


def about(compiled: Compiled, code: str) -> Finding:
    (found,) = [finding for finding in compiled.findings if finding.code == code]
    return found


# --- engines


@pytest.mark.parametrize("engine", ["fsdp", "fsdp2"])
def test_the_two_forms_of_fsdp_share_a_configuration(workshop: Any, engine: str) -> None:
    config = workshop.compile("verl/ppo", set={"engine": engine}).context.config
    assert config["model_engine"] == "dp"
    assert config["actor_rollout_ref.actor.strategy"] == config["critic.strategy"] == engine


def test_an_engine_is_a_group_choice_with_its_own_keys(workshop: Any) -> None:
    words = argv(workshop.compile(set={"engine": "megatron", "tensor_parallel_size": 2, "lora_rank": 8}))
    assert words[3] == "model_engine=megatron"
    assert "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2" in words
    assert "actor_rollout_ref.model.lora.rank=8" in words
    assert not [word for word in words if isinstance(word, str) and "fsdp_config" in word]


def test_an_engine_may_be_chosen_in_the_configuration(workshop: Any) -> None:
    files = {"config.yaml": "model_engine: megatron\n" + MINIMAL}
    words = argv(workshop.compile(files=files, set={"param_offload": True}))
    assert "actor_rollout_ref.actor.megatron.param_offload=true" in words


def test_a_parameter_that_an_engine_cannot_do_is_refused(workshop: Any) -> None:
    found = about(
        workshop.compile(set={"engine": "fsdp2", "tensor_parallel_size": 2}), "verl-engine-parameter"
    )
    assert (found.key, found.message) == (
        "tensor_parallel_size",
        "tensor_parallel_size means nothing where engine is fsdp2",
    )
    for method in ("verl/grpo", "verl/sft"):  # of which the configuration says `dp`, and `fsdp`
        unsaid = about(workshop.compile(method, set={"tensor_parallel_size": 2}), "verl-engine-parameter")
        assert unsaid.message == "tensor_parallel_size means nothing where engine is fsdp"


def test_sft_takes_engine_and_optimizer_together(workshop: Any) -> None:
    words = argv(workshop.compile("verl/sft", set={"engine": "megatron", "lr_schedule": "cosine"}))
    assert {"engine=megatron", "optim=megatron", "optim.lr_decay_style='cosine'"} <= set(words)


def test_recomputing_activations_is_said_in_the_words_of_the_engine(workshop: Any) -> None:
    words = argv(workshop.compile(set={"engine": "megatron", "gradient_checkpointing": True}))
    prefix = "+actor_rollout_ref.actor.megatron.override_transformer_config.recompute_"
    assert {f"{prefix}granularity='full'", f"{prefix}method='uniform'", f"{prefix}num_layers=1"} <= {
        "+" + word.lstrip("+") for word in words if isinstance(word, str)
    }


# --- parameters that are more than one key


@pytest.mark.parametrize("names", [("clip_ratio", "clip_ratio_high"), ("clip_ratio_high", "clip_ratio")])
def test_the_order_of_parameters_does_not_decide_who_wins(workshop: Any, names: tuple[str, str]) -> None:
    given = {"clip_ratio": 0.1, "clip_ratio_high": 0.28}
    own = workshop.compile(set={name: given[name] for name in names}).context.own
    bounds = [own[f"actor_rollout_ref.actor.clip_ratio{side}"] for side in ("", "_low", "_high")]
    assert bounds == [0.1, 0.1, 0.28]


def test_a_reward_model_brings_its_switch_and_its_server(workshop: Any) -> None:
    compiled = workshop.compile(set={"reward_model": "org/judge"})
    config = compiled.context.config
    assert config["reward.reward_model.enable"] is True
    assert config["reward.reward_model.model_path"] == "org/judge"
    assert config["reward.reward_model.rollout.name"] == "vllm"


def test_several_turns_bring_the_loop_that_calls_tools(workshop: Any) -> None:
    config = workshop.compile(set={"multi_turn": True}).context.config
    assert config["actor_rollout_ref.rollout.agent.default_agent_loop"] == "tool_agent"
    config = workshop.compile(set={"multi_turn": True, "agent_loop": "mine"}).context.config
    assert config["actor_rollout_ref.rollout.agent.default_agent_loop"] == "mine"


@pytest.mark.parametrize("engine", ["fsdp", "veomni", "torchtitan"])
@pytest.mark.parametrize(
    ("given", "both"),
    [({"adam_beta1": 0.8}, [0.8, 0.999]), ({"adam_beta1": 0.8, "adam_beta2": 0.95}, [0.8, 0.95])],
)
def test_the_averages_of_adam_share_a_key(
    workshop: Any, engine: str, given: dict[str, float], both: list[float]
) -> None:
    for method, prefix in (("verl/ppo", "actor_rollout_ref.actor."), ("verl/sft", "")):
        compiled = workshop.compile(method, set={"engine": engine, **given})
        assert compiled.context.config[f"{prefix}optim.betas"] == both
        if prefix:
            assert compiled.context.config["critic.optim.betas"] == [0.9, 0.999]


def test_megatron_reads_the_averages_of_adam_elsewhere(workshop: Any) -> None:
    for method, prefix in (("verl/grpo", "actor_rollout_ref.actor."), ("verl/sft", "")):
        compiled = workshop.compile(method, set={"engine": "megatron", "adam_beta2": 0.95})
        config = compiled.context.config
        assert not said(compiled)
        assert config[f"{prefix}optim.override_optimizer_config.adam_beta2"] == 0.95
        assert config[f"{prefix}optim.betas"] == [0.9, 0.999]
        words = [word for word in argv(compiled) if isinstance(word, str)]
        assert f"+{prefix}optim.override_optimizer_config.adam_beta2=0.95" in words


def test_resuming_from_a_place_is_a_mode_of_its_own(workshop: Any) -> None:
    config = workshop.compile(set={"resume_from": "/out/global_step_20"}).context.config
    assert config["trainer.resume_mode"] == "resume_path"


def test_warm_up_by_steps_and_by_share_is_one_too_many(workshop: Any) -> None:
    compiled = workshop.compile(set={"warmup_steps": 5, "warmup_ratio": 0.1})
    assert about(compiled, "verl-warmup-twice").key == "warmup_ratio"
    assert "verl-warmup-twice" in said(compiled, "warning")


@pytest.mark.parametrize("engine", ["fsdp", "fsdp2", "megatron", "torchtitan", "automodel"])
def test_rules_read_what_is_in_the_groups_that_an_engine_chooses(workshop: Any, engine: str) -> None:
    compiled = workshop.compile(
        "verl/sft", set={"engine": engine, "warmup_steps": 5, "warmup_ratio": 0.1, "optimizer": "Nonesuch"}
    )
    assert about(compiled, "verl-warmup-twice").key == "warmup_ratio"
    assert ("verl-sft-optimizer-unknown" in said(compiled)) == (engine in ("fsdp", "fsdp2"))


@pytest.mark.parametrize("set_", [{"warmup_steps": 0}, {"warmup_steps": 5, "engine": "veomni"}])
def test_no_steps_leave_the_share_as_it_is_and_one_engine_reads_nothing_else(
    workshop: Any, set_: dict[str, Any]
) -> None:
    for method in ("verl/grpo", "verl/sft"):
        compiled = workshop.compile(method, set={"warmup_ratio": 0.1, **set_})
        assert "verl-warmup-twice" not in said(compiled, "warning")


def test_the_critic_starts_from_the_model_unless_another_is_named(workshop: Any) -> None:
    assert workshop.compile("verl/ppo").context.config["critic.model.path"] == "org/model"
    files = {"config.yaml": MINIMAL + "critic: {model: {path: org/critic}}\n"}
    assert workshop.compile("verl/ppo", files=files).context.config["critic.model.path"] == "org/critic"


# --- data, files and old names

MINIMAL = """
data: {train_batch_size: 64, max_prompt_length: 512}
actor_rollout_ref:
  actor: {ppo_mini_batch_size: 64, ppo_micro_batch_size_per_gpu: 4}
  rollout: {name: vllm, log_prob_micro_batch_size_per_gpu: 8, tensor_model_parallel_size: 1}
"""
REWARD = (
    "def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):\n    return 1.0\n"
)


def test_a_declared_dataset_is_not_passed_on(workshop: Any) -> None:
    files = {"config.yaml": MINIMAL.replace("data: {", "data: {train: {dataset: me/gsm8k@abc}, ")}
    compiled = workshop.compile(files=files, train_data=None)
    assert not [code for code in said(compiled) if code.startswith("key-")]
    assert not [word for word in argv(compiled) if isinstance(word, str) and "dataset" in word]


def test_all_of_a_dataset_version_is_validation_data(workshop: Any) -> None:
    text = MINIMAL.replace("data: {", "data: {validation: {dataset: me/gsm8k@abc}, ")
    compiled = workshop.compile(files={"config.yaml": text}, validation_data=None)
    assert "verl-validation-data" not in said(compiled, "warning")
    without = workshop.compile(files={"config.yaml": MINIMAL}, validation_data=None)
    assert "verl-validation-data" in said(without, "warning")


def test_the_experiments_own_entry_point_is_run(workshop: Any) -> None:
    words = argv(workshop.compile(files={"main.py": "print(1)\n"}))
    assert words[:2] == (Ref("python"), "main.py")
    assert not [word for word in words if word == "-m"]


def test_tensorboard_is_added_and_other_loggers_are_kept(workshop: Any) -> None:
    assert "trainer.logger=['console','tensorboard']" in argv(workshop.compile())
    compiled = workshop.compile(set={"loggers": ["console", "wandb"]})
    assert "trainer.logger=['console','wandb','tensorboard']" in argv(compiled)


@pytest.mark.parametrize("release", ["0.9.0", "0.9.1"])
@pytest.mark.parametrize(
    ("section", "new"),
    [
        ("custom_reward_function: {path: reward.py}", "reward.custom_reward_function.path"),
        ("reward: {custom_reward_function: {path: reward.py}}", "reward.custom_reward_function.path"),
    ],
)
def test_a_reward_function_is_written_where_the_release_reads_it(
    workshop: Any, release: str, section: str, new: str
) -> None:
    files = {"config.yaml": f"{MINIMAL}{section}\n", "reward.py": REWARD}
    compiled = workshop.compile(release=release, files=files)
    assert not said(compiled)
    assert compiled.context.config[new] == Ref("work_dir", "/reward.py")
    assert Ref("work_dir", "/reward.py'", prefix=f"{new}='", plain=True) in argv(compiled)


def test_a_missing_file_of_the_experiment_is_said(workshop: Any) -> None:
    files = {"config.yaml": f"{MINIMAL}reward: {{custom_reward_function: {{path: rewards.py}}}}\n"}
    found = about(workshop.compile(files=files), "verl-file-missing")
    assert (found.key, found.line) == ("reward.custom_reward_function.path", 6)


# --- the reward function


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (REWARD, ""),
        ("def compute_score(data_source, solution_str, ground_truth, extra_info): ...", ""),
        ("def compute_score(**kwargs): ...", ""),
        ("async def compute_score(data_source, solution_str, ground_truth, extra_info=None): ...", ""),
        ("@cached\ndef compute_score(x): ...", ""),
        ("compute_score = partial(score, 1)", ""),
        ("from lib import *", ""),
        ("def compute_score(solution_str, ground_truth): ...", "verl-reward-signature"),
        ("def compute_score(data, answer, truth, extra_info=None, **kwargs): ...", "verl-reward-signature"),
        (REWARD.replace("data_source,", "data_source, /,"), "verl-reward-signature"),
        ("def score(**kwargs): ...", "verl-reward-name"),
        ("def compute_score(", "verl-reward-syntax"),
    ],
)
def test_the_signature_of_a_reward_function(workshop: Any, text: str, code: str) -> None:
    files = {
        "config.yaml": f"{MINIMAL}reward: {{custom_reward_function: {{path: reward.py}}}}\n",
        "reward.py": text,
    }
    found = workshop.compile(files=files).findings
    assert [one.code for one in found if one.code.startswith("verl-reward")] == ([code] if code else [])


def test_a_reward_model_adds_two_arguments(workshop: Any) -> None:
    plain = "def compute_score(data_source, solution_str, ground_truth, extra_info=None): ..."
    files = {
        "config.yaml": f"{MINIMAL}reward: {{custom_reward_function: {{path: reward.py}}}}\n",
        "reward.py": plain,
    }
    compiled = workshop.compile(files=files, set={"reward_model": "org/judge"})
    assert "reward_router_address" in about(compiled, "verl-reward-signature").message


# --- rollout correction


@pytest.mark.parametrize("threshold", [2, 2.5, "2.0", "0.5_5.0", "1e-1_1e1", " 3 "])
def test_thresholds_of_weights_that_the_release_takes(threshold: Any) -> None:
    assert not correction.weight_problem(threshold)


@pytest.mark.parametrize(
    "threshold", ["", "high", "0.5-5.0", "5_0.5", "0_2", "-1", 0, True, [1, 2], "_2", None, "nan"]
)
def test_thresholds_of_weights_that_it_refuses(threshold: Any) -> None:
    assert correction.weight_problem(threshold)


@pytest.mark.parametrize(
    ("names", "threshold"),
    [
        (["token_k1"], "0.5_2.0"),
        (["token_k1"], 2.0),
        (["token_k1", "seq_max_k2"], "0.6_1.6,2.5"),
        (["seq_mean_k3", "token_k2"], "0.1"),
    ],
)
def test_bounds_of_rejection_that_the_release_takes(names: list[str], threshold: Any) -> None:
    assert not correction.rejection_problem(names, threshold)


@pytest.mark.parametrize(
    ("names", "threshold"),
    [
        (["token_k2"], "0.5_2.0"),
        (["token_k1"], "2.0_0.5"),
        (["token_k1"], 0.5),
        (["token_k1", "seq_max_k2", "token_k2"], "1,2"),
        (["token_k1"], "wide"),
        (["token_k3"], -1),
        (["token_k3"], True),
    ],
)
def test_bounds_of_rejection_that_it_refuses(names: list[str], threshold: Any) -> None:
    assert correction.rejection_problem(names, threshold)


@pytest.mark.parametrize(
    ("asked", "code", "key"),
    [
        ({"rollout_is": "token", "rollout_is_threshold": "high"}, "param-value", "rollout_is_threshold"),
        (
            {"rollout_is": "token", "rollout_is_threshold": "5_0.5"},
            "verl-correction-threshold",
            "rollout_is_threshold",
        ),
        ({"rollout_rs": "token_k9", "rollout_rs_threshold": "1"}, "param-value", "rollout_rs"),
        (
            {"rollout_rs": "token_k2", "rollout_rs_threshold": "1_2"},
            "verl-rejection-bounds",
            "rollout_rs_threshold",
        ),
    ],
)
def test_what_is_wrong_with_rollout_correction_names_the_parameter(
    workshop: Any, asked: dict[str, Any], code: str, key: str
) -> None:
    assert about(workshop.compile(set=asked), code).key == key


def test_an_unknown_measure_in_the_configuration_is_named(workshop: Any) -> None:
    section = "algorithm: {rollout_correction: {rollout_rs: token_k9, rollout_rs_threshold: 2.0}}\n"
    found = about(workshop.compile(files={"config.yaml": MINIMAL + section}), "verl-rejection-measure")
    assert found.key == "algorithm.rollout_correction.rollout_rs"


# --- pools, nodes and Ray


def test_one_node_needs_no_cluster(workshop: Any) -> None:
    (command,) = launched(workshop.compile()).commands
    assert not command.files
    assert "trainer.nnodes" not in " ".join(str(word) for word in command.argv)


def test_several_nodes_run_in_a_cluster_of_their_own(workshop: Any) -> None:
    (command,) = launched(workshop.compile(profile="h200:16")).commands
    assert command.argv[:4] == (Ref("python"), "tuneport-cluster.py", "2", Ref("node_rank"))
    assert command.argv[6:9] == ("--", "-m", "verl.trainer.main_ppo")
    assert "trainer.nnodes=2" in command.argv
    script = command.files["tuneport-cluster.py"]
    assert isinstance(script, FileSpec)
    compile(script.content, "tuneport-cluster.py", "exec")


def test_the_teacher_has_a_pool_of_its_own(workshop: Any) -> None:
    asked = {"teacher_model": "org/teacher"}
    compiled = workshop.compile("verl/distillation", resources=POOLS, fleet="cluster", set=asked)
    assert not said(compiled)
    assert compiled.context.config["distillation.nnodes"] == 1
    assert compiled.context.config["distillation.n_gpus_per_node"] == 4
    commands = launched(compiled).commands
    assert [(command.role, command.pool) for command in commands] == [
        ("actor", "training"),
        ("teacher", "teaching"),
    ]
    assert commands[0].argv[2] == "2"


TEACHER = (
    "{key: %s, model_path: org/t, num_replicas: %d, inference: {name: vllm, tensor_model_parallel_size: %d}}"
)


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (("a", 1, 2), ("b", 2, 1), ""),
        (("a", 1, 2), ("b", 1, 1), "verl-teachers-share"),
        (("a", 0, 2), ("b", 2, 2), ""),
        (("a", 1, 2), ("a", 2, 1), "verl-teachers-alike"),
    ],
)
def test_several_teachers_fill_their_pool(workshop: Any, first: Any, second: Any, code: str) -> None:
    teachers = f"{{one: {TEACHER % first}, two: {TEACHER % second}}}"
    files = {"config.yaml": MINIMAL + f"distillation: {{teacher_models: {teachers}}}\n"}
    compiled = workshop.compile("verl/distillation", files=files, resources=POOLS, fleet="cluster")
    found = [one for one in said(compiled) if one.startswith("verl-teachers")]
    assert found == ([code] if code else [])


def test_a_teacher_on_the_trainers_gpus_is_refused(workshop: Any) -> None:
    compiled = workshop.compile("verl/distillation", set={"teacher_model": "org/teacher"})
    assert "verl-teacher-pool" in said(compiled)


def test_roles_of_the_trainer_belong_together(workshop: Any, tmp_path: Path) -> None:
    pools = [{"name": name, "series": "h200", "nodes": 1, "gpus_per_node": 8} for name in ("a", "b")]
    roles = {"actor": "a", "rollout": "b", "reference": "a"}
    path = tmp_path / "pools.yaml"
    path.write_text(json.dumps({"pools": pools, "roles": roles}), "utf-8")
    compiled = workshop.compile(resources=str(path), fleet="cluster")
    assert "verl-roles-apart" in said(compiled)


def test_devices_that_are_hidden_are_missed(workshop: Any) -> None:
    compiled = workshop.compile(
        files={"job.yaml": "env: {CUDA_VISIBLE_DEVICES: '0,1'}\n"},
    )
    assert "verl-devices-visible" in said(compiled)


# --- arithmetic and memory


def facts(tmp_path: Path, **known: Any) -> str:
    path = tmp_path / "facts.yaml"
    path.write_text(json.dumps(known), "utf-8")
    return str(path)


def test_the_arithmetic_of_a_run_is_said(workshop: Any, tmp_path: Path) -> None:
    compiled = workshop.compile(facts=facts(tmp_path, data={"train": {"rows": 7473}}))
    assert "256 prompts x 8 answers = 2048 sequences" in about(compiled, "verl-sequences").message
    assert "29 steps an epoch; the run makes 435" in about(compiled, "verl-steps").message


def test_warm_up_that_outlasts_the_run(workshop: Any, tmp_path: Path) -> None:
    known = facts(tmp_path, data={"train": {"rows": 256}})
    assert "verl-warmup-endless" in said(workshop.compile(facts=known, set={"warmup_steps": 15}), "warning")
    assert not said(workshop.compile(facts=known, set={"warmup_steps": 14}), "warning")


@pytest.mark.parametrize(
    ("release", "packages", "outside"),
    [
        ("0.9.0", {"vllm": "0.18.0", "transformers": "5.5.4", "torch": "2.9.0"}, []),
        (
            "0.9.0",
            {"vllm": "0.17.1", "transformers": "5.6.0", "ray": "2.40.0"},
            ["vllm", "transformers", "ray"],
        ),
        ("0.9.1", {"vllm": "0.24.0", "torch": "2.11.0+cu130"}, []),
        ("0.9.1", {"vllm": "0.25.0", "torch": "nightly"}, ["vllm"]),
    ],
)
def test_versions_that_are_declared(
    workshop: Any, tmp_path: Path, release: str, packages: dict[str, str], outside: list[str]
) -> None:
    compiled = workshop.compile(release=release, facts=facts(tmp_path, env={"packages": packages}))
    found = [one.key for one in compiled.findings if one.code == "verl-package-version"]
    assert sorted(found) == sorted(f"env.packages.{name}" for name in outside)


QWEN = {
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
}


def test_parameters_are_counted_from_the_shape() -> None:
    assert memory.parameter_count(QWEN) == pytest.approx(7.6e9, rel=0.01)
    assert memory.parameter_count({"parameters": 5}) == 5
    assert memory.parameter_count({**QWEN, "num_experts": 8}) == 0
    assert memory.parameter_count({}) == 0


def test_a_model_that_cannot_fit_is_said_with_the_sums(workshop: Any, tmp_path: Path) -> None:
    known = facts(tmp_path, model=QWEN)
    found = about(workshop.compile(profile="h100:1", facts=known), "verl-memory")
    assert found.severity == "warning"
    assert "weights" in found.message
    assert "optimizer" in found.message
    assert about(workshop.compile(profile="h200:8", facts=known), "verl-memory").severity == "note"
    tuned = about(workshop.compile("verl/sft", profile="h100:1", facts=known), "verl-memory")
    assert tuned.severity == "warning"
    assert "gpu_memory_utilization" not in tuned.hint, "nothing is generated"


@pytest.mark.parametrize(
    ("settings", "sums"),
    [
        # 7.6e9 parameters over 8 GPUs in full precision: 3.5 GiB of weights, as much of gradients, twice of
        # moments; the reference like the weights; 4 sequences of 1024 tokens over 152064 words.
        ({}, "weights 3.5 + gradients 3.5 + optimizer 7.1 + reference 3.5 + logits 2.3"),
        ({"lora_rank": 8}, "weights 3.5 + logits 2.3"),
        # Half precision over 2 tensor ranks; gradients in full precision; 12 bytes of states over all 8.
        (
            {"engine": "megatron", "tensor_parallel_size": 2},
            "weights 7.1 + gradients 14.2 + optimizer 10.6 + reference 7.1 + logits 1.2",
        ),
        ({"engine": "veomni"}, "weights 1.8 + gradients 1.8 + optimizer 3.5 + reference 1.8 + logits 2.3"),
    ],
)
def test_memory_is_reckoned_for_each_engine(
    workshop: Any, tmp_path: Path, settings: dict[str, Any], sums: str
) -> None:
    known = facts(tmp_path, model=QWEN)
    chosen = {"gpu_memory_utilization": 0.01, "use_kl_loss": True, **settings}
    assert sums in about(workshop.compile(profile="h100:8", facts=known, set=chosen), "verl-memory").message


# --- export


def exported(compiled: Compiled, format: str) -> LaunchPlan:  # noqa: A002
    return Hooks("verl").export(compiled.context, Location("path", "/out/run"), format)


@pytest.mark.parametrize("backend", ["fsdp", "megatron"])
def test_a_checkpoint_is_merged_by_the_release(workshop: Any, backend: str) -> None:
    (command,) = exported(workshop.compile(), f"verl-{backend}").commands
    assert command.env["TUNEPORT_BACKEND"] == backend
    assert command.env["TUNEPORT_CHECKPOINT"] == "/out/run"
    assert "TUNEPORT_TRUST_REMOTE_CODE" not in command.env


def test_code_of_the_model_is_trusted_where_it_was_for_training(workshop: Any) -> None:
    (command,) = exported(workshop.compile(set={"trust_remote_code": True}), "verl-fsdp").commands
    assert command.env["TUNEPORT_TRUST_REMOTE_CODE"] == "1"
