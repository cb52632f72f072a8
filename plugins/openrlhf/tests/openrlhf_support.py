"""What the tests of this plugin share: its cases, and argument lists as `tp check` judges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuneport import linter
from tuneport.experiment.yamlread import read_yaml

HERE = Path(__file__).parent
RELEASES = ("0.11.0", "0.11.2")
ENTRIES = ("sft", "dpo", "rm", "ppo_ray")
_DOCUMENT = read_yaml(HERE / "cases.yaml")
assert not _DOCUMENT.findings, _DOCUMENT.findings
CASES: Mapping[str, Any] = _DOCUMENT.data


def module(entry: str) -> str:
    return f"openrlhf.cli.train_{entry}"


def arguments(case: Mapping[str, Any], *layers: str) -> list[str]:
    """The flags of a case, behind those of its entry point."""
    found = list(CASES["bases"][case.get("base", case["entry"])])
    for layer in layers:
        found += case.get(layer) or []
    return found


def check(entry: str, args: Sequence[str], release: str, facts: Mapping[str, Any]) -> linter.Checked:
    asked = linter.Asked("openrlhf", release, facts=facts)
    return linter.check(["python3", "-m", module(entry), *args], asked)


def cases(group: str) -> list[dict[str, Any]]:
    """The cases of one group, once for each release that they hold for."""
    found = []
    for number, case in enumerate(CASES[group]):
        for release in case.get("releases", RELEASES):
            name = case.get("rule") or case["set"][0].lstrip("-")
            found.append({**case, "release": str(release), "id": f"{name}-{number}-{release}"})
    return found
