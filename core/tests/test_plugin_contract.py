"""The recorded contract: only additions pass, and a plugin of the first one goes on working."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from tuneport.testing import Options, check_plugin, contract

from .core_support import DATA

FIRST = DATA / "contract-1.json"


def test_the_record_is_the_code() -> None:
    assert contract.breaks(contract.recorded(), contract.current()) == []
    assert contract.recorded() == contract.current(), (
        "record the addition: python -m tuneport.testing.contract"
    )


def test_nothing_of_the_first_contract_is_gone() -> None:
    assert contract.breaks(contract.recorded(FIRST), contract.recorded()) == []


def test_a_plugin_of_the_first_contract_keeps_passing() -> None:
    checks = list(check_plugin(str(DATA / "first_contract"), Options(times=3)))
    assert [f"{one.name} {one.subject}: {one.problems}" for one in checks if one.problems] == []
    assert {one.name for one in checks} >= {
        *("load", "hooks", "readme", "schema", "docs", "parameters", "compiles", "pure", "deterministic"),
        *("hostile", "hash seed"),
    }
    kinds = {one.subject.partition("(")[2].rstrip(")") for one in checks if one.name == "load"}
    assert kinds == {"frameworks", "manifests", "policies", "fleets"}


ADDITIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a hook": lambda c: c["hooks"].update(new={"arguments": [], "returns": "None", "firstresult": True}),
    "an argument": lambda c: c["hooks"]["launch"]["arguments"].append(["more", "Json"]),
    "a field with a default": lambda c: c["types"]["Context"].append(["more", "Json", "None"]),
    "a type": lambda c: c["types"].update(New=[["a", "str", ""]]),
    "a Ref": lambda c: c["refs"].append("new_ref"),
    "an error": lambda c: c["errors"].update(New=3),
}
BREAKS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a hook is gone": (lambda c: c["hooks"].pop("export"), "hook export is gone"),
    "an argument is gone": (lambda c: c["hooks"]["export"]["arguments"].pop(), "hook export takes"),
    "an argument is renamed": (
        lambda c: c["hooks"]["launch"]["arguments"].__setitem__(0, ["ctx", "Context"]), "hook launch takes",
    ),
    "an argument in front": (
        lambda c: c["hooks"]["launch"]["arguments"].insert(0, ["a", "str"]), "hook launch takes",
    ),
    "another result": (lambda c: c["hooks"]["launch"].update(returns="str"), "hook launch: returns"),
    "all results": (lambda c: c["hooks"]["launch"].update(firstresult=False), "hook launch: firstresult"),
    "a type is gone": (lambda c: c["types"].pop("Ref"), "type Ref is gone"),
    "a field is gone": (lambda c: c["types"]["Finding"].pop(), "type Finding has the fields"),
    "a field in the middle": (
        lambda c: c["types"]["Finding"].insert(2, ["a", "str", "''"]), "type Finding has the fields",
    ),
    "a field of another type": (
        lambda c: c["types"]["Pool"].__setitem__(0, ["name", "int", ""]), "type Pool has the fields",
    ),
    "another default": (
        lambda c: c["types"]["Finding"].__setitem__(3, ["hint", "str", "'x'"]), "type Finding has",
    ),
    "a field without a default": (
        lambda c: c["types"]["Context"].append(["more", "str", ""]), "the added field more: str has no",
    ),
    "a Ref is gone": (lambda c: c["refs"].remove("output_dir"), "Ref output_dir is gone"),
    "another exit code": (lambda c: c["errors"].update(Invalid=4), "Invalid has exit code 4, not 3"),
    "a fleet's method is gone": (lambda c: c["fleet"].pop("find"), "fleet.find is None"),
    "fleets need another method": (
        lambda c: c["fleet"].update(new={"arguments": [], "returns": "None"}), "fleet.new is",
    ),
    "a fleet's method takes more": (
        lambda c: c["fleet"]["submit"]["arguments"].append(["more", "str"]), "fleet.submit is",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ADDITIONS)
def test_additions_pass(what: str) -> None:
    changed = copy.deepcopy(contract.recorded())
    ADDITIONS[what](changed)
    assert contract.breaks(contract.recorded(), changed) == []


@pytest.mark.parametrize("what", BREAKS)
def test_everything_else_is_named(what: str) -> None:
    change, said = BREAKS[what]
    changed = copy.deepcopy(contract.recorded())
    change(changed)
    (problem,) = contract.breaks(contract.recorded(), changed)
    assert said in problem


def test_the_records_are_data() -> None:
    for path in (FIRST, contract.RECORD):
        assert set(json.loads(path.read_text("utf-8"))) == {"hooks", "types", "refs", "errors", "fleet"}


@pytest.mark.parametrize(
    ("implementation", "said"),
    [
        (lambda context: None, ""),
        (lambda: None, ""),
        (lambda context, extra=1: None, ""),
        (lambda *args, **more: None, ""),
        (lambda ctx: None, "launch takes ctx"),
    ],
)
def test_an_implementation_may_take_less(implementation: Any, said: str) -> None:
    assert contract.unfit(implementation, "launch").startswith(said)
    assert bool(contract.unfit(implementation, "launch")) == bool(said)
