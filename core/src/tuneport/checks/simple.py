"""Expressions that need no more than comparisons, arithmetic and a few functions, decided without the engine.

Loading the engine and compiling what a method's rules ask takes longer than all else that is done with
them. What is not known here, and what the engine would refuse, is left to the engine; tests hold every
decision to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import add, ge, gt, le, lt, mul, sub
from typing import Any, NamedTuple

from tuneport.registry import store
from tuneport.registry.digest import sha256
from tuneport.types import Json

Node = Sequence[Json]
Variables = Mapping[str, Json]
Paths = Sequence[tuple[str, ...]]

_EXACT = 2**53
"""Beyond it a double does not hold every whole number."""
_LIMIT = 2**63
"""Beyond it the engine's whole numbers overflow."""
_MOST = 1_000
"""Longer lists are the engine's, which is faster and bounds its work."""
_STEPS = 10_000
"""Beyond so many elements visited the rest is left to the engine, whose bound then says no."""
_PART = 32
"""So many parts of an expression, or elements searched, count for one element visited."""
_LEFT = ""
"""The name, which no variable can have, of the steps that are left to an evaluation."""
_TYPES = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    float: "double",
    str: "string",
    list: "list",
    dict: "map",
}


class Missing(NamedTuple):
    """What comes of an expression that needs an entry that is not there.

    Attributes:
        name: the first part of the path that is missing.
    """

    name: str


class _Type(NamedTuple):
    name: str


class _Open:
    pass


OPEN = _Open()
"""What comes of an expression that only the engine can decide."""


class Plan(NamedTuple):
    """What need be found out once about some expressions: the tree of each (None for one that only the engine
    can read), and the paths of `cfg` that each names, None where it takes it as a whole."""

    trees: Mapping[str, Node | None]
    paths: Mapping[str, Paths | None]

    def open_paths(self, variables: Variables) -> Paths | None:
        """The paths of what is left to the engine, longer ones before what holds them; None for all."""
        found: set[tuple[str, ...]] = set()
        for source, paths in self.paths.items():
            if decided(self.trees[source], variables) is OPEN:
                if paths is None:
                    return None
                found.update(map(tuple, paths))
        return sorted(found, reverse=True)


@lru_cache(maxsize=32)
def planned(sources: tuple[str, ...], paths: Callable[[tuple[str]], Paths | None]) -> Plan:
    """The plan of some expressions, kept until one of them changes.

    Args:
        sources: expressions within the bounds of `checks.cel`.
        paths: finds the paths of one expression.
    """
    key = sha256("\0".join(sources).encode("utf-8", "replace")).hexdigest()
    place = f"expressions-{key[:8]}"
    kept = store.load(place, key)
    if kept is None:
        from tuneport.checks.simple_syntax import read

        kept = [[read(source), paths((source,))] for source in sources]
        store.save(place, key, kept)
    trees = {source: found[0] for source, found in zip(sources, kept, strict=True)}
    return Plan(trees, {source: found[1] for source, found in zip(sources, kept, strict=True)})


def decided(tree: Node | None, variables: Variables) -> Any:
    """What an expression comes to, within bounded work: a value, `Missing`, or `OPEN`."""
    return value(tree, {**variables, _LEFT: [_STEPS]})


def value(tree: Node | None, variables: Variables) -> Any:
    """What a part of an expression comes to, out of the steps of the whole."""
    return _KINDS[tree[0]](tree, variables) if tree else OPEN


def _open(_node: Node, _variables: Variables) -> Any:
    return OPEN


def _is(node: Node, _variables: Variables) -> Any:
    return node[1]


def _typename(node: Node, _variables: Variables) -> Any:
    return _Type(node[1])


def _path(node: Node, variables: Variables) -> Any:
    here = variables.get(node[1], OPEN)
    for part in node[2:]:
        if type(here) is not dict:
            return OPEN
        if part not in here:
            return Missing(part)
        here = here[part]
    return here


def _has(node: Node, variables: Variables) -> Any:
    here = _path(node[:-1], variables)
    return node[-1] in here if type(here) is dict else here if type(here) is Missing else OPEN


def _and(node: Node, variables: Variables) -> Any:
    return _joined(node, variables, False)


def _or(node: Node, variables: Variables) -> Any:
    return _joined(node, variables, True)


def _joined(node: Node, variables: Variables, settles: bool) -> Any:
    """One operand that settles the whole does so even where another cannot be told."""
    said: Any = not settles
    for operand in node[1:]:
        found = _KINDS[operand[0]](operand, variables)
        if found is settles:
            return settles
        if type(found) is not bool and said is not OPEN:
            said = found if type(found) is Missing else OPEN
    return said


def _not(node: Node, variables: Variables) -> Any:
    found = value(node[1], variables)
    return not found if type(found) is bool else found if type(found) is Missing else OPEN


def _choice(node: Node, variables: Variables) -> Any:
    found = value(node[1], variables)
    if type(found) is bool:
        return value(node[2] if found else node[3], variables)
    return found if type(found) is Missing else OPEN


def _list(node: Node, variables: Variables) -> Any:
    found = [value(item, variables) for item in node[1:]]
    return _unknown(*found) or found


def _all(node: Node, variables: Variables) -> Any:
    return _each(node, variables, False)


def _exists(node: Node, variables: Variables) -> Any:
    return _each(node, variables, True)


def _each(node: Node, variables: Variables, settles: bool) -> Any:
    items = value(node[1], variables)
    if type(items) is not list or len(items) > _MOST:
        return items if type(items) is Missing else OPEN
    inner = dict(variables)
    left = variables[_LEFT]
    cost = 1 + _parts(node[3]) // _PART
    for item in items:
        left[0] -= cost
        if left[0] < 0:
            return OPEN
        inner[node[2]] = item
        found = value(node[3], inner)
        if type(found) is not bool:
            return OPEN
        if found is settles:
            return settles
    return not settles


def _parts(node: Node) -> int:
    return 1 + sum(_parts(part) for part in node if type(part) is list)


def _member(node: Node, variables: Variables) -> Any:
    item, items = (_KINDS[operand[0]](operand, variables) for operand in node[1:])
    if type(items) is list:
        variables[_LEFT][0] -= len(items) // _PART
    return _unknown(item, items) or _in(item, items)


def _strict(work: Callable[..., Any]) -> Callable[[Node, Variables], Any]:
    """A function of values, all of which must be known."""

    def evaluate(node: Node, variables: Variables) -> Any:
        given = [_KINDS[operand[0]](operand, variables) for operand in node[1:]]
        return _unknown(*given) or work(*given)

    return evaluate


def _unknown(*given: Any) -> Missing | _Open | None:
    """What is certain to end an evaluation before what may."""
    kinds = [type(one) for one in given]
    if Missing in kinds:
        return given[kinds.index(Missing)]  # type: ignore[no-any-return]
    return OPEN if _Open in kinds else None


def _equal(left: Json, right: Json) -> Any:
    kinds = {type(left), type(right)}
    if kinds <= {int, float}:
        return left == right if abs(left) < _EXACT and abs(right) < _EXACT else OPEN
    if len(kinds) == 1:
        return left == right if kinds <= {str, bool, type(None), _Type} else OPEN
    return False if kinds <= _TYPES.keys() or type(None) in kinds else OPEN


def _unequal(left: Json, right: Json) -> Any:
    said = _equal(left, right)
    return said if said is OPEN else not said


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Json, Json], Any]:
    def work(left: Json, right: Json) -> Any:
        plain = {type(left), type(right)} <= {int, float} and abs(left) < _EXACT and abs(right) < _EXACT
        return compare(left, right) if plain else OPEN

    return work


def _in(item: Json, items: Json) -> Any:
    if type(items) is not list or len(items) > _MOST:
        return OPEN
    found = [_equal(item, one) for one in items]
    return OPEN if OPEN in found else True in found


def _computed(work: Callable[[Any, Any], Any]) -> Callable[[Json, Json], Any]:
    def compute(left: Json, right: Json) -> Any:
        if {type(left), type(right)} == {int}:
            result = work(left, right)
            return result if max(abs(left), abs(right), abs(result)) < _LIMIT else OPEN
        return work(left, right) if {type(left), type(right)} == {float} else OPEN

    return compute


def _quotient(left: Json, right: Json) -> Any:
    return left // right if _counts(left, right) else OPEN


def _remainder(left: Json, right: Json) -> Any:
    return left % right if _counts(left, right) else OPEN


def _counts(left: Json, right: Json) -> bool:
    """Whether Python and CEL divide the two alike: they round unlike below zero."""
    return type(left) is type(right) is int and 0 <= left < _LIMIT and 0 < right < _LIMIT


def _size(held: Json) -> Any:
    return len(held) if type(held) in (str, list, dict) else OPEN


def _type(given: Json) -> Any:
    kind = type(given)
    return _Type(_TYPES[kind]) if kind in _TYPES and (kind is not int or abs(given) < _EXACT) else OPEN


def _double(number: Json) -> Any:
    return float(number) if type(number) in (int, float) and abs(number) < _EXACT else OPEN


def _int(number: Json) -> Any:
    return int(number) if type(number) in (int, float) and abs(number) < _EXACT else OPEN


def _text(work: Callable[[str, str], bool]) -> Callable[[Json, Json], Any]:
    def ask(held: Json, part: Json) -> Any:
        return work(held, part) if type(held) is type(part) is str else OPEN

    return ask


_KINDS: dict[str, Callable[[Node, Variables], Any]] = {
    "open": _open,
    "is": _is,
    "typename": _typename,
    "path": _path,
    "has": _has,
    "list": _list,
    "&&": _and,
    "||": _or,
    "!": _not,
    "?": _choice,
    "all": _all,
    "exists": _exists,
    "==": _strict(_equal),
    "!=": _strict(_unequal),
    "<": _strict(_ordered(lt)),
    "<=": _strict(_ordered(le)),
    ">": _strict(_ordered(gt)),
    ">=": _strict(_ordered(ge)),
    "in": _member,
    "+": _strict(_computed(add)),
    "-": _strict(_computed(sub)),
    "*": _strict(_computed(mul)),
    "/": _strict(_quotient),
    "%": _strict(_remainder),
    "size": _strict(_size),
    "type": _strict(_type),
    "double": _strict(_double),
    "int": _strict(_int),
    "contains": _strict(_text(str.__contains__)),
    "startsWith": _strict(_text(str.startswith)),
    "endsWith": _strict(_text(str.endswith)),
}
