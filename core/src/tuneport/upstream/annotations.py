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
    """One member of a union. `choices` is filled for enumerations and literals, with all their values."""

    kind: str
    choices: tuple[Any, ...] = ()


def members(sources: Sources, module: str, annotation: ast.expr) -> tuple[Member, ...]:
    """The members of an annotation in order, `Optional` and nested unions flattened."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return members(sources, module, ast.parse(annotation.value, mode="eval").body)
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return _unique(
            [*members(sources, module, annotation.left), *members(sources, module, annotation.right)]
        )
    if isinstance(annotation, ast.Subscript):
        return _subscript(sources, module, annotation)
    name = ast.unparse(annotation).split(".")[-1]
    if name in _KINDS:
        return (Member(_KINDS[name]),)
    found = sources.find(module, name)
    values = enum_values(sources, found) if found is not None else None
    return (Member("any"),) if values is None else (Member("str", tuple(values)),)


def _subscript(sources: Sources, module: str, annotation: ast.Subscript) -> tuple[Member, ...]:
    name = ast.unparse(annotation.value).split(".")[-1]
    inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    if name == "Literal":
        values = [evaluate(sources, module, item) for item in inner]
        kinds = dict.fromkeys(_kind_of(value) for value in values)
        return tuple(Member(kind, tuple(values)) for kind in kinds)
    if name in ("Optional", "Union"):
        flat = [member for item in inner for member in members(sources, module, item)]
        return _unique([*flat, Member("null")] if name == "Optional" else flat)
    return (Member(_KINDS.get(name, "any")),)


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    return "any" if value is UNKNOWN else _KINDS.get(type(value).__name__, "any")


def _unique(found: Sequence[Member]) -> tuple[Member, ...]:
    return tuple(dict.fromkeys(found))
