"""Which methods read the rows that a file has, with nothing set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuneport.checks.columns import kinds, readings
from tuneport.errors import TuneportError
from tuneport.registry import catalog
from tuneport.types import Json, Method


def methods(framework: str, facts: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """(method, what it does), in the catalogue's order.

    Args:
        framework: only its methods; all where it is empty.
        facts: what `tables.read` tells of the file.
    """
    for name, _, problem in catalog.methods(framework):
        if problem:
            continue
        try:
            method = catalog.method(name)
        except TuneportError:  # said by whoever needs it
            continue
        if fits(method, facts):
            yield name, str(method.spec.get("summary") or method.title)


def fits(method: Method, facts: Mapping[str, Json]) -> bool:
    """Whether one of the method's readings takes these rows, and all that it makes beside (`also`). Columns
    that keys name go by their usual names; one that no key names is not asked for."""
    own = [spec for spec in readings(method) if not spec.get("also")]
    return any(_takes(spec, facts) for spec in own) and all(
        _takes(spec, facts) for spec in readings(method) if spec.get("also")
    )


def _takes(spec: Mapping[str, Any], facts: Mapping[str, Json]) -> bool:
    shapes: Mapping[str, Mapping[str, int]] = facts.get("shapes", {})
    there = {*facts["columns"], *shapes}
    for form in spec["rows"]:
        usual = {_usual(spec, name): wants for name, wants in form.items()}
        usual.pop("", None)
        if usual and all(
            name in there and set(shapes.get(name, ())) <= {*kinds(wants), "empty"}
            for name, wants in usual.items()
        ):
            return True
    return False


def _usual(spec: Mapping[str, Any], name: str) -> str:
    named = spec.get("named", {})
    return str(named[name].get("otherwise", "")) if name in named else name
