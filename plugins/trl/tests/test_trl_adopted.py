"""The opt-in releases between the two that are proved in full: adopted as data, without a line of code.

What they have in common with the releases beside them was proved by comparing code; here the compiler, and
in the long run the releases' own parsers, are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from test_trl_plugin import TestTrl as Proved
from trl_support import ADOPTED, ENTRIES, RELEASES, TOPICS, Workshop, base, cases, launched, question
from tuneport.experiment.findings import findings_text
from tuneport.registry import catalog, surfaces
from tuneport.testing import FrameworkTests

Ask = Callable[[str, Sequence[dict[str, Any]]], dict[str, Any]]
# Rules of one of the releases that stand beside them; that of a release alone has a test of its own.
RULES = [
    case for case in cases("rules") if case["rule"] not in ("trl-vllm-version", "trl-vllm-version-range")
]
ACCELERATED = {"trl-triton-processors"}
VLLM = {
    "1.11.0": ("trl-vllm-to-27", ("0.18.0", "0.28.0"), ("0.19.0", "0.27.1", "0.27.1.post1")),
    "1.12.0": ("trl-vllm-to-27", ("0.18.0", "0.28.0"), ("0.19.0", "0.27.1")),
    "1.13.0": ("trl-vllm-to-28", ("0.19.0", "0.28.1"), ("0.19.1", "0.28.0")),
    "1.14.2": ("trl-vllm-to-30", ("0.19.9", "0.30.1"), ("0.20.0", "0.30.0")),
    "1.15.0": ("trl-vllm-to-31", ("0.20.9", "0.31.1"), ("0.21.0", "0.30.2", "0.31.0")),
}
"""(rule, versions outside of what trl/import_utils.py, is_vllm_available takes, versions inside)."""


@pytest.mark.sweep
@pytest.mark.parametrize("release", ADOPTED)
class TestAdopted:
    """The kit, a release at a time."""

    def kit(self, release: str) -> FrameworkTests:
        class Kit(Proved):
            __test__ = False
            releases: ClassVar[Sequence[str]] = (release,)
            requests: ClassVar[dict[str, dict[str, Any]]] = {
                **Proved.requests,
                "trl/opsd": {**Proved.requests["trl/opsd"], "profile": "h200:2"},
            }

        return Kit()

    def test_plans_are_the_golden_ones(self, release: str, tmp_path: Path) -> None:
        self.kit(release).test_plans_are_the_golden_ones(tmp_path)

    def test_requests_compile_the_same_way_every_time(self, release: str, tmp_path: Path) -> None:
        self.kit(release).test_requests_compile_the_same_way_every_time(tmp_path)


def test_none_of_them_is_what_anybody_gets_unasked() -> None:
    assert set(catalog.releases("trl")) == {*RELEASES, *ADOPTED}
    assert catalog.default_release("trl") == "1.10.0"


@pytest.mark.parametrize("release", ADOPTED)
@pytest.mark.parametrize("method", ENTRIES)
def test_every_key_that_a_method_or_a_rule_names_is_there(method: str, release: str) -> None:
    keys = surfaces.release("trl", release, ENTRIES[method]).keys
    known = catalog.method(f"trl/{method}", release)
    missing = [key for param in known.params.values() for key in param.keys if key not in keys]
    assert not missing
    checks, inert = catalog.rules("trl", release, known.spec["rules"])
    named = {rule["key"] for rule in [*checks, *inert] if not rule["key"].startswith("env.packages.")}
    assert named <= set(keys)


def held(release: str) -> list[dict[str, Any]]:
    """The cases of the rules that a release has, each once. A case that only one of the proved releases has
    counts where the rule is gated in the other, and so is the same in all that have it."""
    found: dict[str, dict[str, Any]] = {}
    for case in RULES:
        checks, _ = catalog.rules("trl", release, TOPICS[case["method"]])
        elsewhere = [
            one for one in RELEASES if case["rule"] in catalog.release_spec("trl", one)["gates"]["rules"]
        ]
        only = case.get("releases") and not elsewhere
        if not only and case["rule"] in [rule["code"] for rule in checks]:
            name = case["id"].removesuffix(f"-{case['release']}")
            found.setdefault(name, {**case, "release": release, "id": f"{name}-{release}"})
    return list(found.values())


CASES = [case for release in ADOPTED for case in held(release)]


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_rule_fires_and_is_silent(case: dict[str, Any], workshop: Workshop) -> None:
    def found(layer: str, data: str) -> list[str]:
        config = base(case["method"])
        for name in ("with", layer):
            config |= case.get(name) or {}
        compiled = workshop.compile(
            case["release"],
            config,
            method=case["method"],
            data=data,
            validation=case.get("validation", False),
            profile=case.get("profile", "cpu:1"),
            params=case.get(f"{layer}_params"),
            facts=case.get(f"{layer}_facts") or case.get("facts"),
        )
        return [finding.code for finding in compiled.findings]

    assert case["rule"] in found("bad", case.get("bad_data", "") or case["data"])
    assert case["rule"] not in found("good", case["data"])


def test_most_rules_of_the_proved_releases_hold_for_each(workshop: Workshop) -> None:
    for release in ADOPTED:
        assert len({case["rule"] for case in CASES if case["release"] == release}) > 120


@pytest.mark.parametrize("release", ADOPTED)
def test_each_takes_its_own_range_of_vllm(release: str, workshop: Workshop) -> None:
    rule, outside, inside = VLLM[release]
    for version in (*outside, *inside):
        facts = {"env": {"packages": {"vllm": version}}}
        config = {**base("grpo"), "use_vllm": True}
        compiled = workshop.compile(release, config, method="grpo", profile="h200:2", facts=facts)
        said = {finding.code for finding in compiled.findings if "vllm" in finding.code}
        assert (rule in said) is (version in outside), (version, findings_text(compiled.findings))
        assert not {code for code in said if code.startswith(("trl-vllm-to", "trl-vllm-version"))} - {rule}


@pytest.mark.parametrize("method", ENTRIES)
def test_only_one_of_them_cannot_train_on_processors(method: str, workshop: Workshop) -> None:
    for release in (*RELEASES, *ADOPTED):
        for profile in ("cpu:1", "h200:1"):
            compiled = workshop.compile(release, base(method), method=method, profile=profile)
            codes = {finding.code for finding in compiled.findings}
            wanted = release == "1.15.0" and profile == "cpu:1" and method != "rm"
            assert bool(ACCELERATED & codes) is wanted, (release, profile)
    variants = catalog.release_spec("trl", "1.15.0")["runtime"]["venv"]["variants"]
    assert list(variants) == ["cuda"], "no set of packages is offered for what it cannot do"


@pytest.mark.engine
@pytest.mark.upstream
@pytest.mark.parametrize("release", [release for release in ADOPTED if release != "1.15.0"])
def test_surface_is_what_the_parser_holds(release: str, oracle: Ask, tmp_path: Path) -> None:
    blank = {"args": [], "files": {}, "folder": str(tmp_path), "stage": "surface"}
    answers = oracle(release, [{**blank, "id": entry, "entry": entry} for entry in ENTRIES.values()])
    for entry in ENTRIES.values():
        keys_held, keys = answers[entry]["values"], surfaces.release("trl", release, entry).keys
        assert set(keys) == set(keys_held)
        for name, key in keys.items():
            default, choices, required = keys_held[name]
            assert (name, key.default, type(key.default)) == (name, default, type(default)), entry
            assert (name, list(key.choices) or None, key.required) == (name, choices, required), entry


@pytest.mark.engine
@pytest.mark.upstream
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("release", [release for release in ADOPTED if release != "1.15.0"])
def test_rules_agree_with_the_release(
    release: str, workshop: Workshop, tiny: Path, oracle: Ask, tmp_path: Path
) -> None:
    built = Workshop(workshop.root, workshop.data, tiny)
    questions: list[dict[str, Any]] = []
    for case in held(release):
        for layer, stage in (("bad", case["stage"]), ("good", case.get("good_stage", case["stage"]))):
            if "none" in (case["stage"], stage):
                continue
            config = base(case["method"])
            for name in ("with", layer):
                config |= case.get(name) or {}
            data = (case.get("bad_data", "") if layer == "bad" else "") or case["data"]
            compiled = built.compile(
                release, config, method=case["method"], data=data, validation=case.get("validation", False)
            )
            name = f"{case['id']}-{layer}"
            questions.append(question(launched(compiled), tmp_path / name, stage, name))
    answers = oracle(release, questions)
    wrong = [
        f"{name}: {answer['error'] or 'accepted'}"
        for name, answer in answers.items()
        if answer["accepted"] != name.endswith("-good")
    ]
    assert len(answers) > 200
    assert not wrong, "\n".join(wrong)
