"""Every rule fires where it should and is silent beside it; every inert key is said where it does nothing."""

from __future__ import annotations

from typing import Any

import pytest
from openrlhf_support import RELEASES, arguments, cases, check, module
from tuneport.experiment.findings import findings_text
from tuneport.registry import catalog, surfaces

RULES, INERT = cases("rules"), cases("inert")
# About parameters, or about what is written down: test_openrlhf_plugin.py has them.
ELSEWHERE = {
    "openrlhf-kl-loss-off",
    "openrlhf-kl-reward-off",
    "openrlhf-reward-address-twice",
    "openrlhf-wandb-key",
}
TOPICS = sorted(
    {topic for row in catalog.methods("openrlhf") for topic in catalog.method(row[0]).spec["rules"]}
)


@pytest.mark.sweep
@pytest.mark.parametrize("case", RULES, ids=lambda case: case["id"])
def test_a_rule_fires_and_its_neighbour_does_not(case: dict[str, Any]) -> None:
    code, facts = f"openrlhf-{case['rule']}", case.get("facts", {})
    bad = check(case["entry"], arguments(case, "bad"), case["release"], facts).findings
    said = [finding for finding in bad if finding.code == code]
    assert [(f.severity, bool(f.source)) for f in said] == [(case.get("severity", "error"), True)], bad
    good = check(case["entry"], arguments(case, "good"), case["release"], case.get("good_facts", facts))
    assert code not in {finding.code for finding in good.findings}
    assert not [f for f in good.findings if f.severity == "error"], findings_text(good.findings)
    assert not [text for text in good.undecided if text.startswith(f"{code}:")]


@pytest.mark.sweep
@pytest.mark.parametrize("case", INERT, ids=lambda case: case["id"])
def test_an_inert_key_is_said_where_it_does_nothing(case: dict[str, Any]) -> None:
    key, codes = case["set"][0].lstrip("-"), {f"openrlhf-{case['code']}" if "code" in case else "inert-key"}
    dead = check(case["entry"], arguments(case, "dead", "set"), case["release"], {}).findings
    said = [finding for finding in dead if finding.key == key and finding.code in codes]
    assert [(f.severity, bool(f.source)) for f in said] == [("warning", True)], dead
    if "live" in case:
        live = check(case["entry"], arguments(case, "live", "set"), case["release"], {}).findings
        assert not [finding for finding in live if finding.key == key and finding.code in codes]


@pytest.mark.parametrize("release", RELEASES)
def test_every_rule_has_a_case(release: str) -> None:
    checks, inert = catalog.rules("openrlhf", release, TOPICS)
    proved = {f"openrlhf-{case['rule']}" for case in RULES if case["release"] == release}
    assert {rule["code"] for rule in checks} == proved | ELSEWHERE
    quiet = {case["set"][0].lstrip("-") for case in INERT if case["release"] == release}
    for entry in inert:
        name = entry["key"].removesuffix("*")
        assert any(key.startswith(name) if entry["key"].endswith("*") else key == name for key in quiet), name


@pytest.mark.parametrize("release", RELEASES)
def test_rules_name_keys_of_every_entry_that_they_are_for(release: str) -> None:
    for row in catalog.methods("openrlhf"):
        spec = catalog.method(row[0], release).spec
        keys = surfaces.release("openrlhf", release, spec["entry"]).keys
        checks, _ = catalog.rules("openrlhf", release, spec["rules"])
        for rule in checks:
            known = rule["key"] in keys or rule["key"].startswith("env.packages.")
            assert known, f"{row[0]}: {rule['code']} names {rule['key']}"


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("entry", ["sft", "dpo", "rm", "ppo_ray"])
def test_nothing_is_undecided_where_the_data_is_known(entry: str, release: str) -> None:
    columns = ["input", "answer", "chosen", "rejected"]
    facts = {"data": {"train": {"path": "/d", "rows": 5000, "columns": columns}}}
    facts["topology"] = {"nodes": 1, "gpus_per_node": 8}
    found = check(entry, arguments({"entry": entry}), release, facts)
    assert found.undecided == ()
    assert not found.findings, findings_text(found.findings)
    assert found.entry == module(entry)
