"""The adapter: processes, mappings, files; and the methods against the golden plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from tuneport import api
from tuneport.experiment.create import new_project
from tuneport.testing import FrameworkTests
from tuneport.types import Ref

GIVEN = {"model": "org/model", "train_data": "/data/train.jsonl", "profile": "h200:8"}
IMAGE = "registry.example/ms-swift@sha256:" + "0" * 64


class TestMsSwift(FrameworkTests):
    framework = "ms-swift"
    requests: ClassVar[dict[str, dict[str, Any]]] = {
        "ms-swift/sft": {**GIVEN, "set": {"zero_stage": 3, "lora": False, "batch_size": 64}},
        "ms-swift/dpo": {**GIVEN, "set": {"beta": 0.2, "preference_loss": ["sigmoid", "sft"]}},
        "ms-swift/kto": {**GIVEN, "set": {"desirable_weight": 1.5}},
        "ms-swift/grpo": {**GIVEN, "profile": "h200:16", "set": {"reward_functions": ["accuracy", "format"]}},
        "ms-swift/gkd": {**GIVEN, "set": {"teacher_model": "org/teacher", "distill_topk": 64}},
        "ms-swift/rm": {
            **GIVEN,
            "validation_data": "/data/validation.jsonl",
            "set": {"center_rewards": 0.01},
        },
        "ms-swift/megatron-sft": {**GIVEN, "image": IMAGE, "set": {"tensor_parallel_size": 4}},
    }
    golden = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> api.Project:
    return api.open_project(new_project(tmp_path_factory.mktemp("ms-swift") / "project"))


def made(project: api.Project, method: str, config: str, name: str) -> api.Experiment:
    experiment = project.new(name, f"ms-swift/{method}")
    (experiment.path / "config.yaml").write_text(config, "utf-8")
    return experiment


def test_the_release_starts_one_process_for_each_card(project: api.Project) -> None:
    plan = made(project, "sft", "", "processes").plan(**{**GIVEN, "profile": "h200:16"})
    env = plan.commands[0].env
    assert (env["NPROC_PER_NODE"], env["NNODES"]) == ("8", "2")
    assert (env["MASTER_ADDR"], env["NODE_RANK"]) == (Ref("head_addr"), Ref("node_rank"))


def test_a_mapping_is_json_text(project: api.Project) -> None:
    config = "lr_scheduler_kwargs: {min_lr: 0.000001}\nlr_scheduler_type: cosine_with_min_lr\n"
    plan = made(project, "sft", config, "mapping").plan(**GIVEN)
    assert '--lr_scheduler_kwargs={"min_lr": 1e-06}' in plan.commands[0].argv


@pytest.mark.parametrize(
    ("method", "config", "code"),
    [
        ("sft", "deepspeed: zero2\nfsdp: fsdp2\n", "ms-swift-fsdp-deepspeed"),
        ("sft", "packing: true\n", "ms-swift-packing-attention"),
        ("sft", "learning_rat: 1\n", "key-unknown"),
        ("sft", "task_type: seq_cls\n", "identity-key"),
        ("dpo", "loss_type: [sigmoid]\nloss_weights: [1.0, 2.0]\n", "ms-swift-loss-weights"),
        ("grpo", "use_vllm: true\n", "ms-swift-vllm-mode"),
        ("grpo", "vllm_mode: colocate\n", "ms-swift-vllm-off"),
        ("grpo", "truncation_strategy: right\n", "ms-swift-grpo-truncation"),
        ("grpo", "reward_funcs: [soft_overlong]\n", "ms-swift-grpo-soft-overlong"),
        ("grpo", "external_plugins: [reward.py]\n", "ms-swift-plugin-missing"),
        ("gkd", "use_liger_kernel: true\n", "ms-swift-gkd-liger"),
        ("gkd", "seq_kd: true\n", "ms-swift-gkd-sequence"),
    ],
)
def test_what_the_release_would_refuse(project: api.Project, method: str, config: str, code: str) -> None:
    report = made(project, method, config, f"refused-{code}").validate(**GIVEN)
    assert [finding.code for finding in report.findings if finding.severity == "error"] == [code]


def test_parallel_sizes_divide_the_cards(project: api.Project) -> None:
    experiment = made(project, "megatron-sft", "pipeline_model_parallel_size: 3\n", "divides")
    report = experiment.validate(**GIVEN, image=IMAGE)
    assert [one.code for one in report.findings if one.severity == "error"] == ["ms-swift-megatron-divides"]


def test_mistakes_are_found_in_existing_commands() -> None:
    words = ["swift", "sft", "--model", "org/model", "--dataset", "a.jsonl", "--packing", "true"]
    found: Any = api.check(words, nodes=1, gpus_per_node=8)
    assert "ms-swift-packing-attention" in [finding.code for finding in found.findings]
