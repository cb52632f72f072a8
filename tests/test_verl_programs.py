"""The programs of verl that no method runs, fully_async_main and one_step_off_policy.main_ppo, are checked by
rules: those of main_ppo that hold there, and their own. Each rule has a case in data/verl_rules.yaml."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tuneport import linter
from tuneport.registry import catalog

sys.path.insert(0, str(Path(__file__).parent))
from verl_commands import PROGRAMS, RELEASES, program

FULLY, ONE_STEP = PROGRAMS
SOUND = [
    "actor_rollout_ref.hybrid_engine=false",
    "actor_rollout_ref.model.path=/models/m",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=16",
    "actor_rollout_ref.actor.use_dynamic_bsz=true",
    "algorithm.adv_estimator=grpo",
    "data.train_files=/data/train.parquet",
    "data.val_files=/data/test.parquet",
    "trainer.nnodes=1",
    "trainer.n_gpus_per_node=4",
    "rollout.nnodes=1",
    "rollout.n_gpus_per_node=4",
]
BATCH = {FULLY: "data.train_batch_size=0", ONE_STEP: "data.train_batch_size=64"}


def said(entry: str, *words: str, facts: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Code -> severity of what is found in a sound command with these words added."""
    asked = linter.Asked("verl", "0.9.0", facts=facts or {})
    checked = linter.check(["python3", "-m", entry, *SOUND, BATCH[entry], *words], asked)
    return {finding.code: finding.severity for finding in checked.findings if finding.severity != "note"}


@pytest.mark.parametrize("entry", PROGRAMS)
def test_a_sound_command_is_sound(entry: str) -> None:
    assert not said(entry)


@pytest.mark.parametrize("entry", PROGRAMS)
@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("actor_rollout_ref.actor.strategy=deepspeed", "verl-engine-strategy"),
        ("actor_rollout_ref.actor.fsdp_config.fsdp_size=3", "verl-fsdp-size"),
        ("actor_rollout_ref.rollout.top_p=0", "verl-top-p"),
        ("algorithm.adv_estimator=nope", "verl-estimator-unknown"),
        ("trainer.resume_mode=never", "verl-resume-mode"),
        ("reward.num_workers=0", "verl-reward-workers"),
    ],
)
def test_what_the_workers_refuse_is_refused_here_too(entry: str, word: str, code: str) -> None:
    assert said(entry, word)[code] == "error"


@pytest.mark.parametrize("entry", PROGRAMS)
def test_what_belongs_to_other_trainers_is_not_said(entry: str) -> None:
    words = ["actor_rollout_ref.rollout.tensor_model_parallel_size=4", "trainer.n_gpus_per_node=2"]
    assert "verl-rollout-divides" not in said(entry, *words)
    assert "verl-hybrid-engine" not in said(entry)


@pytest.mark.parametrize("entry", PROGRAMS)
def test_commands_that_upstream_publishes_are_warned_of(entry: str) -> None:
    assert said(entry, "trainer.n_gpus_per_node=12")["verl-mini-divides"] == "warning"
    assert said(entry, "trainer.logger='[console,wandb]'")["verl-logger-unknown-text"] == "warning"


def test_one_program_moves_the_old_keys_of_rewards_and_the_other_does_not() -> None:
    assert not said(FULLY, "reward_model.reward_manager=dapo", "custom_reward_function.path=null")
    assert said(FULLY, "reward_model.reward_manager=nope")["verl-reward-manager"] == "error"
    assert "verl-reward-legacy-manager-unread" in said(ONE_STEP, "reward_model.reward_manager=dapo")
    blank = {"data": {"train": {"data_source_values": ["mine"]}}}
    own = ["custom_reward_function.path=/e/reward.py", "custom_reward_function.name=score"]
    assert "verl-data-source-unknown" in said(FULLY, facts=blank)
    assert "verl-data-source-unknown" not in said(FULLY, *own, facts=blank)
    assert "verl-data-source-unknown" in said(ONE_STEP, *own, facts=blank)


def test_an_old_key_that_nobody_knows_leaves_its_new_place_open() -> None:
    asked = linter.Asked("verl", "0.9.0")
    words = ["bash", "-c", f"python3 -m {FULLY} reward_model.reward_manager=$UNSET {' '.join(SOUND)}"]
    (checked,), _ = linter.check_every(words, asked)
    assert any(open_.startswith("verl-reward-manager:") for open_ in checked.undecided)


@pytest.mark.parametrize("entry", PROGRAMS)
def test_hardware_that_is_not_given_is_not_too_little(entry: str) -> None:
    assert "verl-separate-gpus" not in said(entry, "rollout.nnodes=2")


@pytest.mark.parametrize("entry", PROGRAMS)
def test_what_does_not_hold_there_is_there_elsewhere(entry: str) -> None:
    spec = program(RELEASES[0], entry).spec
    names = set()
    for topic in spec["rules"]:
        checks, inert = catalog.all_rules("verl", topic)
        names |= {rule["code"] for rule in checks} | {rule.get("code", rule["key"]) for rule in inert}
    assert set(spec["gates"]) | set(spec["softens"]) <= names
