"""The methods of verl: their plans, and that every parameter arrives where the release reads it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tuneport import api, linter
from tuneport.compiler.adapter import native_value, variant, variant_keys
from tuneport.compiler.compile import Compiled
from tuneport.experiment.command_line import Invocation
from tuneport.experiment.create import new_project
from tuneport.experiment.findings import findings_text
from tuneport.registry import catalog
from tuneport.types import Finding, Json, Param, Ref

sys.path.insert(0, str(Path(__file__).parent))
from verl_commands import RELEASES
from verl_plans import METHODS, Workshop, command, samples

IDENTITIES: dict[str, dict[str, Json]] = {
    "verl/grpo": {"algorithm.adv_estimator": "grpo"},
    "verl/dapo": {
        "algorithm.adv_estimator": "grpo",
        "algorithm.filter_groups.enable": True,
        "reward.reward_manager.name": "dapo",
    },
    "verl/ppo": {"algorithm.adv_estimator": "gae"},
    "verl/rloo": {"algorithm.adv_estimator": "rloo"},
    "verl/reinforce-baseline": {"algorithm.adv_estimator": "reinforce_plus_plus_baseline"},
    "verl/remax": {"algorithm.adv_estimator": "remax"},
    "verl/distillation": {"distillation.enabled": True},
    "verl/policy-gradient": {},
    "verl/sft": {},
}
HALVES = ("adam_beta1", "adam_beta2")  # of one list, except in Megatron
# What the release itself says to a parameter's value in an experiment that is otherwise at its defaults:
# a rule of another topic, which test_verl_rules.py holds to a case of its own.
SURFACE = {
    "key-unknown",
    "key-type",
    "key-choice",
    "key-moved",
    "key-needs-plus",
    "key-exists",
    "param-value",
}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("verl"))


def errors(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity == "error"]


def lint(compiled: Compiled) -> linter.Checked:
    """The plan's own command, read back as a command line that somebody else wrote."""
    module, arguments = command(compiled)
    pool = compiled.context.topology.primary
    asked = linter.Asked(
        framework="verl",
        version=compiled.context.release.version,
        method=compiled.context.method.id,
        nodes=pool.nodes,
        gpus_per_node=pool.gpus_per_node,
    )
    return linter.check_arguments(Invocation(module, False, arguments), asked)


@pytest.mark.sweep
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("method", METHODS)
def test_a_fresh_experiment_plans_a_command_that_is_right(
    workshop: Workshop, method: str, release: str, nodes: int
) -> None:
    if method == "verl/distillation" and nodes == 2:
        pytest.skip("its pools are one node each")
    compiled = workshop.compile(method, release, {}, nodes)
    assert not errors(compiled.findings), findings_text(compiled.findings)
    assert not [finding for finding in compiled.findings if finding.severity == "warning"]
    assert compiled.context.method.spec.get("identity", {}) == IDENTITIES[method]
    read = lint(compiled)
    assert not errors(list(read.findings)), findings_text(list(read.findings))
    config = compiled.context.config
    seen = {key for key, value in config.items() if not _has_ref(value) and key in read.context.config}
    assert {key: read.context.config[key] for key in seen} == {key: config[key] for key in seen}
    for key, value in IDENTITIES[method].items():
        assert read.context.config[key] == value
    assert read.context.config["trainer.nnodes"] == nodes
    assert read.context.config["trainer.n_gpus_per_node"] == 8


def _has_ref(value: Json) -> bool:
    if isinstance(value, list):
        return any(map(_has_ref, value))
    return isinstance(value, Ref) or (isinstance(value, dict) and any(map(_has_ref, value.values())))


def cases() -> Iterator[Any]:
    """Each parameter once for each release, at the first method that has it."""
    for release in RELEASES:
        seen: set[tuple[str, str]] = set()
        for method in sorted(METHODS, key=lambda item: item != "verl/grpo"):
            found = catalog.method(method, release)
            for name, param in found.params.items():
                if (name, repr(param.keys)) not in seen:
                    seen.add((name, repr(param.keys)))
                    yield pytest.param(method, release, name, id=f"{method}-{release}-{name}")


@pytest.mark.sweep
@pytest.mark.parametrize(("method", "release", "name"), list(cases()))
def test_a_parameter_arrives(workshop: Workshop, method: str, release: str, name: str) -> None:
    param = catalog.method(method, release).params[name]
    for value in samples(name, param):
        arrives(workshop, method, release, param, value, {})


def engines() -> Iterator[Any]:
    """Each parameter that has its own keys for an engine."""
    for method in ("verl/grpo", "verl/sft"):
        found = catalog.method(method)
        for engine in found.params["engine"].schema["enum"]:
            native = native_value(found.params["engine"], engine)
            for name in found.spec["variants"]["cases"][native]:
                yield pytest.param(method, engine, name, id=f"{method}-{engine}-{name}")


@pytest.mark.sweep
@pytest.mark.parametrize(("method", "engine", "name"), list(engines()))
def test_a_parameter_arrives_at_each_engine(workshop: Workshop, method: str, engine: str, name: str) -> None:
    param = catalog.method(method).params[name]
    arrives(workshop, method, "0.9.0", param, next(samples(name, param)), {"engine": engine})


def arrives(
    workshop: Workshop, method: str, release: str, param: Param, value: Json, others: dict[str, Json]
) -> None:
    name = param.name
    compiled = workshop.compile(method, release, {**others, name: value})
    ours = [finding for finding in compiled.findings if finding.code in SURFACE]
    assert not ours, findings_text(ours)
    keys = variant_keys(compiled.context, param, variant(compiled.context))
    if not keys:
        assert "verl-engine-parameter" in {finding.code for finding in errors(compiled.findings)}
        return
    read = lint(compiled)
    theirs = [finding for finding in read.findings if finding.code in SURFACE]
    assert not theirs, findings_text(theirs)
    config = read.context.config
    if name in ("engine", "gradient_checkpointing") and len(keys) > 1:
        return
    expected = native_value(param, value)
    for key in keys if len(param.keys) == 1 else ():
        found = config[key]
        if name in HALVES and isinstance(found, list):
            found = found[HALVES.index(name)]
        assert found == expected or (name == "loggers" and set(expected) < set(found))


# What only a request for a method can break: test_verl_rules.py has every other rule.
PROMISES = [
    (
        "verl/grpo",
        "data: {train_batch_size: 64}\nactor_rollout_ref: {rollout: {n: 1}}\n",
        {},
        "verl-group-size",
    ),
    ("verl/grpo", "", {"save_every": 0}, "verl-never-saves"),
    ("verl/remax", "", {"rollouts_per_prompt": 4}, "verl-remax-samples"),
    ("verl/ppo", "", {}, "verl-critic-packs-by-tokens"),
    ("verl/sft", "", {"learning_rate": 0.001}, "verl-sft-learning-rate-large"),
]


@pytest.mark.parametrize(("method", "config", "asked", "code"), PROMISES, ids=[row[3] for row in PROMISES])
def test_a_promise_of_the_method(
    tmp_path: Path, method: str, config: str, asked: dict[str, Json], code: str
) -> None:
    workshop = Workshop(tmp_path)
    if config:
        workshop.compile(method, "0.9.0", {})
        path = workshop.project.folder.experiments / f"{method.partition('/')[2]}-0.9.0" / "config.yaml"
        path.write_text(config, "utf-8")
    assert code in [finding.code for finding in workshop.compile(method, "0.9.0", asked).findings]


def test_validation_data_is_asked_for(tmp_path: Path) -> None:
    project = api.open_project(new_project(tmp_path / "project"))
    report = project.new("here", "verl/grpo", "").validate(
        model="org/model", train_data="/data/train.parquet", profile="h200:8"
    )
    found = {finding.code: finding for finding in report.findings}
    assert found["verl-validation-data"].key == "--validation-data"
    assert report.ok
