"""Reads a type annotation into the kinds of value it allows."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuneport.upstream.sources import Sources
from tuneport.upstream.static import UNKNOWN, enum_values, evaluate

_KINDS = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "str": "str",
    "list": "list",
    "List": "list",
    "Sequence": "list",
    "tuple": "list",
    "dict": "dict",
    "Dict": "dict",
    "Mapping": "dict",
    "None": "null",
    "Any": "any",
}


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a union. `choices` is filled for enumerations and literals, with all their values; `item`
    is the kind of a list's items, where it is a plain one, and `tuple` for the kind that no word can make."""

    kind: str
    choices: tuple[Any, ...] = ()
    item: str = ""


def members(
    sources: Sources, module: str, annotation: ast.expr, *, aliases: bool = False
) -> tuple[Member, ...]:
    """The members of an annotation in order, `Optional` and nested unions flattened.

    Args:
        aliases: whether a name that stands for another annotation is followed.
    """
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return members(sources, module, ast.parse(annotation.value, mode="eval").body, aliases=aliases)
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        sides = (annotation.left, annotation.right)
        return _unique([one for side in sides for one in members(sources, module, side, aliases=aliases)])
    if isinstance(annotation, ast.Subscript):
        return _subscript(sources, module, annotation, aliases)
    if isinstance(annotation, ast.Constant) and annotation.value is None:
        return (Member("null"),)
    name = ast.unparse(annotation).split(".")[-1]
    if name in _KINDS:
        return (Member(_KINDS[name]),)
    found = sources.find(module, name)
    if aliases and found is not None and isinstance(found.node, ast.Assign):
        return members(sources, found.module, found.node.value, aliases=aliases)
    values = enum_values(sources, found) if found is not None else None
    return (Member("any"),) if values is None else (Member("str", tuple(values)),)


def _subscript(sources: Sources, module: str, annotation: ast.Subscript, aliases: bool) -> tuple[Member, ...]:
    name = ast.unparse(annotation.value).split(".")[-1]
    inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    if name == "Literal":
        values = [evaluate(sources, module, item) for item in inner]
        kinds = dict.fromkeys(_kind_of(value) for value in values)
        return tuple(Member(kind, tuple(values)) for kind in kinds)
    if name in ("Optional", "Union"):
        flat = [one for item in inner for one in members(sources, module, item, aliases=aliases)]
        return _unique([*flat, Member("null")] if name == "Optional" else flat)
    if name in ("NotRequired", "Required", "ReadOnly", "Annotated"):
        return members(sources, module, inner[0], aliases=aliases)
    if _KINDS.get(name) == "list":
        return (Member("list", item=_item(name, inner)),)
    return (Member(_KINDS.get(name, "any")),)


def _item(name: str, inner: Sequence[ast.expr]) -> str:
    """What the items of a list are; nothing where that is no plain kind."""
    if name in ("tuple", "Tuple"):
        return "tuple"
    kind = _KINDS.get(ast.unparse(inner[0]).split(".")[-1], "")
    return kind if kind in ("bool", "int", "float", "str") else ""


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    return "any" if value is UNKNOWN else _KINDS.get(type(value).__name__, "any")


def _unique(found: Sequence[Member]) -> tuple[Member, ...]:
    return tuple(dict.fromkeys(found))
