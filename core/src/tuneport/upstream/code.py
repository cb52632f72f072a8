"""One walk over the modules of a release: its checks, its registries, and where its keys are read."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuneport.upstream.raises import Check, checks
from tuneport.upstream.registries import registries
from tuneport.upstream.sources import Sources, Unreadable, parse

_ASIDE = ("tests", "test", "testing", "docs", "doc", "build", "benchmarks", "scripts")


@dataclass(slots=True)
class Code:
    """`readers`: last name of a key -> the functions that read an attribute or an item of that name;
    `modules`: how many were read."""

    checks: list[Check] = field(default_factory=list)
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    readers: dict[str, set[str]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    modules: int = 0


def read_code(sources: Sources, packages: Sequence[str], keys: Collection[str]) -> Code:
    """Everything that the modules of some packages say of configuration.

    Args:
        packages: dotted names; without any, every package of the first roots.
        keys: last names of the release's keys.
    """
    code = Code()
    choices: dict[str, set[str]] = {}
    for path, module in modules(sources, packages):
        code.modules += 1
        try:
            tree = parse(path)
        except Unreadable as error:
            code.broken[module] = str(error)
            continue
        file = sources.label(module, tree).rpartition(":")[0]
        code.checks += checks(tree, file, keys)
        for name, values in registries(sources, module, tree).items():
            choices.setdefault(name, set()).update(values)
        for name, symbol in _reads(tree, keys):
            code.readers.setdefault(name, set()).add(f"{module}:{symbol}")
    code.choices = {name: tuple(sorted(values)) for name, values in sorted(choices.items())}
    return code


def modules(sources: Sources, packages: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """(file, dotted name) of every module of some packages; tests and documentation are left out, and files
    with a dot in their name, which no dotted name reaches."""
    seen: set[str] = set()
    for root in sources.roots:
        inside = [path.name for path in sorted(root.iterdir()) if path.is_dir() and path.name.isidentifier()]
        for package in packages or [name for name in inside if name not in _ASIDE]:
            folder = root.joinpath(*package.split("."))
            if folder in sources.roots:
                continue
            for path in sorted(folder.rglob("*.py")):
                parts = path.relative_to(root).with_suffix("").parts
                module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                aside = {"tests", "test"} & set(parts) or any("." in part for part in parts)
                if module not in seen and not aside:
                    seen.add(module)
                    yield path, module


def _reads(tree: ast.Module, keys: Collection[str]) -> Iterator[tuple[str, str]]:
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, symbol = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            symbol = f"{symbol}.{node.name}".lstrip(".")
        name: object = ""
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            name = node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            name = node.slice.value
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = node.args[0].value if ast.unparse(node.func).rpartition(".")[2] == "get" else ""
        if isinstance(name, str) and name in keys:
            yield name, symbol
        waiting += [(child, symbol) for child in ast.iter_child_nodes(node)]
