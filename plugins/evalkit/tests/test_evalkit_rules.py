"""Every rule fires where it should and is silent beside it; every inert key is said where it does nothing."""

from __future__ import annotations

from typing import Any

import pytest
from evalkit_support import CASES, EVALSCOPE, LM_EVAL, RELEASES, cases, check
from tuneport.experiment.findings import findings_text
from tuneport.registry import catalog, surfaces

NAMES = {LM_EVAL: "lm-eval", EVALSCOPE: "evalscope"}


def arguments(release: str, case: dict[str, Any], layer: str) -> list[str]:
    return [*case.get("base", CASES[NAMES[release]]["base"]), *case[layer]]


def test_each_rule_fires_and_its_neighbour_does_not() -> None:
    for release, case in cases("rules"):
        code, facts = f"{NAMES[release]}-{case['rule']}", case.get("facts", {})
        bad = check(release, arguments(release, case, "bad"), facts).findings
        said = [finding for finding in bad if finding.code == code]
        wanted = [(case.get("severity", "error"), True)]
        assert [(f.severity, bool(f.source)) for f in said] == wanted, (case, findings_text(bad))
        good = check(release, arguments(release, case, "good"), facts)
        assert code not in {finding.code for finding in good.findings}, (case, findings_text(good.findings))
        errors = [f for f in good.findings if f.severity == "error"]
        assert not errors, (case, findings_text(errors))
        assert not [text for text in good.undecided if text.startswith(f"{code}:")], case


def test_each_inert_key_is_said_where_it_does_nothing() -> None:
    for release, case in cases("inert"):
        key = case.get("name", case["key"])
        dead = check(release, arguments(release, case, "dead")).findings
        said = [
            finding for finding in dead if finding.key in (key, case["key"]) and finding.code == "inert-key"
        ]
        assert [(f.severity, bool(f.source)) for f in said] == [("warning", True)], (
            case,
            findings_text(dead),
        )
        live = check(release, arguments(release, case, "live")).findings
        assert not [
            finding for finding in live if finding.key in (key, case["key"]) and finding.code == "inert-key"
        ], case


@pytest.mark.parametrize("release", RELEASES)
def test_every_rule_has_a_case(release: str) -> None:
    name = NAMES[release]
    checks, inert = catalog.rules("evalkit", release, [name])
    proved = {f"{name}-{case['rule']}" for case in CASES[name]["rules"]}
    ours = {rule["code"] for rule in checks}
    assert ours <= proved | {f"{name}-{rule}" for rule in CASES[name]["elsewhere"]}
    assert {entry["key"] for entry in inert} == {case["key"] for case in CASES[name]["inert"]}
    spec = catalog.method("evalkit/benchmark", release).spec
    keys = surfaces.release("evalkit", release, spec["entry"]).keys
    for rule in [*checks, *inert]:
        assert rule["key"] in keys or rule["key"].partition(".")[0] in keys, rule
        assert rule["source"].startswith((name.replace("-eval", "-eval "), f"{name} ", "vllm ")), rule


@pytest.mark.parametrize("release", RELEASES)
def test_nothing_is_said_or_undecided_about_a_plain_command(release: str) -> None:
    found = check(release, CASES[NAMES[release]]["base"], {"topology": {"nodes": 1, "gpus_per_node": 8}})
    assert (found.findings, found.undecided) == ((), ())
    assert (found.method, found.release) == ("evalkit/benchmark", release)
