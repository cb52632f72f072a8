"""Names that a release's code takes for a choice: enumerations, literals, mappings and registrations."""

from __future__ import annotations

import ast
import re

from tuneport.upstream.sources import Definition, Sources, statements
from tuneport.upstream.static import UNKNOWN, enum_values, evaluate

_MAPPING = re.compile(r"[A-Z][A-Z0-9_]{2,}|\w*(?:registry|mapping|_map)", re.IGNORECASE)
_REGISTER = re.compile(r"(?:^|_)register(?:_|$)|^register")


def registries(sources: Sources, module: str, tree: ast.Module) -> dict[str, list[str]]:
    """`module:NAME` -> the names, sorted: of an enumeration of text, of a `Literal`, of a mapping's keys.
    What is registered by a decorator goes by the decorator's own name: `@register_loss("x")` is under
    `register_loss`."""
    found: dict[str, list[str]] = {}
    for node in statements(tree.body):
        if isinstance(node, ast.ClassDef) and any("Enum" in ast.unparse(base) for base in node.bases):
            values = enum_values(sources, Definition(module, node)) or []
            _take(found, f"{module}:{node.name}", values)
        elif (
            isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        ):
            name = node.targets[0].id
            if isinstance(node.value, ast.Dict) and _MAPPING.fullmatch(name):
                keys = [evaluate(sources, module, key) for key in node.value.keys if key is not None]
                _take(found, f"{module}:{name}", keys)
            elif isinstance(node.value, ast.Subscript) and ast.unparse(node.value.value).endswith("Literal"):
                inner = node.value.slice
                items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                _take(found, f"{module}:{name}", [evaluate(sources, module, item) for item in items])
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and call.args:
                    name = ast.unparse(call.func).rpartition(".")[2]
                    if _REGISTER.search(name):
                        value = evaluate(sources, module, call.args[0])
                        for item in value if isinstance(value, list) else [value]:
                            if isinstance(item, str):
                                found.setdefault(name, []).append(item)
    return {name: sorted(set(values)) for name, values in found.items()}


def _take(found: dict[str, list[str]], name: str, values: list[object]) -> None:
    if len(values) > 1 and all(isinstance(item, str) and item for item in values) and UNKNOWN not in values:
        found[name] = [str(item) for item in values]
