"""Finds modules and names in unpacked source trees by their syntax alone; nothing is imported."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Definition:
    """Where a name is really defined: the module's dotted name and the statement."""

    module: str
    node: ast.stmt


@dataclass(slots=True)
class Sources:
    """Source trees of one release and of the packages it builds on; each root holds packages."""

    roots: Sequence[Path]
    broken: dict[str, str] = field(default_factory=dict)
    """Modules that are no Python as this interpreter reads it -> why; they count as absent."""
    _trees: dict[str, ast.Module | None] = field(default_factory=dict)
    _texts: dict[str, bytes] = field(default_factory=dict)

    def path(self, module: str) -> Path | None:
        """The file of a dotted module name, or None where no root has it."""
        relative = Path(*module.split("."))
        for root in self.roots:
            for candidate in (root / relative.with_suffix(".py"), root / relative / "__init__.py"):
                if candidate.is_file():
                    return candidate
        return None

    def label(self, module: str, node: ast.AST) -> str:
        """`package/file.py:line`, relative to the root that holds the module."""
        path = self.path(module)
        assert path is not None
        root = next(root for root in self.roots if path.is_relative_to(root))
        return f"{path.relative_to(root).as_posix()}:{getattr(node, 'lineno', 0)}"

    def tree(self, module: str) -> ast.Module | None:
        if module not in self._trees:
            path = self.path(module)
            try:
                self._trees[module] = None if path is None else parse(path)
            except Unreadable as error:
                self._trees[module] = None
                self.broken[module] = str(error)
        return self._trees[module]

    def find(self, module: str, name: str, _seen: frozenset[str] = frozenset()) -> Definition | None:
        """The definition behind `name` as `module` sees it, through any chain of imports.

        Imports under TYPE_CHECKING count: packages that load lazily say there what they hold.
        """
        here = f"{module}:{name}"
        tree = self.tree(module) if here not in _seen and self._could_have(module, name) else None
        if tree is None:
            return None
        for node in statements(tree.body):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                return Definition(module, node)
            if isinstance(node, ast.Assign | ast.AnnAssign) and name in assigned(node):
                return Definition(module, node)
        for node in statements(tree.body):
            if not isinstance(node, ast.ImportFrom):
                continue
            for alias in node.names:
                if name not in (alias.asname or alias.name, "*") and alias.name != "*":
                    continue
                found = self.find(
                    self.absolute(module, node), name if alias.name == "*" else alias.name, _seen | {here}
                )
                if found is not None:
                    return found
        return None

    def _could_have(self, module: str, name: str) -> bool:
        """Whether a module's text has a name, or takes in names that it does not write: most modules of a
        large package need no parsing to be passed by."""
        if module not in self._texts:
            path = self.path(module)
            try:
                self._texts[module] = path.read_bytes() if path is not None else b""
            except OSError:
                self._texts[module] = b""
        text = self._texts[module]
        return name.encode() in text or b"import *" in text or not name.isascii()

    def submodule(self, module: str, name: str) -> str | None:
        """The dotted module that `name` stands for inside `module`, where it names one."""
        tree = self.tree(module)
        for node in statements(tree.body if tree else []):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    target = f"{self.absolute(module, node)}.{alias.name}"
                    if (alias.asname or alias.name) == name and self.path(target) is not None:
                        return target
        return None

    def absolute(self, module: str, node: ast.ImportFrom) -> str:
        """The dotted name that a `from … import` statement of `module` means."""
        if not node.level:
            return node.module or ""
        path = self.path(module)
        parts = module.split(".")
        if path is None or path.name != "__init__.py":
            parts = parts[:-1]
        parts = parts[: len(parts) - (node.level - 1)]
        return ".".join([*parts, *((node.module or "").split("."))]).rstrip(".")


class Unreadable(Exception):
    """A file that is no Python as this interpreter reads it."""


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file.

    Raises:
        Unreadable: it has none.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        raise Unreadable(f"line {error.lineno or 0}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError, OSError) as error:
        raise Unreadable(str(error) or type(error).__name__) from error


def trees(root: Path, package: str) -> Iterator[tuple[Path, ast.Module]]:
    """Every module of a package that can be read, with its tree, in the order of their paths."""
    for path in sorted((root / package).rglob("*.py")):
        try:
            yield path, parse(path)
        except Unreadable:
            continue


def statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a block and of the `if`, `try` and `with` blocks in it, not of functions or classes."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                for inner in getattr(node, part, []):
                    yield from statements(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])


def assigned(node: ast.Assign | ast.AnnAssign) -> set[str]:
    """The plain names that an assignment binds."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}
