"""Bash's arithmetic on 64 bit whole numbers: `$(( ))`, `(( ))`, offsets and indices."""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|\d+(?:#\w+)?)|(?P<name>[A-Za-z_]\w*(?:\[(?:[^][]|\[[^][]*\])+\])?)"
    r"|(?P<sign>\*\*|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|[-+*/%<>&|^!~?:=(),]))"
)
_LEVELS = [("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>")]
_LEVELS += [("+", "-"), ("*", "/", "%")]
MAX_DEPTH = 50


class NoNumber(Exception):
    """It is no arithmetic, or depends on something that is not known."""


def evaluate(text: str, get: Callable[[str], str], put: Callable[[str, str], None]) -> int:
    """The value of an expression.

    Args:
        get: a variable's text, which is an expression in turn; it may raise NoNumber.
        put: called for assignments.
    """
    return _Reader(text, get, put, 0).whole()


class _Reader:
    def __init__(
        self, text: str, get: Callable[[str], str], put: Callable[[str, str], None], depth: int
    ) -> None:
        if depth > 8 or len(text) > 4096:
            raise NoNumber
        self._get, self._put, self._depth, self._nested = get, put, depth, 0
        self._tokens: list[str] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise NoNumber
            self._tokens.append(match[0].strip())
            at = match.end()
        self._at = 0

    def whole(self) -> int:
        if not self._tokens:
            return 0
        value = self._comma()
        if self._at < len(self._tokens):
            raise NoNumber
        return value

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1] if self._at <= len(self._tokens) else ""

    def _comma(self) -> int:
        value = self._assignment()
        while self._peek() == ",":
            self._take()
            value = self._assignment()
        return value

    def _assignment(self) -> int:
        self._nested += 1
        if self._nested > MAX_DEPTH:
            raise NoNumber
        try:
            name = self._peek()
            following = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else ""
            assigns = following == "=" or (following.endswith("=") and following[:-1] in _BINARY)
            if not (name[:1].isalpha() or name[:1] == "_") or not assigns or following in ("<=", ">=", "=="):
                return self._ternary()
            self._at += 2
            right = self._assignment()
            if following != "=":
                right = _apply(following[:-1], self._variable(name), right)
            self._put(name, str(right))
            return right
        finally:
            self._nested -= 1

    def _ternary(self) -> int:
        condition = self._binary(0)
        if self._peek() != "?":
            return condition
        self._take()
        left = self._assignment()
        if self._take() != ":":
            raise NoNumber
        right = self._assignment()
        return left if condition else right

    def _binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._power()
        left = self._binary(level + 1)
        while self._peek() in _LEVELS[level]:
            sign = self._take()
            left = _apply(sign, left, self._binary(level + 1))
        return left

    def _power(self) -> int:
        base = self._unary()
        if self._peek() != "**":
            return base
        self._take()
        exponent = self._power()
        if not 0 <= exponent <= 64:
            raise NoNumber
        return _wrap(base**exponent)

    def _unary(self) -> int:
        sign = self._take()
        if sign in ("++", "--"):
            return self._step(self._take(), sign, before=True)
        if sign in ("+", "-", "!", "~"):
            self._nested += 1
            if self._nested > MAX_DEPTH:
                raise NoNumber
            value = self._unary()
            self._nested -= 1
            return _wrap({"+": value, "-": -value, "!": int(not value), "~": ~value}[sign])
        if sign == "(":
            value = self._comma()
            if self._take() != ")":
                raise NoNumber
            return value
        if sign[:1].isdigit():
            return _number(sign)
        if not sign[:1].isalpha() and sign[:1] != "_":
            raise NoNumber
        if self._peek() in ("++", "--"):
            return self._step(sign, self._take(), before=False)
        return self._variable(sign)

    def _step(self, name: str, sign: str, *, before: bool) -> int:
        old = self._variable(name)
        new = _wrap(old + (1 if sign == "++" else -1))
        self._put(name, str(new))
        return new if before else old

    def _variable(self, name: str) -> int:
        return _Reader(self._get(name), self._get, self._put, self._depth + 1).whole()


def _number(text: str) -> int:
    base, mark, digits = text.partition("#")
    try:
        if mark:
            return _wrap(int(digits, int(base)))
        if text[:2] in ("0x", "0X"):
            return _wrap(int(text, 16))
        return _wrap(int(text, 8) if len(text) > 1 and text[0] == "0" else int(text))
    except ValueError:
        raise NoNumber from None


def _wrap(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _divide(left: int, right: int) -> int:
    if not right:
        raise NoNumber
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_BINARY: dict[str, Callable[[int, int], int]] = {
    "||": lambda left, right: int(bool(left or right)),
    "&&": lambda left, right: int(bool(left and right)),
    "|": lambda left, right: left | right,
    "^": lambda left, right: left ^ right,
    "&": lambda left, right: left & right,
    "==": lambda left, right: int(left == right),
    "!=": lambda left, right: int(left != right),
    "<": lambda left, right: int(left < right),
    ">": lambda left, right: int(left > right),
    "<=": lambda left, right: int(left <= right),
    ">=": lambda left, right: int(left >= right),
    "<<": lambda left, right: left << (right % 64),
    ">>": lambda left, right: left >> (right % 64),
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide,
    "%": lambda left, right: left - right * _divide(left, right),
}


def _apply(sign: str, left: int, right: int) -> int:
    return _wrap(_BINARY[sign](left, right))
