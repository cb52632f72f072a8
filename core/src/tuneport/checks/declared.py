"""Judges the values of a release that checks its whole configuration against declared classes first.

It converts what can be converted without loss, as pydantic does: digits in text are a number, 0 and 1 a
switch, but a number is no text. A section that says `enabled: false` may hold anything: no class is asked
about it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tuneport.checks import surface
from tuneport.types import Context, Finding, Json, Key, Severity

_SWITCHES = frozenset(["0", "1", "on", "off", "t", "f", "true", "false", "y", "n", "yes", "no"])


def severity(context: Context, key: Key, value: Json) -> Severity | None:
    """How badly a value fails to be what a declared key holds; None where the release takes it."""
    if key.inferred or accepted(value, key.types):
        return None
    return "warning" if idle(context, key.name) else "error"


def accepted(value: Json, types: tuple[str, ...]) -> bool:
    """Whether one of the kinds takes a value, as it is or converted."""
    kind = surface.kind_of(value)
    return "any" in types or kind in types or any(_converts(value, kind, wanted) for wanted in types)


def _converts(value: Json, kind: str, wanted: str) -> bool:
    if wanted == "int":
        return (
            kind == "bool"
            or (kind == "float" and float(value).is_integer())
            or (kind == "str" and _is_number(value, int))
        )
    if wanted == "float":
        return kind in ("int", "bool") or (kind == "str" and _is_number(value, float))
    if wanted == "bool":
        return (kind in ("int", "float") and value in (0, 1)) or (
            kind == "str" and value.lower() in _SWITCHES
        )
    return False


def _is_number(text: str, kind: type) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def idle(context: Context, name: str) -> bool:
    """Whether a section above a key says that it is off."""
    parts = name.split(".")
    above = (".".join(parts[:count]) for count in range(1, len(parts)))
    return any(context.config.get(f"{branch}.enabled") is False for branch in above)


def missing(context: Context) -> Iterator[Finding]:
    """Errors for keys that a class asks for and that are not there, though their section is."""
    composed = context.release.composed
    assert composed is not None
    gone = tuple(context.request.native.get("delete", ()))
    held = (
        name
        for name, key in context.release.keys.items()
        if not key.add and not any(name == one or name.startswith(f"{one}.") for one in gone)
    )
    present: set[str] = set()
    for name in (*held, *context.own):
        while name and name not in present:
            present.add(name)
            name = name.rpartition(".")[0]
    for name, source in composed.needed.items():
        parent = name.rpartition(".")[0]
        if name in present or (parent and parent not in present) or parent in context.config:
            continue
        if not idle(context, name):
            message = f"{surface.what(context)} needs `{name}`, and it is not there"
            hint = f"set `{name}`, or build on a file of the release that has it"
            where = f"{context.release.framework} {context.release.version} {source}"
            yield Finding("key-required", "error", message, hint, name, source=where)
