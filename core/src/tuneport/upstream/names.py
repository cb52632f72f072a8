"""Every name that a package could read a setting by."""

from __future__ import annotations

import ast
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
