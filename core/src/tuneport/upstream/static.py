"""Evaluates the few expressions that defaults and choices are written in; everything else is UNKNOWN."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Final

from tuneport.upstream.sources import Definition, Sources, statements


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()
_LITERALS = (ast.Constant, ast.UnaryOp, ast.List, ast.Tuple, ast.Set, ast.Dict)


def evaluate(sources: Sources, module: str, node: ast.expr, names: Mapping[str, Any] = {}) -> Any:
    """The value of an expression of `module`, or UNKNOWN.

    Understands literals, constants of any scanned module, enum members, `dict(...)`, `.keys()`,
    `.values()`, `.copy()`, `list(...)`, and calls of functions that only return such an expression.
    `names` holds values of local names.
    """
    return _Evaluator(sources, names, depth=0).value(module, node)


def enum_values(sources: Sources, definition: Definition) -> list[Any] | None:
    """Values of an enumeration in order of definition, None where the class is none."""
    node = definition.node
    if not isinstance(node, ast.ClassDef) or not is_enum(sources, definition):
        return None
    found = [
        evaluate(sources, definition.module, item.value)
        for item in node.body
        if isinstance(item, ast.Assign) and not any(n.startswith("_") for n in _targets(item))
    ]
    return [value for index, value in enumerate(found) if value not in found[:index]]


def is_enum(sources: Sources, definition: Definition) -> bool:
    node = definition.node
    if not isinstance(node, ast.ClassDef):
        return False
    for base in node.bases:
        name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
        if name in ("Enum", "StrEnum", "IntEnum"):
            return True
        parent = sources.find(definition.module, name)
        if parent is not None and parent.node is not node and is_enum(sources, parent):
            return True
    return False


def _targets(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


class _Evaluator:
    def __init__(self, sources: Sources, names: Mapping[str, Any], depth: int) -> None:
        self.sources = sources
        self.names = names
        self.depth = depth

    def value(self, module: str, node: ast.expr) -> Any:
        if self.depth > 20:
            return UNKNOWN
        if isinstance(node, _LITERALS):
            return self.literal(module, node)
        if isinstance(node, ast.Name):
            return self.name(module, node.id)
        if isinstance(node, ast.Attribute):
            return self.attribute(module, node)
        if isinstance(node, ast.Call):
            return self.call(module, node)
        return UNKNOWN

    def literal(self, module: str, node: ast.expr) -> Any:
        if isinstance(node, ast.Dict):
            return self.mapping(module, [(k, v) for k, v in zip(node.keys, node.values, strict=True)])
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            items = [self.value(module, item) for item in node.elts]
            return UNKNOWN if UNKNOWN in items else items
        if isinstance(node, ast.UnaryOp):
            operand = self.value(module, node.operand)
            if isinstance(node.op, ast.USub) and isinstance(operand, int | float):
                return -operand
            return UNKNOWN
        assert isinstance(node, ast.Constant)
        return (
            node.value if node.value is None or isinstance(node.value, bool | int | float | str) else UNKNOWN
        )

    def mapping(self, module: str, items: list[tuple[ast.expr | None, ast.expr]]) -> Any:
        """A dict whose values may be UNKNOWN one by one: its keys alone are often enough."""
        result: dict[Any, Any] = {}
        for key, value in items:
            if key is None:
                inner = self.value(module, value)
                if not isinstance(inner, dict):
                    return UNKNOWN
                result |= inner
                continue
            name = self.value(module, key)
            if name is UNKNOWN:
                return UNKNOWN
            result[name] = self.value(module, value)
        return result

    def name(self, module: str, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        found = self.sources.find(module, name)
        return UNKNOWN if found is None else self.constant(found)

    def constant(self, definition: Definition) -> Any:
        node = definition.node
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            return UNKNOWN
        return _Evaluator(self.sources, {}, self.depth + 1).value(definition.module, node.value)

    def attribute(self, module: str, node: ast.Attribute) -> Any:
        if node.attr == "value" and isinstance(node.value, ast.Attribute):
            return self.attribute(module, node.value)
        if not isinstance(node.value, ast.Name):
            return UNKNOWN
        owner = self.sources.find(module, node.value.id)
        if owner is None or not isinstance(owner.node, ast.ClassDef):
            return UNKNOWN
        for item in owner.node.body:
            if isinstance(item, ast.Assign) and node.attr in _targets(item):
                return _Evaluator(self.sources, {}, self.depth + 1).value(owner.module, item.value)
        return UNKNOWN

    def call(self, module: str, node: ast.Call) -> Any:
        function = node.func
        if isinstance(function, ast.Name) and function.id == "dict" and not node.args:
            return self.mapping(
                module, [(ast.Constant(k.arg) if k.arg else None, k.value) for k in node.keywords]
            )
        if isinstance(function, ast.Name) and function.id in ("list", "tuple") and len(node.args) == 1:
            inner = self.value(module, node.args[0])
            return list(inner) if isinstance(inner, list | dict) else UNKNOWN
        if isinstance(function, ast.Attribute) and function.attr in ("keys", "values", "copy"):
            inner = self.value(module, function.value)
            if not isinstance(inner, dict | list):
                return UNKNOWN
            if function.attr == "copy":
                return inner
            return UNKNOWN if isinstance(inner, list) else list(getattr(inner, function.attr)())
        return UNKNOWN if node.args or node.keywords else self.returned(module, function)

    def returned(self, module: str, function: ast.expr) -> Any:
        """What a function without arguments returns, where returning is all it does."""
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            owner = self.sources.submodule(module, function.value.id)
            found = self.sources.find(owner, function.attr) if owner else None
        else:
            found = self.sources.find(module, function.id) if isinstance(function, ast.Name) else None
        if found is None or not isinstance(found.node, ast.FunctionDef):
            return UNKNOWN
        body = [node for node in found.node.body if not _is_docstring(node)]
        if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
            return UNKNOWN
        return _Evaluator(self.sources, {}, self.depth + 1).value(found.module, body[0].value)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def condition(node: ast.expr, assume: Mapping[str, bool]) -> bool | None:
    """Whether an `if` holds, by what is assumed of the names and calls in it; None where not assumed."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = condition(node.operand, assume)
        return None if inner is None else not inner
    target = node.func if isinstance(node, ast.Call) else node
    return assume.get(target.id) if isinstance(target, ast.Name) else None


__all__ = ["UNKNOWN", "condition", "enum_values", "evaluate", "is_enum", "statements"]
