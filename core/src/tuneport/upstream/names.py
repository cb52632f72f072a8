"""Every name that a package could read a setting by."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from tuneport.upstream.sources import Sources, trees


def names(root: Path, package: str) -> str:
    """Attribute names, parameters, keywords and identifier-like text constants of all modules, sorted and
    joined by blanks. What is not among them is read by nothing in the package."""
    return " ".join(sorted(names_in(tree for _, tree in trees(root, package))))


def names_in(trees: Iterable[ast.Module], *, fields: bool = True) -> set[str]:
    """The names of some modules; see `names`.

    Args:
        fields: whether a class that only declares a name counts as reading it.
    """
    found: set[str] = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.arg | ast.keyword) and node.arg:
                found.add(node.arg)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                if fields:
                    found.add(node.target.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= 120:
                found |= {part for part in node.value.split(".") if part.isidentifier()}
    return found


def reached(sources: Sources, module: str, package: str) -> list[ast.Module]:
    """The trees of a module and of all of `package` that it can reach: by imports, wherever they stand, and
    by the full names of classes in text, by which workers are started elsewhere."""
    done: dict[str, ast.Module] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        tree = None if name in done else sources.tree(name)
        if tree is None:
            continue
        done[name] = tree
        for node in ast.walk(tree):
            found: list[str] = []
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = sources.absolute(name, node)
                found = [base, *(f"{base}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
                found = [node.value, node.value.rpartition(".")[0]]
            for item in found:
                if item == package or item.startswith(f"{package}."):
                    parts = item.split(".")
                    waiting += [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return list(done.values())


def built(root: Path, package: str, builder: str) -> list[str]:
    """Last names of what modules hand to the function `builder`, which makes an object of a branch of the
    configuration: `actor` for `builder(self.config.actor)` and for `builder(actor_config)`."""
    found: set[str] = set()
    for _, tree in trees(root, package):
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func).rpartition(".")[2] == builder
                and node.args
            ):
                name = ast.unparse(node.args[0]).rpartition(".")[2]
                if name.isidentifier():
                    found.add(re.sub(r"_(config|cfg)$", "", name))
    return sorted(found)
