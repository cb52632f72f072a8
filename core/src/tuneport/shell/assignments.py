"""Words of commands, and variables that a script sets."""

from __future__ import annotations

import re
from collections.abc import Callable

from tuneport.shell import scan
from tuneport.shell.expand import Expander
from tuneport.shell.gaps import Word, open_, word
from tuneport.shell.state import State
from tuneport.shell.syntax import Node

_BETWEEN = re.compile(r"(?:[ \t\n]|\\\n|(?<![^\s])#[^\n]*)+")
"""What separates words: blanks, continued lines, comments."""


class Assignments:
    """Reads nodes of a script's syntax as words and assignments, in the state of the script.

    Args:
        capture: what a command prints, for `$(…)`.
    """

    def __init__(self, state: State, capture: Callable[[str], str]) -> None:
        self.state = state
        self.source = b""
        self.offset = 0  # lines above the source, where it stands inside another
        self.expander = Expander(lambda: self.state, capture, self.assign_text)

    def line(self, node: Node) -> int:
        """The line where a node begins."""
        return int(node.start_point[0]) + 1 + self.offset

    def text(self, start: int, end: int) -> str:
        """Part of the source."""
        return self.source[start:end].decode("utf-8", "replace")

    def raw(self, node: Node) -> str:
        """The source of a node."""
        return self.text(node.start_byte, node.end_byte)

    def raws(self, nodes: list[Node]) -> list[tuple[int, str]]:
        """(line, raw word) of neighbouring nodes. The grammar takes some words apart: what no blank
        separates is one."""
        found: list[tuple[int, int, int, bool]] = []
        for node in nodes:
            if node.type == "comment":
                continue
            if found:
                between = self.text(found[-1][2], node.start_byte)
                if _BETWEEN.sub("", between) or not between:
                    found[-1] = (found[-1][0], found[-1][1], node.end_byte, found[-1][3] or bool(between))
                    continue
            found.append((self.line(node), node.start_byte, node.end_byte, False))
        raws = [(line, self.text(start, end), apart) for line, start, end, apart in found]
        return [
            (line, raw)
            for line, text, apart in raws
            for raw in ([one for _, one in scan.split(text)] if apart else [text])
        ]

    def fields(self, nodes: list[Node]) -> list[str]:
        """The words that neighbouring nodes become, each with its place."""
        found: list[str] = []
        for line, raw in self.raws(nodes):
            self.state.line = line
            for text in self.expander.fields(raw):
                found.append(text if isinstance(text, Word) else word(text, self.state.file, line))
        return found

    def assign(self, node: Node, into: dict[str, str] | None = None) -> str:
        """Carry out an assignment; the name of the variable is returned. `into` takes it instead of the
        state, where it is for one command only."""
        named, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        name, _, subscript = self.raw(named).rstrip("]").partition("[")
        adds = any(child.type == "+=" for child in node.children)
        held = self.state.variables.get(name)
        if value is not None and value.type == "array":
            if self.text(value.end_byte, value.end_byte + 1) == "\r":
                self.state.variables[name] = self.state.gap("a CR behind the bracket makes it no array")
                return name
            self._array(name, value, held if adds else None)
            return name
        text = ""
        if value is not None:
            text = self.expander.single(self.text(value.start_byte, node.end_byte), assigned=True)
        if into is not None:
            into[name] = text
        elif subscript or (adds and isinstance(held, list)):
            self._element(name, subscript or "0", text, adds)
        elif adds:
            self.state.variables[name] = self._present(name) + text
        else:
            self.state.variables[name] = text
        return name

    def _present(self, name: str) -> str:
        held = self.state.variables.get(name)
        if isinstance(held, str):
            return held
        return "" if held is None else next(iter(held), "")

    def _array(self, name: str, node: Node, held: object) -> None:
        line = self.state.line
        children = [child for child in node.children if child.is_named]
        table = isinstance(self.state.variables.get(name), dict)
        raws = self.raws(children)
        if table or any(raw.startswith("[") and "]=" in raw for _, raw in raws):
            made: dict[str, str] = dict(held) if isinstance(held, dict) else {}
            for _, raw in raws:
                key, _, value = raw.removeprefix("[").partition("]=")
                made[self.expander.single(key)] = self.expander.single(value)
            indices = [key for key in made if not key.isdigit()]
            self.state.variables[name] = made if table or indices else list(made.values())
            return
        items = self.fields(children)
        before = held if isinstance(held, list) else [held] if isinstance(held, str) else []
        self.state.variables[name] = [*before, *items]
        self.state.line = line

    def assign_text(self, named: str, text: str) -> None:
        """Give a variable, or an element of an array, a text."""
        name, _, subscript = named.removesuffix("]").partition("[")
        if subscript or isinstance(self.state.variables.get(name), list | dict):
            self._element(name, subscript or "0", text, adds=False)
        else:
            self.state.variables[name] = text

    def _element(self, name: str, subscript: str, text: str, adds: bool) -> None:
        held = self.state.variables.get(name)
        if isinstance(held, dict):
            key = self.expander.single(subscript)
            if open_(key):
                self.state.variables[name] = {}
            else:
                held[key] = held.get(key, "") + text if adds else text
            return
        items = held if isinstance(held, list) else [held] if isinstance(held, str) else []
        index = self.expander.arithmetic(subscript)
        position = -1 if open_(index) else int(index)
        if 0 <= position < len(items):
            items[position] = items[position] + text if adds else text
        elif position == len(items):
            items.append(text)
        else:
            items = [self.state.gap(f"which element of {name} is set is not followed here")]
        self.state.variables[name] = items

    def assignment(self, node: Node) -> bool:
        """An assignment that stays."""
        self.note(self.assign(node))
        return True

    def note(self, name: str) -> None:
        """Export a variable that was set while `set -a` holds."""
        if "-a" in self.state.exported:
            self.state.exported.add(name)

    def declaration(self, node: Node) -> bool:
        """`export`, `local`, `declare` and their kin."""
        kind = node.children[0].type
        flags = "".join(self.raw(child) for child in node.children if child.type == "word")
        exports = kind == "export" or "x" in flags
        for child in node.children[1:]:
            name = ""
            if child.type == "variable_assignment":
                name = self.raw(child.child_by_field_name("name")).partition("[")[0]
                self._local(kind, name)
                if "A" in flags and kind != "export":
                    self.state.variables[name] = {}
                self.assign(child)
            elif child.type == "variable_name":
                name = self.raw(child)
                self._local(kind, name)
                if kind != "export" and ("a" in flags or "A" in flags):
                    self.state.variables.setdefault(name, {} if "A" in flags else [])
            elif child.type in ("concatenation", "string", "simple_expansion", "expansion", "raw_string"):
                for text in self.expander.fields(self.raw(child)):
                    name, equal, value = text.partition("=")
                    if equal and name.isidentifier():
                        self.state.variables[name] = value
            if exports and name and not open_(name):
                self.state.exported.add(name)
        return True

    def _local(self, kind: str, name: str) -> None:
        if kind in ("local", "declare", "typeset") and self.state.locals:
            self.state.locals[-1].setdefault(name, self.state.variables.get(name))
            if kind == "local":
                self.state.variables.pop(name, None)

    def unset(self, node: Node) -> bool:
        """`unset`."""
        for child in node.children:
            if child.type in ("variable_name", "word") and not self.raw(child).startswith("-"):
                self.state.variables.pop(self.raw(child), None)
                self.state.exported.discard(self.raw(child))
        return True
