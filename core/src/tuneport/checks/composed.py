"""Judges the keys of a release that composes its configuration and checks few types itself.

Such a release takes a number for text, or one path for a list of them. So a type that only the default
shows is a guess, and what is said here is what goes wrong later: text where a number is reckoned with, a
mapping where a list is walked, a value that the code refuses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace

from tuneport.checks import declared, surface
from tuneport.compiler.layers import NATIVE_LAYERS
from tuneport.text import closest, closest_key
from tuneport.types import Context, Finding, Json, Key, Origin, Ref, Severity

_NUMBERS = {"int", "float"}
_UNKNOWN: Json = object()


def check(context: Context, raw: Mapping[str, str], judged: Set[str]) -> Iterator[Finding]:
    """Findings for every key above the defaults; see `surface.check`."""
    keys = context.release.keys
    assert context.release.composed is not None
    branches = {name.rpartition(".")[0] for name in keys}
    moves = {move["from"]: move for move in context.release.spec.get("moves", ())}
    said = unjudged = 0
    for name, value in context.own.items():
        origin = context.origins[name]
        if isinstance(value, Ref) or name in judged:
            continue
        if name not in context.config:
            yield from _unresolved(context, name, origin)
        key = keys.get(name)
        if key is not None:
            yield from _value(context, key, value, origin, raw.get(name, ""))
        elif name not in branches:
            if said >= surface.MAX_UNKNOWN:
                unjudged += 1
                continue
            for finding in _absent(context, name, origin, moves):
                said += 1
                yield finding
    if unjudged:
        message = f"{unjudged} more keys that {surface.what(context)} does not list were not looked at"
        yield Finding("key-unknown", "warning", message, "mend those above first")
    if context.release.composed.open:
        yield from declared.missing(context)
    for name in context.request.native.get("delete", ()):
        there = (name in keys and not keys[name].add) or any(key.startswith(f"{name}.") for key in keys)
        if not there and not context.release.composed.open:
            message = f"native.delete: there is no key `{name}` to delete"
            yield Finding("hydra-override", "error", message, "take it out of the list", name)


def softened(context: Context, findings: Iterable[Finding], ruled: Iterable[Finding]) -> list[Finding]:
    """Findings, with a warning in place of an error about a key that a rule says does nothing: what its
    section would be built into is never built, so nothing is there to refuse it. A key that is not there
    still is."""
    idle = {finding.key for finding in ruled if finding.code == "inert-key"}

    def harmless(finding: Finding) -> bool:
        if context.release.composed is None or finding.key not in idle or finding.severity != "error":
            return False
        added = finding.key in context.origins and context.origins[finding.key].layer == "native.append"
        return finding.code in ("key-type", "key-choice") or (finding.code == "key-unknown" and added)

    return [replace(finding, severity="warning") if harmless(finding) else finding for finding in findings]


def _unresolved(context: Context, name: str, origin: Origin) -> Iterator[Finding]:
    """What is wrong with an interpolation that has no value, unless only the running job knows."""
    from tuneport.dialects.hydra.interpolate import fault

    keys = context.release.keys.values()
    flat = {key.name: "???" if key.required else key.default for key in keys if not key.add}
    literal = {key for key, set_by in context.origins.items() if set_by.layer not in NATIVE_LAYERS}
    composed = context.release.composed
    why = fault({**flat, **context.own}, name, literal, composed.resolvers if composed else {})
    if why:
        message = f"`{name}` is {surface.show(context.own[name])}, which leads nowhere: {why}"
        hint = "name a key that is there, or write \\${ for the characters themselves"
        yield Finding("key-interpolation", "error", message, hint, name, origin.file, origin.line)


def _absent(
    context: Context, name: str, origin: Origin, moves: Mapping[str, Mapping[str, Json]]
) -> Iterator[Finding]:
    """A key that the surface does not have: inside a free mapping, of a class that lacks it, or unknown."""
    composed = context.release.composed
    assert composed is not None
    place = (name, origin.file, origin.line)
    holder = surface.ancestor(name, context.release.keys)
    if holder is not None:
        return
    parts = name.split(".")
    above = [".".join(parts[:count]) for count in range(1, len(parts))]
    if any(branch in composed.free for branch in above):
        return
    if composed.open:
        moved = name in moves
        yield from (
            [surface.unknown(context, name, origin, moves, closed=True)]
            if moved
            else _new(context, name, origin)
        )
        return
    parent = name.rpartition(".")[0]
    known = composed.classes.get(parent, "")
    if known and name not in moves:
        close = closest_key(name, (key for key in context.release.keys if key.startswith(f"{parent}.")))
        message = f"`{name}`: {known.rpartition('.')[2]}, which `{parent}` is built into, takes no such field"
        hint = f"did you mean `{close}`?" if close else "delete it"
        made = composed.built is None or any(part in composed.built for part in parts[:-1])
        yield Finding("key-unknown", "error" if made else "warning", message, hint, *place)
    elif origin.layer == "native.append":
        new = next((p for p, b in zip(parts[1:], above, strict=True) if not _holds(context, b, p)), parts[-1])
        if composed.names and f" {new} " not in f" {composed.names} ":
            message = f"`{name}` is added, and nothing in {surface.what(context)} reads a key called {new}"
            close = closest_key(name, context.release.keys, cutoff=0.8)
            yield Finding(
                "key-unread", "warning", message, f"did you mean `{close}`?" if close else "", *place
            )
    else:
        yield surface.unknown(context, name, origin, moves, closed=True)


def _new(context: Context, name: str, origin: Origin) -> Iterator[Finding]:
    """What is said of a key that no file of the release has, where a file may hold any: a warning where no
    code reads a key of that name, or where a class lists the keys of its branch and one of them is all but
    the same."""
    composed = context.release.composed
    assert composed is not None
    if any(name in param.keys for param in context.method.params.values()):
        return  # the method itself gives it a meaning
    if name.rpartition(".")[0] in composed.closed:
        message = f"`{name}`: {surface.what(context)} refuses every key there that it does not declare"
        close = closest_key(name, context.release.keys, cutoff=0.8)
        hint = f"did you mean `{close}`?" if close else "delete it"
        yield Finding("key-unknown", "error", message, hint, name, origin.file, origin.line)
        return
    parent, _, last = name.rpartition(".")
    while parent and not any(key.startswith(f"{parent}.") for key in context.release.keys):
        parent, _, last = parent.rpartition(".")
    typed = parent in composed.classes
    beside = [key for key in context.release.keys if key.startswith(f"{parent}." if parent else "")]
    close = closest_key(name, beside if typed else context.release.keys, cutoff=0.8)
    read = last not in composed.unread and (not composed.names or f" {last} " in f" {composed.names} ")
    if read and not (typed and close.rpartition(".")[0] == name.rpartition(".")[0] and close):
        return
    what = surface.what(context)
    message = f"`{name}`: {what} has no such key, takes it from a file all the same, and nothing reads it"
    if read:
        message = f"`{name}`: {what} declares no such key there, and takes it from a file all the same"
    hint = f"did you mean `{close}`?" if close else "delete it, or look for its present name"
    yield Finding("key-unread", "warning", message, hint, name, origin.file, origin.line)


def _holds(context: Context, branch: str, part: str) -> bool:
    """Whether the surface has something called `part` in a branch."""
    name = f"{branch}.{part}"
    return name in context.release.keys or any(key.startswith(name + ".") for key in context.release.keys)


def _value(context: Context, key: Key, value: Json, origin: Origin, raw: str) -> Iterator[Finding]:
    if isinstance(value, str) and "${" in value:
        value = context.config.get(key.name, _UNKNOWN)
        if value is _UNKNOWN:
            return
    composed = context.release.composed
    declares = composed is not None and composed.open
    severity = declared.severity(context, key, value) if declares else misfit(value, key)
    place = (key.name, origin.file, origin.line, surface.source_of(context, key))
    if severity is not None:
        message = (
            f"`{key.name}` is {surface.show(value)} where {surface.what(context)} takes {surface.kinds(key)}"
        )
        yield Finding("key-type", severity, message, _hint(key, value, raw), *place)
    elif key.choices and value not in key.choices and isinstance(value, str | int | float):
        close = closest(str(value), map(str, key.choices))
        message = (
            f"`{key.name}` is {surface.show(value)}; {surface.what(context)} takes {surface.options(key)}"
        )
        hint = f"did you mean {close!r}?" if close else ""
        certain = key.choices_from or (declares and not declared.idle(context, key.name))
        sure: Severity = "error" if certain else "warning"
        where = f"{context.release.framework} {context.release.version} {key.choices_from}"
        yield Finding("key-choice", sure, message, hint, *place[:3], where if key.choices_from else place[3])
    elif isinstance(value, str) and value.lower() == "none" and "null" in key.types:
        message = f"`{key.name}` is the text {value!r}, not the absence of a value"
        yield Finding("key-none", "warning", message, f"write {key.name}=null", *place)


def misfit(value: Json, key: Key) -> Severity | None:
    """How badly a value fails to be what a key holds; None where it may do."""
    if value == "" and isinstance(value, str) and "str" not in key.types and "any" not in key.types:
        return "warning"  # most often a shell variable that was not set, and a false one at that
    if isinstance(value, float) and math.isnan(value):
        return "warning"
    types = set(key.types)
    kind = surface.kind_of(value)
    if "any" in types or kind in types or kind == "any":
        return None
    if kind == "null":
        return None if key.inferred else "warning"
    if kind == "int":
        if "float" in types or "str" in types or ("bool" in types and value in (0, 1)):
            return None
        return "error" if types <= {"list", "dict", "null"} else "warning"
    if kind == "float":
        return None if "str" in types else ("warning" if types & {"int", "bool"} else "error")
    if kind == "bool":
        return "warning" if types & {"int", "float", "str"} else "error"
    if kind == "str":
        if types & {"list"} and not types & (_NUMBERS | {"bool"}):
            return None if key.inferred else "warning"
        return "error"
    if kind == "list" and "str" in types:
        return None if key.inferred else "warning"
    return "error"


def _hint(key: Key, value: Json, raw: str) -> str:
    if isinstance(value, str) and value.lower() in ("none", "nil", "undefined", ""):
        if "null" in key.types:
            return f"write {key.name}=null"
        return f"leave it out: the default is {surface.show(key.default)}"
    if isinstance(value, str) and "bool" in key.types and value.lower() in ("yes", "no", "on", "off"):
        return f"write {key.name}={'true' if value.lower() in ('yes', 'on') else 'false'}"
    return surface.type_hint(key, value, raw)
