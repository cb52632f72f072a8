"""Every name that a package could read a setting by."""

from __future__ import annotations

import ast
import re
from pathlib import Path


def names(root: Path, package: str) -> str:
    """Attribute names, parameters, keywords and identifier-like text constants of all modules, sorted and
    joined by blanks. What is not among them is read by nothing in the package."""
    found: set[str] = set()
    for path in sorted((root / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.arg | ast.keyword) and node.arg:
                found.add(node.arg)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= 120:
                found |= {part for part in node.value.split(".") if part.isidentifier()}
    return " ".join(sorted(found))


def built(root: Path, package: str, builder: str) -> list[str]:
    """Last names of what modules hand to the function `builder`, which makes an object of a branch of the
    configuration: `actor` for `builder(self.config.actor)` and for `builder(actor_config)`."""
    found: set[str] = set()
    for path in sorted((root / package).rglob("*.py")):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text, str(path))) if builder in text else ():
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func).rpartition(".")[2] == builder
                and node.args
            ):
                name = ast.unparse(node.args[0]).rpartition(".")[2]
                if name.isidentifier():
                    found.add(re.sub(r"_(config|cfg)$", "", name))
    return sorted(found)
