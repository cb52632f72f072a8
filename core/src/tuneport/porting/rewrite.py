"""Gives keys of a YAML file other names and keeps every other byte: edits of the text, at the marks of
its syntax tree. Nothing is dumped anew, so comments, order, quotes and blank lines stay as they were written.

An entry keeps its place where it can: a rename inside its mapping changes the key's own word, and one of the
outermost mapping becomes a dotted key there. An entry that leaves its mapping is written, dotted, after the
section that it was in. The result is parsed again: what the text now says must be what was asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuneport.experiment.yamlread import Path_, parse_yaml, scalar
from tuneport.types import Json

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*\Z")
_COMMENT = re.compile(r"[ \t]+(#.*)\Z")
_PROPERTIES = re.compile(r"(?:[&!][^\s]*\s+)*")  # an anchor and a tag, which stand before the word


@dataclass(slots=True)
class _Entry:
    """One key of a block or flow mapping with the marks of its text; `children` of a mapping alone."""

    path: Path_
    key: Any
    value: Any
    braces: bool
    parent: _Entry | None
    siblings: set[str]
    children: list[_Entry] = field(default_factory=list)

    @property
    def name(self) -> str:
        return ".".join(map(str, self.path))


def rename(text: str, names: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """(the text with keys renamed, old name -> why it could not be).

    Args:
        text: a file that `parse_yaml` reads without a finding.
        names: dotted key of the file, nested or not -> its new dotted key. A name of a mapping takes all
            below it along.
    """
    left: dict[str, str] = {}
    wanted = dict(names)
    while wanted:
        changed, refused = _renamed(text, wanted)
        if not refused:
            if _says(changed, _expected(text, wanted)):
                return changed, left
            # An anchor, an alias or a block that means something else elsewhere: find out whose it is.
            refused = {
                old: "the text around it depends on its place"
                for old, new in wanted.items()
                if len(wanted) == 1 or not _alone(text, old, new)
            } or dict.fromkeys(wanted, "the text around them depends on its place")
        left |= refused
        wanted = {old: new for old, new in wanted.items() if old not in refused}
    return text, left


def _alone(text: str, old: str, new: str) -> bool:
    changed, refused = _renamed(text, {old: new})
    return not refused and _says(changed, _expected(text, {old: new}))


def _expected(text: str, names: Mapping[str, str]) -> dict[str, Json]:
    found = _leaves(parse_yaml(text).data)
    return {_new_name(name, names): value for name, value in found.items()}


def _new_name(name: str, names: Mapping[str, str]) -> str:
    for old in (name, *_above(name)):
        if old in names:
            return names[old] + name[len(old) :]
    return name


def _above(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _says(text: str, expected: Mapping[str, Json]) -> bool:
    document = parse_yaml(text)
    return not document.findings and _leaves(document.data) == expected


def _leaves(data: Json, path: tuple[str, ...] = ()) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in (data or {}).items():
        if isinstance(value, dict) and value:
            found |= _leaves(value, (*path, key))
        else:
            found[".".join((*path, key))] = json.dumps(value)
    return found


def _renamed(text: str, names: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    import yaml

    root = yaml.compose(text, Loader=yaml.CSafeLoader)
    if not isinstance(root, yaml.MappingNode):
        return text, dict.fromkeys(names, "it is not in the file")
    top: list[_Entry] = list(_entries(root, None, set()))
    editor = _Editor(text, top, root.flow_style)
    refused: dict[str, str] = {}
    for old, new in names.items():
        found = [entry for entry in _all(top) if entry.name == old]
        why = "it is not written as a key of its own" if len(found) != 1 else editor.move(found[0], new)
        if why:
            refused[old] = why
    return (text if refused else editor.result()), refused


def _entries(mapping: Any, parent: _Entry | None, seen: set[int]) -> Iterator[_Entry]:
    import yaml

    if id(mapping) in seen:
        return  # an alias: its keys are written elsewhere
    seen.add(id(mapping))
    siblings = {key.value for key, _ in mapping.value if isinstance(key.value, str)}
    for key, value in mapping.value:
        path = (*(parent.path if parent else ()), key.value)
        entry = _Entry(path, key, value, bool(mapping.flow_style), parent, siblings)
        if isinstance(value, yaml.MappingNode):
            entry.children = list(_entries(value, entry, seen))
        yield entry


def _all(entries: list[_Entry]) -> Iterator[_Entry]:
    for entry in entries:
        yield entry
        yield from _all(entry.children)


class _Editor:
    """Collects edits of one text."""

    def __init__(self, text: str, top: list[_Entry], braces: bool) -> None:
        self.text, self.top, self.braces = text, top, braces
        self.edits: list[tuple[int, int, str]] = []
        self.gone: set[int] = set()
        self.after: dict[int, list[str]] = {}
        self.newline = "\r\n" if "\r\n" in text else "\n"

    def move(self, entry: _Entry, new: str) -> str:
        """Move one entry; returns why it cannot be."""
        above = entry.parent.name + "." if entry.parent else ""
        if new.startswith(above):
            word = new[len(above) :]
            if word in entry.siblings:
                return f"`{word}` is a section of its own beside it"
            entry.siblings.add(word)
            self.edits.append((self._word_start(entry), entry.key.end_mark.index, _word(word, entry.key)))
            return ""
        if self.braces or entry.braces:
            return "it is written inside braces"
        return self._take_out(entry, new)

    def _take_out(self, entry: _Entry, new: str) -> str:
        start = self._line_start(entry.key.start_mark.index)
        end = self._line_end(_content_end(entry.value, self.text))
        indent = self.text[start : entry.key.start_mark.index]
        if indent.strip(" "):
            return "its line begins with something else"
        lines = self.text[entry.key.end_mark.index : end].split("\n")
        depth = len(indent)
        moved = [line.lstrip(" ") if line[:depth].strip(" ") else line[depth:] for line in lines[1:]]
        properties = self.text[entry.key.start_mark.index : self._word_start(entry)]
        block = "\n".join([properties + _word(new, entry.key) + lines[0], *moved])
        self.edits.append((start, min(end + 1, len(self.text)), ""))
        section = entry
        while section.parent is not None:
            section = section.parent
        self.after.setdefault(id(section.value), []).append(block)
        self.gone.add(id(entry.value))
        return ""

    def result(self) -> str:
        for section in self.top:
            if id(section.value) in self.after:
                self._place(section)
        text = self.text
        # At one place, what is inserted comes before what is cut begins.
        for start, end, new in sorted(self.edits, key=lambda edit: (edit[0], edit[1]), reverse=True):
            text = text[:start] + new + text[end:]
        return text

    def _place(self, section: _Entry) -> None:
        """Write what left a section after its end, and drop the mappings that nothing is left in."""
        end = min(self._line_end(_content_end(section.value, self.text)) + 1, len(self.text))
        blocks = [block.rstrip("\r") for block in self.after[id(section.value)]]
        text = "".join(block + self.newline for block in blocks)
        if not self.text[:end].endswith("\n"):
            text = self.newline + text.removesuffix(self.newline)
        self._drop(section)
        self.edits.append((end, end, text))

    def _drop(self, entry: _Entry) -> bool:
        if id(entry.value) in self.gone:
            return True
        empty = [self._drop(child) for child in entry.children]  # each of them, whatever the first one says
        if not empty or not all(empty):
            return False
        start = self._line_start(entry.key.start_mark.index)
        end = self._line_end(entry.key.end_mark.index)
        comment = _COMMENT.search(self.text[entry.key.end_mark.index : end].rstrip("\r"))
        indent = self.text[start : entry.key.start_mark.index]
        kept = f"{indent}{comment[1]}{self.newline}" if comment else ""
        self.edits.append((start, min(end + 1, len(self.text)), kept))
        return True

    def _word_start(self, entry: _Entry) -> int:
        """Where the key's own word begins, after what is said of it."""
        found = _PROPERTIES.match(self.text, entry.key.start_mark.index, entry.key.end_mark.index)
        return found.end() if found else entry.key.start_mark.index

    def _line_start(self, index: int) -> int:
        return self.text.rfind("\n", 0, index) + 1

    def _line_end(self, index: int) -> int:
        found = self.text.find("\n", index)
        return len(self.text) if found < 0 else found


def _content_end(node: Any, text: str) -> int:
    """The index after the last character of a value; a block ends where its last value does."""
    import yaml

    while not isinstance(node, yaml.ScalarNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    end: int = node.end_mark.index
    while end > node.start_mark.index and text[end - 1] in " \t\r\n":
        end -= 1
    return end


def _word(name: str, key: Any) -> str:
    """A key as text, quoted as its old name was."""
    if key.style == '"' or (not key.style and not (_PLAIN.match(name) and isinstance(scalar(name), str))):
        return json.dumps(name, ensure_ascii=False)
    return "'" + name.replace("'", "''") + "'" if key.style == "'" else name
