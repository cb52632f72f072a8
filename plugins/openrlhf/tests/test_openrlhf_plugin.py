"""The adapter: parameters that are part of a key, roles on GPUs, launches, mistakes and reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from tuneport import api
from tuneport.compiler.compile import Compiled
from tuneport.errors import Invalid
from tuneport.experiment.create import new_project
from tuneport.experiment.findings import findings_text
from tuneport.registry import catalog
from tuneport.registry.plugins import Hooks
from tuneport.testing import FrameworkTests
from tuneport.types import Location, Ref

RELEASES = ("0.11.0", "0.11.2")
REQUEST = {"model": "org/model", "train_data": "/data/train.jsonl", "profile": "h200:8"}


class TestOpenrlhf(FrameworkTests):
    framework = "openrlhf"
    requests: ClassVar[dict[str, dict[str, Any]]] = {
        "openrlhf/sft": {**REQUEST, "set": {"lora_rank": 32, "lora_targets": ["q_proj", "v_proj"]}},
        "openrlhf/dpo": {
            **REQUEST, "validation_data": "/data/validation.jsonl", "set": {"beta": 0.2, "adam_beta2": 0.999},
        },
        "openrlhf/rm": {**REQUEST, "profile": "h200:16", "set": {"reward_margin": True}},
        "openrlhf/grpo": {**REQUEST, "set": {"norm_adv_by_std": False, "clip_ratio_high": 0.28}},
        "openrlhf/ppo": {**REQUEST, "profile": "h200:16", "set": {"critic_warmup_steps": 10}},
        "openrlhf/reinforce-baseline": {
            **REQUEST, "validation_data": "/data/validation.jsonl", "set": {"mini_batch_size": 64},
        },
    }  # fmt: skip
    golden = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> api.Project:
    return api.open_project(new_project(tmp_path_factory.mktemp("openrlhf") / "project"))


def compile_request(
    project: api.Project,
    method: str,
    config: Mapping[str, Any] | None = None,
    release: str = "",
    **request: Any,
) -> Compiled:
    """A request on the method's own starting configuration, with some keys of it changed."""
    name = f"{method}-{release or 'default'}"
    path = project.folder.experiments / name
    if not path.exists():
        project.new(name, f"openrlhf/{method}", release)
        (path / "start.txt").write_text((path / "config.yaml").read_text("utf-8"), "utf-8")
    start = yaml.safe_load((path / "start.txt").read_text("utf-8"))
    for key, value in (config or {}).items():
        *parents, last = key.split(".")
        here = start
        for parent in parents:
            here = here.setdefault(parent, {})
        here[last] = value
    (path / "config.yaml").write_text(yaml.safe_dump(start), "utf-8")
    compiled = api.Experiment(str(path)).validate(**{**REQUEST, **request}).compiled
    assert compiled is not None
    return compiled


def codes(compiled: Compiled, *severities: str) -> list[str]:
    wanted = severities or ("error",)
    return [finding.code for finding in compiled.findings if finding.severity in wanted]


@pytest.mark.parametrize(
    ("method", "params", "native"),
    [
        ("sft", {"adam_beta1": 0.8}, {"adam.betas": [0.8, 0.95]}),
        ("sft", {"adam_beta1": 0.8, "adam_beta2": 0.9}, {"adam.betas": [0.8, 0.9]}),
        ("sft", {"save_every": 0}, {"ckpt.save_steps": -1}),
        ("sft", {"model_dtype": "float16"}, {"ds.param_dtype": "fp16"}),
        ("grpo", {"adam_beta2": 0.9}, {"actor.adam.betas": [0.9, 0.9]}),
        ("grpo", {"clip_ratio_high": 0.3}, {"actor.eps_clip_low_high": [0.2, 0.3]}),
        ("grpo", {"clip_ratio": 0.1, "clip_ratio_low": 0.2}, {"actor.eps_clip_low_high": [0.2, 0.1]}),
        ("grpo", {"mini_batch_size": 16}, {"train.batch_size": 128}),
        (
            "grpo",
            {"mini_batch_size": 16, "rollouts_per_prompt": 4},
            {"train.batch_size": 64, "rollout.n_samples_per_prompt": 4},
        ),
        (
            "grpo",
            {"norm_adv_by_std": False},
            {"algo.advantage.no_std_norm": True, "algo.advantage.estimator": "dr_grpo"},
        ),
        (
            "grpo",
            {"norm_adv_by_std": True},
            {"algo.advantage.no_std_norm": False, "algo.advantage.estimator": "group_norm"},
        ),
        ("grpo", {"eval_every": 0}, {"eval.steps": -1}),
        ("ppo", {"critic_warmup_steps": 10}, {"critic.freezing_steps": 9}),
        ("ppo", {"critic_warmup_steps": 0}, {"critic.freezing_steps": -1}),
    ],
)
def test_parameters_become_native_keys(
    project: api.Project, method: str, params: dict[str, Any], native: dict[str, Any]
) -> None:
    compiled = compile_request(project, method, set=params)
    assert not codes(compiled), findings_text(compiled.findings)
    assert {key: compiled.context.own[key] for key in native} == native


def test_a_validation_file_has_the_split_that_a_file_has(project: api.Project) -> None:
    compiled = compile_request(project, "dpo", validation_data="/d/v.jsonl")
    assert compiled.context.own["eval.split"] == "train"
    hub = compile_request(project, "dpo", validation_data="org/pairs")
    assert "eval.split" not in hub.context.own
    wrong = compile_request(project, "dpo", {"eval.split": "test"}, validation_data="/d/v.jsonl")
    assert codes(wrong) == ["openrlhf-eval-split"]


def test_one_pool_holds_every_role_that_runs(project: api.Project) -> None:
    own = compile_request(project, "grpo").context.own
    assert own["actor.num_gpus_per_node"] == own["ref.num_gpus_per_node"] == own["vllm.num_engines"] == 8
    assert own["train.colocate_all"] is True and own["vllm.enable_sleep"] is True
    assert "reward.num_nodes" not in own, "a function scores the answers"
    assert "critic.num_nodes" not in own
    assert "ref.num_nodes" not in compile_request(project, "grpo", {"algo.kl.init_coef": 0.0}).context.own
    model = {"reward.remote_url": None, "reward.model_name_or_path": "org/rm"}
    scored = compile_request(project, "ppo", model).context.own
    assert scored["reward.num_gpus_per_node"] == scored["critic.num_gpus_per_node"] == 8
    wide = compile_request(project, "grpo", {"vllm.tensor_parallel_size": 4}).context.own
    assert wide["vllm.num_engines"] == 2


def test_pools_of_their_own_are_roles_apart(project: api.Project, tmp_path: Path) -> None:
    pools = [{"name": name, "series": "h200", "nodes": 1, "gpus_per_node": 8} for name in ("train", "play")]
    roles = {"actor": "train", "reference": "train", "reward": "train", "rollout": "play"}
    path = tmp_path / "resources.yaml"
    path.write_text(json.dumps({"pools": pools, "roles": roles}), "utf-8")
    compiled = compile_request(project, "grpo", resources=str(path), profile="")
    own = compiled.context.own
    assert (own["train.colocate_all"], own["train.colocate_actor_ref"]) == (False, True)
    assert own["vllm.num_engines"] == 8 and own["vllm.enable_sleep"] is False
    assert codes(compiled) == ["pools-fleet"], "the local fleet has one pool"
    plan = Hooks("openrlhf").launch(compiled.context)
    assert [command.pool for command in plan.commands] == ["train", "play"]


def test_what_the_user_sets_stays(project: api.Project) -> None:
    own = compile_request(project, "grpo", {"ref.num_gpus_per_node": 4, "vllm.num_engines": 4}).context.own
    assert (own["ref.num_gpus_per_node"], own["vllm.num_engines"]) == (4, 4)
    assert "platform-key" in codes(compile_request(project, "grpo", {"actor.num_gpus_per_node": 4}))


def test_several_nodes_make_a_ray_cluster(project: api.Project) -> None:
    alone = compile_request(project, "grpo")
    assert alone.plan is not None and alone.plan.commands[0].argv[1:3] == ("-m", "openrlhf.cli.train_ppo_ray")
    several = compile_request(project, "grpo", profile="h200:16")
    assert several.plan is not None
    (command,) = several.plan.commands
    assert command.argv[1:3] == ("tuneport-cluster.py", "2")
    assert "tuneport-cluster.py" in command.files


def test_trainers_have_one_process_per_gpu(project: api.Project) -> None:
    plan = compile_request(project, "sft", profile="h200:16").plan
    assert plan is not None
    (command,) = plan.commands
    assert command.argv[1:5] == ("-m", "torch.distributed.run", "--nproc_per_node=8", "--nnodes=2")
    assert command.argv[command.argv.index("openrlhf.cli.train_sft") - 1] == "-m"


def test_a_file_of_the_experiment_is_named_by_its_full_place(project: api.Project) -> None:
    own = compile_request(project, "grpo").context.own
    assert own["reward.remote_url"] == Ref("work_dir", "/reward.py")
    server = compile_request(project, "grpo", {"reward.remote_url": "http://r:8000/score"}).context.own
    assert server["reward.remote_url"] == "http://r:8000/score"


@pytest.mark.parametrize(
    ("method", "params", "config", "code"),
    [
        ("grpo", {"kl_loss_coef": 0.1}, {}, "openrlhf-kl-loss-off"),
        ("grpo", {"kl_coef": 0.1, "use_kl_loss": True, "kl_loss_type": "k3"}, {}, "openrlhf-kl-reward-off"),
        (
            "grpo",
            {"reward_function": "reward.py", "reward_server": "http://h/s"},
            {},
            "openrlhf-reward-address-twice",
        ),
        ("sft", {}, {"logger.wandb.key": "0" * 40}, "openrlhf-wandb-key"),
    ],
)
def test_what_contradicts_itself(
    project: api.Project, method: str, params: dict[str, Any], config: dict[str, Any], code: str
) -> None:
    assert code in codes(compile_request(project, method, config, set=params), "error", "warning")


@pytest.mark.parametrize(
    ("params", "config"),
    [
        ({"kl_loss_coef": 0.1, "use_kl_loss": True, "kl_loss_type": "k3"}, {}),
        ({"kl_coef": 0.1}, {}),
        ({}, {"logger.wandb.key": "on"}),
    ],
)
def test_what_does_not(project: api.Project, params: dict[str, Any], config: dict[str, Any]) -> None:
    assert not codes(compile_request(project, "grpo", config, set=params), "error", "warning")


def test_flags_that_have_moved_are_told_where_to(project: api.Project) -> None:
    config = {"algo.advantage.is_correction_enable": True}
    old = compile_request(project, "grpo", config, RELEASES[0])
    assert not codes(old)
    (moved,) = [
        f for f in compile_request(project, "grpo", config, RELEASES[1]).findings if f.severity == "error"
    ]
    assert moved.code == "key-moved" and "is_correction_level" in moved.hint


def test_a_parameter_of_the_newer_release(project: api.Project) -> None:
    assert "loss_agg_mode" not in catalog.method("openrlhf/grpo", RELEASES[0]).params
    chosen = compile_request(
        project, "grpo", release=RELEASES[1], set={"loss_agg_mode": "seq-mean-token-mean"}
    )
    assert chosen.context.own["actor.loss_agg_mode"] == "seq-mean-token-mean"


@pytest.mark.parametrize("release", RELEASES)
def test_every_method_starts_clean(project: api.Project, release: str) -> None:
    for method, _, _ in catalog.methods("openrlhf"):
        compiled = compile_request(project, method.partition("/")[2], release=release)
        assert not codes(compiled, "error", "warning"), findings_text(compiled.findings)
        assert compiled.plan is not None


def test_values_that_no_flag_can_say(project: api.Project) -> None:
    for config, code in (
        ({"adam.betas": 0.9}, "key-values"),
        ({"adam.betas": [0.9, "x"]}, "key-type"),
        ({"data.max_len": None}, "key-type"),
        ({"ds.param_dtype": "fp32"}, "key-choice"),
        ({"ckpt.save_hf": "yes"}, "key-type"),
    ):
        assert code in codes(compile_request(project, "sft", config)), config


def test_there_is_no_exporter_yet(project: api.Project) -> None:
    with pytest.raises(Invalid) as caught:
        Hooks("openrlhf").export(
            compile_request(project, "sft").context, Location("path", "/c"), "huggingface"
        )
    assert caught.value.code == "export-unsupported"
