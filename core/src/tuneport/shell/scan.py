"""The words of bash in source text: where quotes and expansions end, and how text splits into words."""

from __future__ import annotations

import re
from itertools import pairwise

_HEREDOC = re.compile(r"<<(-?)\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\2")
MAX_NESTED = 40


class Unended(Exception):
    """A quote or bracket is not closed, or they are nested too deep."""


def end_of_single(text: str, at: int) -> int:
    """The offset after the quote that closes the one before `at`."""
    end = text.find("'", at)
    if end < 0:
        raise Unended
    return end + 1


def end_of_ansi(text: str, at: int) -> int:
    """The same for `$'…'`, in which a backslash escapes."""
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == "'":
            return at + 1
        else:
            at += 1
    raise Unended


def end_of_double(text: str, at: int, deep: int = 0) -> int:
    """The offset after the double quote that closes the one before `at`."""
    while at < len(text):
        sign = text[at]
        if sign == '"':
            return at + 1
        at = _after(text, at, deep, quoted=True)
    raise Unended


def end_of_brace(text: str, at: int, deep: int = 0, *, quoted: bool = False) -> int:
    """The offset after the `}` that closes the `${` before `at`."""
    while at < len(text):
        if text[at] == "}":
            return at + 1
        at = _after(text, at, deep, quoted=quoted)
    raise Unended


def end_of_paren(text: str, at: int, deep: int = 0) -> int:
    """The offset after the `)` that closes the `(` before `at`."""
    level = 1
    while at < len(text):
        sign = text[at]
        if sign == "(":
            level, at = level + 1, at + 1
        elif sign == ")":
            level, at = level - 1, at + 1
            if not level:
                return at
        elif sign == "#" and text[at - 1] in " \t\n;(":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif text.startswith("<<", at) and (found := _HEREDOC.match(text, at)):
            body = re.compile(rf"\n[\t]*{found[3]}(?=\s|\)|\Z)").search(text, found.end())
            at = body.end() if body else len(text)
        else:
            at = _after(text, at, deep, quoted=False)
    raise Unended


def _after(text: str, at: int, deep: int, *, quoted: bool) -> int:
    """The offset after one sign, quote or expansion."""
    if deep > MAX_NESTED:
        raise Unended
    sign = text[at]
    if sign == "\\":
        return at + 2
    if sign == "'" and not quoted:
        return end_of_single(text, at + 1)
    if sign == '"':
        return end_of_double(text, at + 1, deep + 1)
    if sign == "`":
        return end_of_backtick(text, at + 1)
    if sign == "$" and at + 1 < len(text):
        following = text[at + 1]
        if following == "(":
            return end_of_paren(text, at + 2, deep + 1)
        if following == "{":
            return end_of_brace(text, at + 2, deep + 1, quoted=quoted)
        if following == "'" and not quoted:
            return end_of_ansi(text, at + 2)
    return at + 1


def after(text: str, at: int) -> int:
    """The offset after one sign, quote or expansion outside quotes."""
    return _after(text, at, 0, quoted=False)


def end_of_backtick(text: str, at: int) -> int:
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == "`":
            return at + 1
        else:
            at += 1
    raise Unended


def split(text: str) -> list[tuple[int, str]]:
    """(offset, raw word) of each word of a text; comments are left out."""
    found: list[tuple[int, str]] = []
    at = 0
    while at < len(text):
        if text[at] in " \t\n":
            at += 1
        elif text.startswith("\\\n", at):
            at += 2
        elif text[at] == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        else:
            start = at
            while at < len(text) and text[at] not in " \t\n":
                at = end_of_paren(text, at + 1) if text[at] == "(" else _after(text, at, 0, quoted=False)
            found.append((start, text[start:at]))
    return found


def braces(raw: str, deep: int = 0) -> list[str]:
    """Brace expansion: `a{b,c}` is two words, `{1..3}` three. Text in quotes stays."""
    if "{" not in raw:
        return [raw]
    found = _first_braces(raw)
    if found is None:
        return [raw]
    if deep > MAX_NESTED:
        raise Unended
    start, end, commas = found
    cuts = [start, *commas, end - 1]
    parts = [raw[left + 1 : right] for left, right in pairwise(cuts)]
    options = _steps(parts[0])
    if commas:
        options = [option for part in parts for option in braces(part, deep + 1)]
    rests = braces(raw[end:], deep)
    if len(options) * len(rests) > MAX_RANGE:
        raise Unended
    return [raw[:start] + option + rest for option in options for rest in rests]


_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?\Z|([A-Za-z])\.\.([A-Za-z])\Z")
MAX_RANGE = 5_000


def _first_braces(raw: str) -> tuple[int, int, list[int]] | None:
    """(offset of the first braces that expand, the offset after them, those of their commas); None where all
    are plain text. One pass, however deep they are nested."""
    opened: list[tuple[int, list[int]]] = []
    first: tuple[int, int, list[int]] | None = None
    at = 0
    while at < len(raw):
        sign = raw[at]
        if sign == "{":
            opened.append((at, []))
        elif sign == "}" and opened:
            start, commas = opened.pop()
            if (commas or _steps(raw[start + 1 : at])) and (first is None or start < first[0]):
                first = start, at + 1, commas
            if first is not None and not opened:
                return first
        elif sign == "," and opened:
            opened[-1][1].append(at)
        at = _after(raw, at, 0, quoted=False)
    return first


def _steps(text: str) -> list[str]:
    found = _RANGE.match(text) if ".." in text[:14] else None
    if not found:
        return []
    if found[4]:
        first, last, step = ord(found[4]), ord(found[5]), 1
    else:
        if max(map(len, (found[1], found[2]))) > 12:
            return []
        first, last, step = int(found[1]), int(found[2]), abs(int(found[3] or 1)) or 1
    if abs(last - first) // step > MAX_RANGE:
        return []
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    if found[4]:
        return [chr(number) for number in numbers]
    padded = any(len(text) > 1 and text.lstrip("-").startswith("0") for text in (found[1], found[2]))
    width = max(len(found[1]), len(found[2])) if padded else 0
    return [f"{number:0{width}d}" if width else str(number) for number in numbers]
