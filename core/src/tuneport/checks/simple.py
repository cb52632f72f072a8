"""Expressions that are plain comparisons joined by `&&`, decided without the engine.

Most rules say nothing because one such comparison fails, and compiling an expression takes longer than all
else that is done with it. What is not plain, or whose value is not of the kind that it is compared with, is
left to the engine; a test holds every decision to the engine's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import eq, ge, gt, le, lt, ne
from typing import Any, NamedTuple

from tuneport.registry import store
from tuneport.types import Json

_EXACT = 2**53
"""Beyond it a double does not hold every whole number."""
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


Paths = Sequence[tuple[str, ...]]


class Plan(NamedTuple):
    """What need be found out once about some expressions: the comparisons of each (None for one that is not
    plain), and the paths of `cfg` that each names, None where it takes it as a whole."""

    comparisons: Mapping[str, Sequence[Json] | None]
    paths: Mapping[str, Paths | None]

    def open_paths(self, variables: Mapping[str, Json]) -> Paths | None:
        """The paths of what is left to the engine, longer ones before what holds them; None for all."""
        found: set[tuple[str, ...]] = set()
        for source, paths in self.paths.items():
            if decided(self.comparisons[source], variables) is None:
                if paths is None:
                    return None
                found.update(map(tuple, paths))
        return sorted(found, reverse=True)


def planned(sources: tuple[str, ...], paths: Callable[[tuple[str]], Paths | None]) -> Plan:
    """The plan of some expressions, kept until one of them changes.

    Args:
        paths: finds the paths of one expression.
    """
    key = hashlib.sha256("\0".join(sources).encode("utf-8", "replace")).hexdigest()
    place = f"expressions-{key[:8]}"
    kept = store.load(place, key)
    if kept is None:
        kept = [[split(source), paths((source,))] for source in sources]
        store.save(place, key, kept)
    comparisons = {source: found[0] for source, found in zip(sources, kept, strict=True)}
    return Plan(comparisons, {source: found[1] for source, found in zip(sources, kept, strict=True)})


def split(source: str) -> list[Json] | None:
    """The comparisons of an expression, each `[negated, path, operator, literal]`, or None for a part that is
    not plain; None as a whole where no part is."""
    compared = _comparison()
    parts: list[Json] = []
    for part in _conjuncts(source):
        match = compared.match(part)
        parts.append(_read(match) if match else None)
    return parts if any(parts) else None


def _conjuncts(source: str) -> Iterator[str]:
    """The operands of `&&` at the top of an expression; it as a whole where something binds less."""
    depth, start, quote, found = 0, 0, "", []
    for at, sign in enumerate(source):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif depth == 0 and (sign == "?" or source.startswith("||", at)):
            yield source
            return
        elif depth == 0 and source.startswith("&&", at):
            found.append(source[start:at])
            start = at + 2
    yield from (*found, source[start:])


def _comparison() -> re.Pattern[str]:
    literal = r"""null|true|false|-?[0-9]+(?:\.[0-9]+)?|'[^'"\\]*'|"[^'"\\]*\""""
    texts = r"""\[\s*((?:'[^'\\]*'|"[^"\\]*")(?:\s*,\s*(?:'[^'\\]*'|"[^"\\]*"))*)\s*\]"""
    path = r"(cfg|request|topology)((?:\.[A-Za-z_][A-Za-z0-9_]*)+)"
    return re.compile(rf"\s*(!?){path}(?:\s*(==|!=|<=|>=|<|>)\s*({literal})|\s+in\s+{texts})?\s*\Z")


def _read(match: re.Match[str]) -> Json:
    negated, root, rest, sign, literal, texts = match.groups()
    path = [root, *rest[1:].split(".")]
    if texts:
        return [bool(negated), path, "in", re.findall(r"['\"]([^'\"]*)['\"]", texts)]
    if not sign:
        return [bool(negated), path, "", True]
    if negated:
        return None  # it negates the path, which is then compared
    words = {"null": None, "true": True, "false": False}
    if literal in words:
        value: Json = words[literal]
    elif literal[0] in "'\"":
        value = literal[1:-1]
    else:
        value = float(literal) if "." in literal else int(literal)
    return [False, path, sign, value]


def decided(comparisons: Sequence[Json] | None, variables: Mapping[str, Json]) -> bool | None:
    """What an expression comes to; None where only the engine can tell."""
    if comparisons is None:
        return None
    sure = True
    for comparison in comparisons:
        said = _holds(variables, *comparison) if comparison else None
        if said is False:
            return False
        sure = sure and bool(said)
    return True if sure else None


def _holds(
    variables: Mapping[str, Json], negated: bool, path: Sequence[str], sign: str, literal: Json
) -> bool | None:
    here: Json = variables
    for part in path:
        if not isinstance(here, dict) or part not in here:
            return None
        here = here[part]
    if sign == "":
        return here is not negated if isinstance(here, bool) else None
    if sign == "in":
        return (here in literal) is not negated if type(here) is str and not negated else None
    if sign in ("==", "!=") and (here is None or literal is None):
        return (here is literal) is (sign == "==") if here is None or _is_plain(here) else None
    kinds = {type(here), type(literal)}
    if kinds == {str} or kinds == {bool}:
        return _OPERATORS[sign](here, literal) if sign in ("==", "!=") else None
    if kinds <= {int, float} and abs(here) < _EXACT:
        return _OPERATORS[sign](here, literal)
    return None


def _is_plain(value: Json) -> bool:
    return type(value) in (str, bool, int, float, list, dict)
