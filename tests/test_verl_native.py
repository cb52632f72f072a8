"""Group choices, appended and deleted keys, and interpolation of an experiment of a composed release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tuneport import workflow
from tuneport.api import Experiment, flags, open_project
from tuneport.experiment.create import new_project
from tuneport.types import LaunchPlan, Ref

REQUEST: dict[str, Any] = {
    "profile": "h200:8",
    "model": "/m/model",
    "train_data": "/d/train.parquet",
    "validation_data": "/d/test.parquet",
}
CONFIG = """
actor_rollout_ref:
  actor: {ppo_micro_batch_size_per_gpu: 4, ppo_mini_batch_size: 64}
  rollout: {log_prob_micro_batch_size_per_gpu: 8}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    made = open_project(new_project(tmp_path / "project")).new("one", "verl/grpo")
    (made.path / "config.yaml").write_text(CONFIG, "utf-8")
    return made


def write(experiment: Experiment, config: str = "", job: str = "") -> None:
    (experiment.path / "config.yaml").write_text(CONFIG + config, "utf-8")
    (experiment.path / "job.yaml").write_text(job, "utf-8")


def words(plan: LaunchPlan) -> list[str]:
    return [word for word in plan.commands[0].argv if isinstance(word, str)]


def codes(experiment: Experiment, **more: Any) -> list[tuple[str, str]]:
    found = experiment.validate(**REQUEST, **more).findings
    return [(finding.code, finding.key) for finding in found if finding.severity != "note"]


def test_a_choice_selects_the_keys(experiment: Experiment) -> None:
    key = "actor_rollout_ref.actor.megatron.tensor_model_parallel_size"
    write(experiment, "  ref: {megatron: {tensor_model_parallel_size: 2}}\n")
    assert ("key-unknown", key.replace("actor.m", "ref.m")) in codes(experiment)
    write(
        experiment,
        "  ref: {megatron: {tensor_model_parallel_size: 2}}\nmodel_engine: megatron\n",
    )
    assert "key-unknown" not in dict(codes(experiment))
    plan = words(experiment.plan(**REQUEST))
    assert plan.index("model_engine=megatron") < plan.index("actor_rollout_ref.actor.ppo_mini_batch_size=64")
    assert not [word for word in plan if word.startswith("model_engine='")]
    assert "actor_rollout_ref.ref.megatron.tensor_model_parallel_size=2" in plan


def test_a_choice_of_job_yaml_wins(experiment: Experiment) -> None:
    write(experiment, "", "native: {groups: {model_engine: megatron}}\n")
    assert "model_engine=megatron" in words(experiment.plan(**REQUEST))


def test_an_impossible_choice_is_said_alone(experiment: Experiment) -> None:
    write(experiment, "nope: 1\n", "native: {groups: {model_engine: nope}}\n")
    assert [code for code, _ in codes(experiment) if code.startswith(("group", "key"))] == ["group-option"]


def test_appended_keys_get_a_plus_where_they_are_new(experiment: Experiment) -> None:
    write(
        experiment,
        "",
        "native:\n  append:\n    reward.reward_kwargs.max_resp_len: 5\n    trainer.save_freq: 3\n"
        "    actor_rollout_ref.actor.ppo_infer_micro_batch_size_per_gpu: 2\n",
    )
    plan = words(experiment.plan(**REQUEST))
    assert "+reward.reward_kwargs.max_resp_len=5" in plan
    assert "trainer.save_freq=3" in plan
    assert "+actor_rollout_ref.actor.ppo_infer_micro_batch_size_per_gpu=2" in plan


def test_appended_keys_are_judged(experiment: Experiment) -> None:
    job = (
        "native: {append: {actor_rollout_ref.actor.nope: 1, trainer.nobody_reads_it: 1, trainer.nnodes: 2}}\n"
    )
    write(experiment, "", job)
    found = codes(experiment)
    assert ("key-unknown", "actor_rollout_ref.actor.nope") in found
    assert ("key-unread", "trainer.nobody_reads_it") in found
    assert ("platform-key", "trainer.nnodes") in found


def test_a_flood_of_unknown_keys_is_cut_short(experiment: Experiment) -> None:
    write(experiment, "trainer:\n" + "".join(f"  nobody_{number}: 1\n" for number in range(3000)))
    found = [f for f in experiment.validate(**REQUEST).findings if f.code == "key-unknown"]
    assert len(found) == 501
    assert found[-1].severity == "warning"
    assert found[-1].message.startswith("2500 more keys that verl 0.9.0")


def test_deleted_keys_are_gone(experiment: Experiment) -> None:
    write(experiment, "", "native: {delete: [algorithm.kl_ctrl]}\n")
    report = experiment.validate(**REQUEST)
    assert report.compiled is not None
    assert not [key for key in report.compiled.context.config if key.startswith("algorithm.kl_ctrl")]
    assert "~algorithm.kl_ctrl" in words(experiment.plan(**REQUEST))
    write(experiment, "", "native: {delete: [algorithm.nope]}\n")
    assert ("hydra-override", "algorithm.nope") in codes(experiment)


def test_rules_see_resolved_values_and_the_plan_keeps_what_was_written(experiment: Experiment) -> None:
    write(
        experiment,
        'trainer: {project_name: "${trainer.experiment_name}-x", experiment_name: "${data.seed}"}\n',
    )
    report = experiment.validate(**REQUEST)
    assert report.compiled is not None
    context = report.compiled.context
    assert context.config["trainer.project_name"] == f"{context.config['data.seed']}-x"
    assert context.config["critic.ppo_mini_batch_size"] == 64
    assert "trainer.project_name='${trainer.experiment_name}-x'" in words(experiment.plan(**REQUEST))


def test_what_a_request_says_is_never_interpolated(experiment: Experiment) -> None:
    plan, _ = workflow.plan(str(experiment.path), flags(**{**REQUEST, "model": "/m/${trainer.nnodes}'s"}))
    assert "actor_rollout_ref.model.path='/m/\\${trainer.nnodes}\\'s'" in words(plan)


def test_dangling_references_are_errors(experiment: Experiment) -> None:
    write(experiment, 'trainer: {project_name: "${trainer.nope}", experiment_name: "${oc.env:SOMETHING}"}\n')
    assert codes(experiment) == [("key-interpolation", "trainer.project_name")]


def test_places_of_the_fleet_stand_inside_their_word(experiment: Experiment) -> None:
    plan = experiment.plan(**REQUEST)
    refs = {word.prefix: word for word in plan.commands[0].argv if isinstance(word, Ref)}
    place = refs["trainer.default_local_dir='"]
    assert (place.ref, place.suffix, place.plain) == ("output_dir", "'", True)


def test_both_releases_compile_the_same_experiment(tmp_path: Path) -> None:
    project = open_project(new_project(tmp_path / "project"))
    for release in ("0.9.0", "0.9.1"):
        made = project.new(f"r{release[-1]}", "verl/grpo", release)
        (made.path / "config.yaml").write_text(CONFIG, "utf-8")
        assert "actor_rollout_ref.actor.ppo_mini_batch_size=64" in words(made.plan(**REQUEST))
