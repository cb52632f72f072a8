"""Each rule fires on its violating configuration and is silent on the neighbour."""

from __future__ import annotations

from typing import Any

import pytest
from trl_support import ENTRIES, RELEASES, TOPICS, Workshop, base, cases
from tuneport.experiment.findings import findings_text
from tuneport.registry import catalog, surfaces
from tuneport.types import Finding

RULES = cases("rules")
INERT = cases("inert")
# Rules that speak of what only a facts file says, or of what a model's folder need not say.
FACTS = {"trl-teacher-vocabulary"}
INERT_CODES = ("inert-key", "trl-resume-ignored", "trl-model-init-ignored")


def names(group: list[dict[str, Any]]) -> list[str]:
    return [case["id"] for case in group]


def found(workshop: Workshop, case: dict[str, Any], *layers: str, data: str = "") -> tuple[Finding, ...]:
    config = base(case["method"])
    for layer in layers:
        config |= case.get(layer) or {}
    return workshop.compile(
        case["release"],
        config,
        method=case["method"],
        data=data or case["data"],
        validation=case.get("validation", False),
        profile=case.get("profile", "cpu:1"),
        params=case.get(f"{layers[-1]}_params"),
        facts=case.get(f"{layers[-1]}_facts") or case.get("facts"),
    ).findings


@pytest.mark.sweep
@pytest.mark.parametrize("case", RULES, ids=names(RULES))
def test_rule_fires_and_is_silent(case: dict[str, Any], workshop: Workshop) -> None:
    bad = found(workshop, case, "with", "bad", data=case.get("bad_data", ""))
    good = found(workshop, case, "with", "good")
    assert case["rule"] in [finding.code for finding in bad], findings_text(bad)
    assert case["rule"] not in [finding.code for finding in good], findings_text(good)
    if case["stage"] != "none" and case.get("good_stage") != "none":
        assert not [finding for finding in good if finding.severity == "error"], findings_text(good)


@pytest.mark.sweep
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
@pytest.mark.parametrize("method", TOPICS)
def test_every_rule_has_a_case(method: str, release: str) -> None:
    checks, inert = catalog.rules("trl", release, TOPICS[method])
    mine = [(case["release"], case["method"]) for case in RULES]
    proved = {case["rule"] for case, one in zip(RULES, mine, strict=True) if one == (release, method)}
    assert {rule["code"] for rule in checks} == proved
    shown = [case for case in INERT if (case["release"], case["method"]) == (release, method)]
    assert {entry["key"] for entry in inert} == {next(iter(case["set"])) for case in shown}


def test_every_topic_of_every_method_is_proved() -> None:
    topics = {topic for name, _, _ in catalog.methods("trl") for topic in catalog.method(name).spec["rules"]}
    assert topics == {topic for proved in TOPICS.values() for topic in proved}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("method", TOPICS)
def test_rules_name_keys_of_the_surface_and_their_source(method: str, release: str) -> None:
    keys = surfaces.release("trl", release, ENTRIES[method]).keys
    checks, inert = catalog.rules("trl", release, catalog.method(f"trl/{method}").spec["rules"])
    for rule in [*checks, *inert]:
        package = rule["key"].startswith("env.packages.")
        elsewhere = package or rule.get("code") == "trl-length-beyond-model"
        assert rule["key"] in keys or package, rule
        assert ".py, " in rule["source"] or elsewhere, rule["source"]


@pytest.mark.parametrize("method", ENTRIES)
def test_only_what_needs_facts_of_its_own_is_undecided(method: str, workshop: Workshop) -> None:
    for release in RELEASES:
        compiled = workshop.compile(release, base(method), method=method, validation=True)
        assert {one.partition(":")[0] for one in compiled.undecided} <= FACTS, compiled.undecided
