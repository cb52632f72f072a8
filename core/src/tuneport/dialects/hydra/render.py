"""The effective configuration as Hydra overrides: group choices, then only what differs from the defaults."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tuneport.compiler.layers import NATIVE_LAYERS
from tuneport.dialects import Rendered
from tuneport.dialects.hydra.choices import CONFIG
from tuneport.dialects.hydra.quote import is_path, override
from tuneport.errors import Invalid
from tuneport.types import Context, Json, Key, Ref, Value

_HOLE = "\0"


def render_overrides(settings: Mapping[str, Json], context: Context) -> Rendered:
    """Settings: `args`, words that come first as they are (for Hydra's own keys).

    Raises:
        Invalid: a key or value has no spelling in Hydra's grammar.
    """
    words: list[Value] = list(settings.get("args", ()))
    composed = context.release.composed
    for name, option in composed.chosen.items() if composed else ():
        word = f"{name}={option}" if option else name
        words.append(f"{CONFIG}-name={option}" if name == CONFIG else word)
    words += [f"~{name}" for name in context.request.native.get("delete", ())]
    keys, branches = context.release.keys, branches_of(context.release.keys)
    for name in sorted(context.own):
        native = context.origins[name].layer in NATIVE_LAYERS
        for key, value, sign in _settings(name, context.own[name], keys, branches):
            words.append(_word(key, value, sign, literal=not native))
    return Rendered(argv=tuple(words))


def _settings(
    name: str, value: Json, keys: Mapping[str, Key], branches: frozenset[str]
) -> Iterator[tuple[str, Json, str]]:
    """(key, value, sign) of the overrides that bring one key to a value."""
    key = keys.get(name)
    if key is not None and not key.required and equal(value, key.default) and not (key.add and value is None):
        return
    there = (key is not None and not key.add) or name in branches
    if there and _clashes(value, key.default if key is not None else {}):
        yield name, None, "~"
        there, key = False, None
    merges = (there and name in branches) or (key is not None and isinstance(key.default, dict))
    if (
        isinstance(value, dict)
        and (merges or not there)
        and value
        and all(_is_step(inner) for inner in value)
    ):
        # A mapping is merged into the one that is there: each of its keys is new, unless the tree has it.
        for inner, item in value.items():
            yield from _settings(f"{name}.{inner}", item, keys, branches)
    elif isinstance(value, dict) and merges and value:
        yield name, value, "+"
    else:
        yield name, value, "" if there else ("++" if _leads_elsewhere(name, keys) else "+")


def _leads_elsewhere(name: str, keys: Mapping[str, Key]) -> bool:
    """Whether a key lies below one that is an interpolation. What that leads to may have the key, and then
    `+` is refused, though it is the interpolation that gives way."""
    while "." in name:
        name = name.rpartition(".")[0]
        if name in keys and not keys[name].add:
            default = keys[name].default
            return isinstance(default, str) and "${" in default
    return False


def _clashes(value: Json, default: Json) -> bool:
    """Whether a list meets a mapping: neither is merged into the other, so what is there has to go first."""
    return (isinstance(value, dict) and isinstance(default, list)) or (
        isinstance(value, list) and isinstance(default, dict)
    )


def _word(key: str, value: Json, sign: str, *, literal: bool) -> Value:
    """One override. A reference in the value becomes the word's own: what stands around it is its prefix
    and suffix, quoted, and what a fleet puts in must need no quoting."""
    refs: list[Ref] = []

    def hollow(item: Any) -> Any:
        if isinstance(item, Ref):
            refs.append(item)
            return f"{item.prefix}{_HOLE}{item.suffix}"
        if isinstance(item, list):
            return [hollow(part) for part in item]
        return {name: hollow(part) for name, part in item.items()} if isinstance(item, dict) else item

    if sign == "~":
        return f"~{key}"
    text = override(key, hollow(value), sign, literal=literal)
    if not refs:
        return text
    if len(refs) > 1:
        message = f"`{key}` depends on {len(refs)} places that only the fleet knows; one word can hold one"
        raise Invalid(message, code="dialect-value", hint="give one path")
    prefix, _, suffix = text.partition(_HOLE)
    return Ref(refs[0].ref, suffix, refs[0].name, prefix, plain=True)


def equal(left: Json, right: Json) -> bool:
    """Equal and of the same types all the way down: 1, 1.0 and true are three values."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[name], right[name]) for name in left)
    return bool(left == right)


def branches_of(keys: Mapping[str, Key]) -> frozenset[str]:
    """Every dotted name that holds keys of the tree."""
    found: set[str] = set()
    for name, key in keys.items():
        while not key.add and "." in name:
            name = name.rpartition(".")[0]
            if name in found:
                break
            found.add(name)
    return frozenset(found)


def _is_step(name: str) -> bool:
    return "." not in name and is_path(f"a.{name}")
