"""What the releases themselves say of a key's heir: in code that hands the value on, in help and warnings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tuneport.types import Key
from tuneport.upstream.code import modules
from tuneport.upstream.scan import Scan
from tuneport.upstream.sources import Unreadable, parse

_MAX_TEXT = 2000
_HEIR = re.compile(
    r"deprecat|instead|renamed|replaced by|moved to|in favou?r of|migrat|supersed", re.IGNORECASE
)
_COMMON = {
    "the",
    "and",
    "for",
    "with",
    "from",
    "that",
    "this",
    "not",
    "use",
    "used",
    "whether",
    "are",
    "default",
}


class Said:
    """Looks for a key's heir in the older release's words on it, and in the newer one's code."""

    def __init__(self, old: Scan, new: Scan) -> None:
        self.old, self.new = old, new
        self._texts: list[tuple[Path, str, str]] | None = None
        self._trees: dict[Path, ast.Module | None] = {}
        self._words: dict[tuple[int, str], set[str]] = {}
        self._handed: dict[Path, list[tuple[int, str, str]]] = {}

    def alike(self, was: Key, now: Key) -> float:
        """How much of what describes one key, in help or comment, describes the other too, from 0 to 1."""
        first, second = self._stems(self.old, was), self._stems(self.new, now)
        if min(len(first), len(second)) < 2:
            return 0.0
        return len(first & second) / min(len(first), len(second))

    def _stems(self, one: Scan, key: Key) -> set[str]:
        mark = (id(one), key.source)
        if mark not in self._words:
            words = re.findall(
                r"[a-z][a-z0-9]{2,}", " ".join([*self._own_words(one, key), *map(str, key.choices)]).lower()
            )
            names = set(re.findall(r"[a-z][a-z0-9]{2,}", key.name.lower()))
            self._words[mark] = {word[:5] for word in words if word not in _COMMON and word not in names}
        return self._words[mark]

    def heirs(self, name: str, key: Key, come: Mapping[str, Key]) -> dict[str, str]:
        """New key -> what says that it follows the one called `name`."""
        found: dict[str, str] = {}
        last = name.rpartition(".")[2]
        by_last: dict[str, list[str]] = {}
        for after in come:
            by_last.setdefault(after.rpartition(".")[2], []).append(after)
        for text in self._own_words(self.old, key):
            if _HEIR.search(text):
                for after in self._named(text, come, by_last):
                    found.setdefault(after, f"says: {self.old.release} at {key.source} names it")
        for path, label, content in self._newer():
            if last not in content:
                continue
            for line, old, text in self._told(path):
                if old in (last, name) or (not old and last in text and _word(last, text)):
                    for after in self._named(text, come, by_last):
                        found.setdefault(after, f"says: {self.new.release} at {label}:{line} hands it on")
        return found

    def _named(self, text: str, come: Mapping[str, Key], by_last: Mapping[str, list[str]]) -> Iterator[str]:
        """The new keys that a text names: in full, or by a last name that only one of them has."""
        words = set(re.findall(r"[A-Za-z_][\w.-]*\w|\w", text))
        spelled = {word.strip(".-").replace("-", "_") for word in words} | words
        full = [after for after in come if after in spelled and "." in after]
        yield from full
        for last, names in by_last.items():
            if last in spelled and len(names) == 1 and not full:
                yield names[0]

    def _own_words(self, one: Scan, key: Key) -> Iterator[str]:
        """Text of the statement, or of the comment, that declares a key."""
        file, _, line = key.source.rpartition(":")
        for root in one.sources.roots:
            path = root / file
            if not path.is_file() or not line.isdigit():
                continue
            at = int(line)
            if path.suffix != ".py":
                lines = path.read_text("utf-8", "replace").splitlines()[:at]
                comment = [lines.pop()] if lines else []
                while (
                    lines
                    and (lines[-1].lstrip().startswith("#") or not lines[-1].strip())
                    and len(comment) < 8
                ):
                    comment.append(lines.pop())
                yield "\n".join(part.partition("#")[2] for part in reversed(comment))
                return
            tree = self._tree(path)
            for node in ast.walk(tree) if tree else ():
                if isinstance(node, ast.stmt | ast.Call) and node.lineno == at:
                    for part in ast.walk(node):
                        if isinstance(part, ast.Constant) and isinstance(part.value, str):
                            yield part.value[:_MAX_TEXT]
                    return
            return

    def _newer(self) -> list[tuple[Path, str, str]]:
        if self._texts is None:
            self._texts = []
            roots = self.new.sources
            for path, module in modules(roots, ()):
                top = module.partition(".")[0]
                if any((root / top).exists() and path.is_relative_to(root) for root in roots.roots[:2]):
                    label = roots.label(module, ast.Pass()).rpartition(":")[0]
                    self._texts.append((path, label, path.read_text("utf-8", "replace")))
        return self._texts

    def _told(self, path: Path) -> list[tuple[int, str, str]]:
        if path not in self._handed:
            self._handed[path] = list(_told(self._tree(path)))
        return self._handed[path]

    def _tree(self, path: Path) -> ast.Module | None:
        if path not in self._trees:
            try:
                self._trees[path] = parse(path)
            except Unreadable:
                self._trees[path] = None
        return self._trees[path]


def _word(name: str, text: str) -> bool:
    return re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", text) is not None


def _told(tree: ast.Module | None) -> Iterator[tuple[int, str, str]]:
    """(line, old name, new name) of every place of a module that may hand a value on; a message that speaks
    of an heir has no old name, and its whole text in place of the new one."""
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, read = node.targets[0], _read(node.value)
            if isinstance(target, ast.Attribute | ast.Subscript) and read and read != _last(target):
                yield node.lineno, read, _last(target)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                yield from _constants(node.lineno, [key, value])
        elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
            yield from _constants(node.lineno, node.elts)
        elif isinstance(node, ast.Call | ast.Raise):
            parts = [
                p.value for p in ast.walk(node) if isinstance(p, ast.Constant) and isinstance(p.value, str)
            ]
            text = " ".join(parts)
            if len(text) < _MAX_TEXT and _HEIR.search(text):
                yield node.lineno, "", text


def _constants(line: int, pair: Sequence[ast.expr | None]) -> Iterator[tuple[int, str, str]]:
    words = [item.value for item in pair if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    if len(words) == 2:
        yield line, words[0], words[1]


def _read(node: ast.expr) -> str:
    """The last name of what a value is read from, as it is or out of a `get` or `pop`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        first = node.args[0]
        taken = node.func.attr in ("get", "pop") and isinstance(first, ast.Constant)
        return str(first.value) if taken and isinstance(first, ast.Constant) else ""
    return _last(node)


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return ""
