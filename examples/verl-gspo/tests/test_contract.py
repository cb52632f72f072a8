"""Holds this package to Tuneport's contract: what `tp plugin check` says."""

from pathlib import Path

from tuneport.testing import Options, check_plugin

ROOT = Path(__file__).parents[1]


def test_it_holds_to_the_contract() -> None:
    checks = list(check_plugin(str(ROOT), Options(times=5)))
    assert checks
    problems = [f"{one.name} of {one.subject}: {said}" for one in checks for said in one.problems]
    assert not problems, "\n".join(problems)
