"""What a compiled experiment says in canonical parameters, whatever it was written in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from tuneport.experiment import import_parts as parts
from tuneport.registry import vocabulary
from tuneport.types import Context, Json, Method, Ref

PERSON = ("config.yaml", "job.yaml", "--set", "native.append")
"""Layers that a person writes."""


@dataclass(frozen=True, slots=True)
class Said:
    """A parameter's value as it takes effect; `asked`: a person set it, rather than a default."""

    value: Json
    asked: bool


def values(context: Context) -> dict[str, Said]:
    """Every parameter of the method whose native keys hold a value of its own, in its own unit.

    A value that follows from others is among them: `follows` of a parameter, and the vocabulary's sums.
    """
    literal = {key: value for key, value in context.config.items() if not isinstance(value, Ref)}
    found = parts.parameters(literal, context, context.method, once=False)
    said = {
        name: Said(value, any(_by_person(context, key) for key in keys))
        for name, (value, keys) in found.items()
    }
    for name, value in context.request.params.items():  # a switch may hide the key that it writes
        said.setdefault(name, Said(value, asked=True))
    for name, other in following(context.method).items():
        if name not in said and other in said:
            said[name] = Said(said[other].value, asked=False)
    return said | {name: one for name, one in summed(said).items() if name not in said}


def following(method: Method) -> Mapping[str, str]:
    """Parameters that take another one's value unless they are set: name -> the other."""
    return {name: param.follows for name, param in method.params.items() if param.follows}


def summed(said: Mapping[str, Said]) -> dict[str, Said]:
    """What the vocabulary's sums add to known values: the total of its parts, or the last part of a total."""
    found: dict[str, Said] = {}
    for total, names in _sums().items():
        known = {name: number for name in (total, *names) if (number := _number(said.get(name))) is not None}
        missing = [name for name in (total, *names) if name not in known]
        if len(missing) != 1:
            continue
        (name,) = missing
        rest = sum(known[part] for part in names if part in known)
        value = rest if name == total else known[total] - rest
        if value > 0:
            found[name] = Said(value, any(said[one].asked for one in known))
    return found


@cache
def _sums() -> Mapping[str, list[str]]:
    return {name: word["sum"] for name, word in vocabulary.words().items() if "sum" in word}


def _number(said: Said | None) -> int | None:
    value = said.value if said is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _by_person(context: Context, key: str) -> bool:
    origin = context.origins.get(key)
    return origin is not None and origin.layer in PERSON


@cache
def shapes_result() -> frozenset[str]:
    """Parameters that change what is learned, rather than where or how fast: two experiments that agree on
    them can be compared."""
    return frozenset(name for name, word in vocabulary.words().items() if word.get("result"))


@cache
def own_words() -> frozenset[str]:
    """Parameters whose values are names that each framework chooses for itself."""
    return frozenset(name for name, word in vocabulary.words().items() if word.get("names"))
