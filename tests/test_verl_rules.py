"""Each rule of verl speaks up about a command just outside it, and is silent about one just inside."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tuneport.types import Finding

sys.path.insert(0, str(Path(__file__).parent))
from verl_commands import PROGRAMS, RELEASES, Case, Command, active, cases, having

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


def test_every_rule_has_a_case() -> None:
    rules = {
        (entry, name) for release in RELEASES for entry, names in active(release).items() for name in names
    }
    have = {(case.outside.entry, case.name) for case in CASES}
    rules.discard(("verl.trainer.sft_trainer", "verl-model-architecture"))  # the one that both entries have
    shared = {name for entry, name in rules if entry == "verl.trainer.main_ppo"}
    separate = {(entry, name) for entry, name in rules if entry in PROGRAMS}
    common = {(entry, name) for entry, name in separate if all((one, name) in separate for one in PROGRAMS)}
    missing = {(entry, name) for entry, name in rules - have if entry not in PROGRAMS or name not in shared}
    missing -= {(entry, name) for entry, name in common if any((one, name) in have for one in PROGRAMS)}
    assert {name for _, name in missing} == PROMISES
    assert not have - rules
    assert len(CASES) == len(have)


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_outside(case: Case) -> None:
    for release in having(case):
        assert hits(case, case.outside, release), release


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_inside(case: Case) -> None:
    for release in having(case):
        found = case.inside.check(release).findings
        assert not hits(case, case.inside, release)
        errors = [finding for finding in found if finding.severity == "error"]
        assert {finding.code for finding in errors} <= case.says, errors


def test_what_the_release_refuses_is_an_error() -> None:
    for case in CASES:
        for release in having(case) if case.upstream == "refuses" else ():
            found = case.outside.check(release).findings
            assert [finding for finding in found if finding.severity == "error"], case.name


def hits(case: Case, command: Command, release: str) -> list[Finding]:
    key = case.key.removesuffix("*")
    return [
        finding
        for finding in command.check(release).findings
        if finding.code == case.code and (not key or finding.key.startswith(key))
    ]
