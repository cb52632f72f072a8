"""Each rule of verl speaks up about a command just outside it, and is silent about one just inside."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest
from tuneport.registry import catalog
from tuneport.types import Finding

sys.path.insert(0, str(Path(__file__).parent))
from verl_commands import RELEASES, Case, Command, cases

CASES = list(cases())
# What a command line cannot show: these judge a request for a method, see test_verl_methods.py.
PROMISES = {
    "verl-critic-packs-by-tokens",
    "verl-group-size",
    "verl-never-saves",
    "verl-remax-samples",
    "verl-sft-learning-rate-large",
    "verl-validation-data",
}
TOPICS = {
    "verl.trainer.main_ppo": catalog.method("verl/grpo").spec["rules"],
    "verl.trainer.sft_trainer": catalog.method("verl/sft").spec["rules"],
}


@cache
def active(release: str) -> dict[str, set[str]]:
    """The codes, and the keys of the inert entries, that a release has, for each entry point."""
    found = {}
    for entry, topics in TOPICS.items():
        checks, inert = catalog.rules("verl", release, topics)
        found[entry] = {rule["code"] for rule in checks} | {rule["key"] for rule in inert}
    return found


def test_every_rule_has_a_case() -> None:
    rules = {
        (entry, name) for release in RELEASES for entry, names in active(release).items() for name in names
    }
    have = {(case.outside.entry, case.name) for case in CASES}
    assert {name for _, name in rules - have} == PROMISES
    assert not have - rules
    assert len(CASES) == len(have)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_outside(case: Case) -> None:
    for release in having(case):
        assert hits(case, case.outside, release), release


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_inside(case: Case) -> None:
    for release in having(case):
        found = case.inside.check(release).findings
        assert not hits(case, case.inside, release)
        errors = [finding for finding in found if finding.severity == "error"]
        assert {finding.code for finding in errors} <= case.says, errors


def having(case: Case) -> list[str]:
    """The releases that have the rule."""
    releases = [release for release in RELEASES if case.name in active(release)[case.outside.entry]]
    assert releases
    return releases


def hits(case: Case, command: Command, release: str) -> list[Finding]:
    key = case.key.removesuffix("*")
    return [
        finding
        for finding in command.check(release).findings
        if finding.code == case.code and (not key or finding.key.startswith(key))
    ]
