"""The words of bash in source text: where quotes and expansions end, and how text splits into words."""

from __future__ import annotations

import re

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
        if text[at] in " \t\n\r":
            at += 1
        elif text.startswith("\\\n", at):
            at += 2
        elif text[at] == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        else:
            start = at
            while at < len(text) and text[at] not in " \t\n\r":
                at = end_of_paren(text, at + 1) if text[at] == "(" else _after(text, at, 0, quoted=False)
            found.append((start, text[start:at]))
    return found


def braces(raw: str) -> list[str]:
    """Brace expansion: `a{b,c}` is two words, `{1..3}` three. Text in quotes stays."""
    at = 0
    while at < len(raw):
        if raw[at] == "{" and (found := _alternatives(raw, at)):
            options, end = found
            rests = braces(raw[end:])
            if len(options) * len(rests) > MAX_RANGE:
                raise Unended
            return [raw[:at] + option + rest for option in options for rest in rests]
        at = _after(raw, at, 0, quoted=False)
    return [raw]


_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?\Z|([A-Za-z])\.\.([A-Za-z])\Z")
MAX_RANGE = 5_000


def _alternatives(raw: str, at: int) -> tuple[list[str], int] | None:
    """(what the braces at an offset expand to, the offset after them), or None where they are plain text."""
    level, start, parts, here = 1, at + 1, [], at + 1
    while here < len(raw):
        sign = raw[here]
        if sign == "{":
            level, here = level + 1, here + 1
        elif sign == "}":
            level, here = level - 1, here + 1
            if not level:
                parts.append(raw[start : here - 1])
                break
        elif sign == "," and level == 1:
            parts.append(raw[start:here])
            start = here = here + 1
        else:
            here = _after(raw, here, 0, quoted=False)
    else:
        return None
    if len(parts) > 1:
        return [option for part in parts for option in braces(part)], here
    steps = _steps(parts[0])
    return (steps, here) if steps else None


def _steps(text: str) -> list[str]:
    found = _RANGE.match(text)
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
