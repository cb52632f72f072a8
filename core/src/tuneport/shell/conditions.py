"""`[ … ]`, `test` and `[[ … ]]`: true, false, or None where it cannot be told."""

from __future__ import annotations

import re

from tuneport.shell import patterns, scan
from tuneport.shell.expand import Expander
from tuneport.shell.gaps import blank, open_
from tuneport.shell.state import State

_NUMBERS = ("-eq", "-ne", "-lt", "-le", "-gt", "-ge")
# A regular expression without alternatives that could take for ever.
_EASY = re.compile(
    r"\^?(?:[\w:/@%,=-]|\\[.\w]|\[[\w-]+\])*(?:\[[\w-]+\]|[\w.])[+*]?(?:[\w:/@%,=-]|\\\.)*\$?\Z"
)


def single(raw: list[str], expander: Expander, state: State) -> bool | None:
    """`[ words ]`, given raw."""
    for sign, joined in (("-o", any), ("-a", all)):
        if sign in raw[1:-1]:
            at = raw.index(sign, 1)
            sides = [single(raw[:at], expander, state), single(raw[at + 1 :], expander, state)]
            if None not in sides:
                return joined(bool(side) for side in sides)
            decided = sign == "-o"
            return decided if decided in sides else None
    if raw[:1] == ["!"]:
        inner = single(raw[1:], expander, state)
        return None if inner is None else not inner
    expander.lenient = len(raw) == 1 or (len(raw) == 2 and raw[0] in ("-z", "-n"))
    try:
        words = [text for item in raw for text in expander.fields(item)]
    finally:
        expander.lenient = False
    expander.touched = state.common.gaps.variable(words)
    if not words:
        return False
    if len(words) == 1:
        return _full(words[0])
    if len(words) == 2:
        return _unary(words[0], words[1], state)
    return _binary(*words) if len(words) == 3 else None


def double(raw: str, expander: Expander, state: State) -> bool | None:
    """The inside of `[[ … ]]`."""
    return _Double([text for _, text in scan.split(raw)], expander, state).whole()


class _Double:
    def __init__(self, words: list[str], expander: Expander, state: State) -> None:
        self._words, self._expander, self._state, self._at = words, expander, state, 0

    def whole(self) -> bool | None:
        value = self._either()
        return value if self._at == len(self._words) else None

    def _peek(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _take(self) -> str:
        self._at += 1
        return self._words[self._at - 1] if self._at <= len(self._words) else ""

    def _either(self) -> bool | None:
        left = self._both()
        while self._peek() == "||":
            self._take()
            right = self._both()
            left = True if left or right else (None if left is None or right is None else False)
        return left

    def _both(self) -> bool | None:
        left = self._one()
        while self._peek() == "&&":
            self._take()
            right = self._one()
            left = (
                False
                if left is False or right is False
                else (None if left is None or right is None else True)
            )
        return left

    def _one(self) -> bool | None:
        word = self._take()
        if word == "!":
            inner = self._one()
            return None if inner is None else not inner
        if word.startswith("(") and word.endswith(")"):
            return double(word[1:-1], self._expander, self._state)
        following = self._peek()
        if word.startswith("-") and following and following not in ("&&", "||", "==", "=", "!="):
            return self._unary(word, self._take())
        if following in ("==", "=", "!=", "=~", "<", ">", *_NUMBERS):
            self._take()
            return self._compare(word, following, self._take())
        return self._unary("-n", word)

    def _text(self, raw: str, *, lenient: bool = False) -> str:
        self._expander.lenient = lenient
        try:
            text = self._expander.single(raw)
        finally:
            self._expander.lenient = False
        self._expander.touched = self._state.common.gaps.variable([text]) or self._expander.touched
        return text

    def _unary(self, sign: str, raw: str) -> bool | None:
        return _unary(sign, self._text(raw, lenient=sign in ("-z", "-n")), self._state)

    def _compare(self, left_raw: str, sign: str, right_raw: str) -> bool | None:
        if sign in _NUMBERS:
            values = [self._expander.arithmetic(raw) for raw in (left_raw, right_raw)]
            self._expander.touched = self._state.common.gaps.variable(values) or self._expander.touched
            return _binary(values[0], sign, values[1])
        left = self._text(left_raw)
        if sign in ("<", ">"):
            right = self._text(right_raw)
            return None if open_(left + right) else (left < right if sign == "<" else left > right)
        right = self._expander.pattern(right_raw)
        if open_(left + right):
            self._expander.touched = self._state.common.gaps.variable([right]) or self._expander.touched
            return None
        if sign == "=~":
            text = self._text(right_raw)
            if right != text or not _EASY.match(text) or len(left) > 500:
                return None
            return re.search(text, left) is not None
        try:
            return patterns.matches(left, right) == (sign != "!=")
        except patterns.TooHard:
            return None


def _full(text: str) -> bool | None:
    return None if blank(text) else text != ""


def _unary(sign: str, text: str, state: State) -> bool | None:
    if sign in ("-n", "-z"):
        full = _full(text)
        return None if full is None else full == (sign == "-n")
    if sign == "!":
        full = _full(text)
        return None if full is None else not full
    if sign == "-v" and not open_(text):
        return text in state.variables
    return None  # of files and terminals


def _binary(left: str, sign: str, right: str) -> bool | None:
    if open_(left + sign + right):
        return None
    if sign in ("=", "==", "!="):
        return (left == right) == (sign != "!=")
    if sign in _NUMBERS:
        try:
            one, two = int(left), int(right)
        except ValueError:
            return False  # bash complains, and goes on as if it were false
        return {
            "-eq": one == two, "-ne": one != two, "-lt": one < two,
            "-le": one <= two, "-gt": one > two, "-ge": one >= two,
        }[sign]  # fmt: skip
    return None
