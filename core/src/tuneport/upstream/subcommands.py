"""The flags of a program whose subcommands are argparse parsers with shared parents."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from tuneport.errors import Invalid
from tuneport.upstream.sources import Sources
from tuneport.upstream.static import UNKNOWN, evaluate

_KINDS = {"str": "str", "int": "int", "float": "float", "bool": "bool"}


def subcommands(sources: Sources, package: str) -> dict[str, dict[str, dict[str, Any]]]:
    """`package subcommand` -> keys of each subcommand that a module of `package` defines in a function.

    Raises:
        Invalid: none is found.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for root in sources.roots:
        for path in sorted((root / package.replace(".", "/")).glob("*.py")):
            module = f"{package}.{path.stem}"
            tree = sources.tree(module)
            for node in tree.body if tree else ():
                if isinstance(node, ast.FunctionDef) and "add_subparsers" in ast.dump(node):
                    found |= {f"{package} {name}": keys for name, keys in _parsers(sources, module, node)}
    if not found:
        raise Invalid(f"{package} has no subcommands", code="entry-without-parser")
    return found


def _parsers(
    sources: Sources, module: str, function: ast.FunctionDef
) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    parsers: dict[str, dict[str, dict[str, Any]]] = {}
    named: dict[str, str] = {}
    for node in function.body:
        call = node.value if isinstance(node, ast.Assign | ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        words = {word.arg: word.value for word in call.keywords if word.arg}
        if isinstance(node, ast.Assign):
            target = ast.unparse(node.targets[0])
            parents = words.get("parents")
            elements = parents.elts if isinstance(parents, ast.List) else []
            parsers[target] = {
                key: spec for parent in elements for key, spec in parsers.get(ast.unparse(parent), {}).items()
            }
            if call.func.attr == "add_parser":
                named[target] = evaluate(sources, module, call.args[0])
        elif call.func.attr == "add_argument":
            key, spec = _argument(sources, module, call, words)
            parsers.setdefault(ast.unparse(call.func.value), {})[key] = spec
    for target, name in named.items():
        yield name, parsers[target]


def _argument(
    sources: Sources, module: str, call: ast.Call, words: dict[str, ast.expr]
) -> tuple[str, dict[str, Any]]:
    options = [evaluate(sources, module, option) for option in call.args]
    name = next(option for option in options if option.startswith("--"))
    given = {key: evaluate(sources, module, value) for key, value in words.items() if key != "type"}
    switch = str(given.get("action", "")).startswith("store_")
    kind = "bool" if switch else _KINDS.get(ast.unparse(words["type"]) if "type" in words else "str", "str")
    spec: dict[str, Any] = {"types": [kind]}
    if given.get("required") is True:
        spec["required"] = True
    else:
        default = given.get("default", False if switch else None)
        if default is None:
            spec["types"] = sorted({kind, "null"})
        if default is not UNKNOWN:
            spec["default"] = default
    if isinstance(given.get("choices"), list):
        spec["choices"] = given["choices"]
    spec["source"] = sources.label(module, call)
    return name.lstrip("-"), spec
