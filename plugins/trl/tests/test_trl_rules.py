"""Each rule fires on its violating configuration and is silent on the neighbour."""

from __future__ import annotations

from typing import Any

import pytest
from trl_support import BASE, RELEASES, Workshop, cases
from tuneport.experiment.findings import findings_text
from tuneport.registry import catalog
from tuneport.types import Finding

RULES = cases("rules")
INERT = cases("inert")
INERT_CODES = ("inert-key", "trl-resume-ignored", "trl-model-init-ignored")


def names(group: list[dict[str, Any]]) -> list[str]:
    return [case["id"] for case in group]


def found(workshop: Workshop, case: dict[str, Any], *layers: str, data: str = "") -> tuple[Finding, ...]:
    config = dict(BASE)
    for layer in layers:
        config |= case.get(layer) or {}
    kind = data or case.get("data", "pairs")
    profile = case.get("profile", "cpu:1")
    return workshop.compile(
        case["release"], config, data=kind, validation=case.get("validation", False), profile=profile
    ).findings


@pytest.mark.parametrize("case", RULES, ids=names(RULES))
def test_rule_fires_and_is_silent(case: dict[str, Any], workshop: Workshop) -> None:
    bad = found(workshop, case, "with", "bad", data=case.get("bad_data", ""))
    good = found(workshop, case, "with", "good")
    assert case["rule"] in [finding.code for finding in bad], findings_text(bad)
    assert case["rule"] not in [finding.code for finding in good], findings_text(good)
    if case["stage"] != "none" and case.get("good_stage") != "none":
        assert not [finding for finding in good if finding.severity == "error"], findings_text(good)


@pytest.mark.parametrize("case", INERT, ids=names(INERT))
def test_inert_key_is_said_and_only_while_it_is(case: dict[str, Any], workshop: Workshop) -> None:
    key = next(iter(case["set"]))
    findings = found(workshop, {**case, "profile": "cpu:1"}, "with", "set")
    said = [f for f in findings if f.key == key and f.code in INERT_CODES]
    assert [(f.severity, bool(f.source), bool(f.hint)) for f in said] == [("warning", True, True)], said
    if case["live"] is not None:
        live = found(workshop, case, "with", "set", "live")
        assert not [f for f in live if f.key == key and f.code in INERT_CODES], findings_text(live)


@pytest.mark.parametrize("release", RELEASES)
def test_every_rule_has_a_case(release: str) -> None:
    checks, inert = catalog.rules("trl", release, ["trainer", "model", "sft"])
    assert {rule["code"] for rule in checks} == {case["rule"] for case in RULES if case["release"] == release}
    proved = {next(iter(case["set"])) for case in INERT if case["release"] == release}
    assert {entry["key"] for entry in inert} == proved


@pytest.mark.parametrize("release", RELEASES)
def test_rules_name_keys_of_the_surface_and_their_source(release: str) -> None:
    keys = catalog.release("trl", release, "trl.scripts.sft").keys
    checks, inert = catalog.rules("trl", release, ["trainer", "model", "sft"])
    for rule in [*checks, *inert]:
        assert rule["key"] in keys
        assert ".py, " in rule["source"] or rule["code"] == "trl-length-beyond-model", rule["source"]


def test_nothing_is_undecided_where_everything_is_known(workshop: Workshop) -> None:
    for release in RELEASES:
        compiled = workshop.compile(release, BASE, validation=True)
        assert compiled.undecided == ()
