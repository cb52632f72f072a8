"""Commands of verl that its rules speak up about, and commands just inside; from data/verl_rules.yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml
from tuneport import linter
from tuneport.checks import programs
from tuneport.experiment.command_line import Invocation
from tuneport.registry import catalog
from tuneport.types import Method

RELEASES = ("0.9.0", "0.9.1")
PROGRAMS = (
    "verl.experimental.fully_async_policy.fully_async_main",
    "verl.experimental.one_step_off_policy.main_ppo",
)
"""Those that no method runs."""
DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Command:
    entry: str
    args: list[str]
    nodes: int
    gpus_per_node: int
    facts: Mapping[str, Any] = field(default_factory=dict)

    def check(self, release: str) -> linter.Checked:
        asked = linter.Asked(
            framework="verl",
            version=release,
            nodes=self.nodes,
            gpus_per_node=self.gpus_per_node,
            facts=self.facts,
        )
        return linter.check_arguments(Invocation(module=self.entry, arguments=self.args), asked)


@dataclass(frozen=True, slots=True)
class Case:
    """`code` is that of a rule, or `key` that of an inert entry."""

    code: str
    key: str
    outside: Command
    inside: Command
    says: frozenset[str]
    upstream: str

    @property
    def name(self) -> str:
        return self.key or self.code


@cache
def active(release: str) -> dict[str, set[str]]:
    """The codes, and the keys of the inert entries, that a release has, for each entry point."""
    found = {}
    known = [catalog.method(method, release) for method in ("verl/grpo", "verl/sft")]
    for method in [*known, *map(partial(program, release), PROGRAMS)]:
        checks, inert = programs.rules(method, release)
        found[method.spec["entry"]] = {rule["code"] for rule in checks} | {rule["key"] for rule in inert}
    return found


def program(release: str, entry: str) -> Method:
    """What is known of a program that no method runs."""
    found = catalog.program("verl", release, entry)
    assert found is not None
    return found


def having(case: Case) -> list[str]:
    """The releases that have the rule of a case."""
    return [release for release in RELEASES if case.name in active(release)[case.outside.entry]]


@cache
def _document() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DATA / "verl_rules.yaml").read_text("utf-8"))
    return loaded


def cases() -> Iterator[Case]:
    document = _document()
    for code, spec in document["rules"].items():
        yield _case(code, "", spec)
    for key, spec in document["inert"].items():
        yield _case(spec.get("code", "inert-key"), _long(spec.get("key", key)), spec)


def _case(code: str, key: str, spec: Mapping[str, Any]) -> Case:
    def command(side: str) -> Command:
        group = _group(spec.get("group", "rl"))
        facts = spec.get(f"{side}_facts", spec.get("facts", {}))
        return Command(
            group["entry"],
            _replaced(group["args"], _words(spec.get(side, ""))),
            spec.get("nodes", group["nodes"]),
            group["gpus_per_node"],
            facts,
        )

    says = frozenset(spec.get("says", ()))
    return Case(code, key, command("out"), command("in"), says, spec.get("upstream", ""))


@cache
def _group(name: str) -> Mapping[str, Any]:
    group = _document()["groups"][name]
    if "base" not in group:
        return {**group, "args": _words(group["args"])}
    base = _group(group["base"])
    return {**base, **group, "args": _replaced(base["args"], _words(group["args"]))}


def _words(text: str) -> list[str]:
    return [_long(word) for word in text.split()]


def _long(word: str) -> str:
    sign = word[: len(word) - len(word.lstrip("+-~"))]
    head, dot, rest = word[len(sign) :].partition(".")
    return sign + _document()["short"].get(head, head) + dot + rest


def _replaced(base: list[str], words: list[str]) -> list[str]:
    keys = {word.lstrip("+-~").partition("=")[0] for word in words}
    kept = [word for word in base if word.lstrip("+~").partition("=")[0] not in keys]
    return [*kept, *(word for word in words if not word.startswith("-"))]
