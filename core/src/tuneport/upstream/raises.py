"""The checks of a release that name configuration: where it raises or asserts, and on what condition.

Of a condition only facts are kept: the names of keys, the operators, the plain values. The words of the
message stay upstream's.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

_HOLDERS = ("self", "args", "cfg", "config", "conf", "options", "opt", "kwargs")
_OPERATORS = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.And: "and", ast.Or: "or", ast.Not: "not",
    ast.Mod: "%", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Add: "+", ast.Sub: "-",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.Pow: "**",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Check:
    """`kind` is what happens (`raise ValueError`, `assert`), `symbol` the function it stands in, `names` the
    last names of the keys that its conditions read, `operators` and `values` what they are compared by."""

    file: str
    line: int
    symbol: str
    kind: str
    names: tuple[str, ...]
    operators: tuple[str, ...]
    values: tuple[Any, ...]

    def document(self) -> dict[str, Any]:
        """As `tp upstream diff --json` has it."""
        return {
            "file": self.file,
            "line": self.line,
            "symbol": self.symbol,
            "kind": self.kind,
            "names": list(self.names),
            "operators": list(self.operators),
            "values": list(self.values),
        }


def checks(tree: ast.Module, file: str, keys: Collection[str]) -> Iterator[Check]:
    """The checks of a module whose conditions read one of the keys.

    Args:
        keys: last names of the release's configuration keys.
    """
    waiting: list[tuple[ast.AST, str, tuple[ast.expr, ...]]] = [(tree, "", ())]
    while waiting:
        node, symbol, tests = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            symbol, tests = f"{symbol}.{node.name}".lstrip("."), ()
        elif isinstance(node, ast.Assert):
            found = _check(file, node.lineno, symbol, "assert", (node.test,), keys)
            if found is not None:
                yield found
        elif isinstance(node, ast.Raise) and node.exc is not None and tests:
            call = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            kind = f"raise {ast.unparse(call)}" if isinstance(call, ast.Name | ast.Attribute) else "raise"
            found = _check(file, node.lineno, symbol, kind, tests, keys)
            if found is not None:
                yield found
        if isinstance(node, ast.If):
            inner = (*tests[-3:], node.test)
            waiting += [(child, symbol, inner) for child in (*reversed(node.orelse), *reversed(node.body))]
        elif isinstance(node, ast.stmt | ast.Module | ast.ExceptHandler | ast.match_case):
            children = list(ast.iter_child_nodes(node))
            kinds = ast.stmt | ast.ExceptHandler | ast.match_case
            waiting += [(child, symbol, tests) for child in reversed(children) if isinstance(child, kinds)]


def _check(
    file: str, line: int, symbol: str, kind: str, tests: tuple[ast.expr, ...], keys: Collection[str]
) -> Check | None:
    names: dict[str, None] = {}
    operators: dict[str, None] = {}
    values: dict[str, Any] = {}
    for test in tests:
        for node in ast.walk(test):
            name = _key(node)
            if name in keys:
                names[name] = None
            if isinstance(node, ast.Compare):
                operators |= {_OPERATORS[type(op)]: None for op in node.ops}
            elif isinstance(node, ast.BoolOp | ast.UnaryOp | ast.BinOp) and type(node.op) in _OPERATORS:
                operators[_OPERATORS[type(node.op)]] = None
            elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str | None):
                plain = node.value != name and not (isinstance(node.value, str) and len(node.value) > 40)
                if plain and node.value == node.value and abs(_number(node.value)) < 1e300:
                    values[repr(node.value)] = node.value
    if not names:
        return None
    return Check(file, line, symbol, kind, tuple(names), tuple(operators), tuple(values.values()))


def _number(value: object) -> float:
    try:
        return float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:
        return float("inf")


def _key(node: ast.AST) -> str:
    """The last name of a key that an expression reads from what holds a configuration; empty otherwise."""
    if isinstance(node, ast.Attribute):
        return node.attr if _holds(node.value) else ""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value) if _holds(node.value) else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        first = node.args[0] if node.args else None
        if isinstance(first, ast.Constant) and _holds(node.func.value):
            return str(first.value)
    return ""


def _holds(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute) and _is_holder(node.attr):
            return True
        node = node.value
    return isinstance(node, ast.Name) and _is_holder(node.id)


def _is_holder(name: str) -> bool:
    lower = name.lower()
    return lower in _HOLDERS or lower.endswith(("config", "_args", "_cfg", "args_"))
