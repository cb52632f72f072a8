"""Reads an expression into the tree that `checks.simple` evaluates.

Only what rules are mostly made of is read; a part that is not comes out as `["open"]`, which the engine
decides. The grammar is that of the CEL specification (doc/langdef.md, "Syntax").
"""

from __future__ import annotations

import re
from typing import NoReturn

from tuneport.types import Json

Node = list[Json]
OPEN: Node = ["open"]
TYPES = frozenset({"bool", "double", "int", "list", "map", "null_type", "string"})
CALLS = frozenset({"double", "int", "size", "type"})
METHODS = frozenset({"contains", "endsWith", "startsWith"})
MACROS = frozenset({"all", "exists"})
_LEVELS = (("||",), ("&&",), ("==", "!=", "<=", ">=", "<", ">", "in"), ("+", "-"), ("*", "/", "%"))
_WORDS = {"null": None, "true": True, "false": False}
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?(?![\w.]))|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"""
    r"""|(?P<text>"[^"\\\n]*"|'[^'\\\n]*')|(?P<odd>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
    r"""|(?P<sign>\|\||&&|[=!<>]=|[-+*/%<>!?:.,()\[\]]))"""
)


class _NotRead(Exception):
    """The expression has something in it that this reader does not know."""


def read(source: str) -> Node | None:
    """The tree of an expression; None where nothing of it can be read."""
    try:
        reader = _Reader(source)
        tree = reader.ternary()
    except _NotRead:
        return None
    return tree if reader.at_end() and tree != OPEN else None


class _Reader:
    def __init__(self, source: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        end = len(source.rstrip())
        place = 0
        while place < end:
            match = _TOKEN.match(source, place, end)
            if match is None or match.lastgroup is None:
                self._give_up()
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            place = match.end()
        self._tokens.append(("end", ""))

    def at_end(self) -> bool:
        return self._tokens[self._at][0] == "end"

    def ternary(self) -> Node:
        condition = self._level(0)
        if not self._take("?"):
            return condition
        chosen = self._level(0)
        self._need(":")
        return ["?", condition, chosen, self.ternary()]

    def _level(self, number: int) -> Node:
        """Operators that bind alike, from the left; `&&` and `||` take all their operands at once."""
        if number == len(_LEVELS):
            return self._unary()
        left = self._level(number + 1)
        while self._tokens[self._at][1] in _LEVELS[number] and self._tokens[self._at][0] in ("sign", "name"):
            sign = self._next()
            right = self._level(number + 1)
            if sign in ("&&", "||") and left[0] == sign:
                left.append(right)
            else:
                left = [sign, left, right]
        return left

    def _unary(self) -> Node:
        if self._take("!"):
            return ["!", self._unary()]
        if self._take("-"):
            operand = self._unary()
            is_number = operand[0] == "is" and type(operand[1]) in (int, float)
            return ["is", -operand[1]] if is_number else ["-", ["is", 0], operand]
        return self._member()

    def _member(self) -> Node:
        node = self._primary()
        while True:
            if self._take("["):
                self.ternary()
                self._need("]")
                node = OPEN
            elif self._take("."):
                node = self._selected(node)
            else:
                return node

    def _selected(self, node: Node) -> Node:
        name = self._name()
        if not self._take("("):
            return [*node, name] if node[0] == "path" else OPEN
        if name in MACROS:
            variable = self._name()
            self._need(",")
            body = self.ternary()
            self._need(")")
            return [name, node, variable, body]
        given = self._listed(")")
        return [name, node, *given] if name in METHODS and len(given) == 1 else OPEN

    def _primary(self) -> Node:
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            return ["is", float(text) if "." in text else int(text)]
        if kind == "text":
            return ["is", text[1:-1]]
        if kind == "odd":
            return OPEN
        if text == "(":
            inner = self.ternary()
            self._need(")")
            return inner
        if text == "[":
            return ["list", *self._listed("]")]
        if kind != "name" or text == "in":
            self._give_up()
        if text in _WORDS:
            return ["is", _WORDS[text]]
        if self._take("("):
            return self._called(text)
        return ["typename", text] if text in TYPES else ["path", text]

    def _called(self, name: str) -> Node:
        given = self._listed(")")
        if len(given) != 1:
            return OPEN
        if name == "has" and given[0][0] == "path" and len(given[0]) > 2:
            return ["has", *given[0][1:]]
        return [name, given[0]] if name in CALLS else OPEN

    def _listed(self, closing: str) -> list[Node]:
        found: list[Node] = []
        while not self._take(closing):
            if found:
                self._need(",")
            found.append(self.ternary())
        return found

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _name(self) -> str:
        kind, text = self._tokens[self._at]
        if kind != "name":
            self._give_up()
        self._at += 1
        return text

    def _take(self, sign: str) -> bool:
        if self._tokens[self._at] != ("sign", sign):
            return False
        self._at += 1
        return True

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            self._give_up()

    def _give_up(self) -> NoReturn:
        raise _NotRead
