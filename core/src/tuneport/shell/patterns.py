"""Bash's patterns: `*`, `?`, `[…]` and, where they are on, `@(a|b)` and its kin."""

from __future__ import annotations

import re
from functools import lru_cache

MAX_PATTERN = 256
MAX_VALUE = {"match": 4096, "trim": 1024, "replace": 256, "nested": 64}
"""Characters of a value, by what is done with it: each takes the work to another power."""
_SET = re.compile(r"\[([!^]?)(\]?(?:\[:\w+:\]|[^\]\[])*)\]")


class TooHard(Exception):
    """The pattern is of a kind, or a size, that is not judged."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern, with a backslash before each character that is meant as itself, as a regular expression.

    Raises:
        TooHard: it is negated, too long, or has too many stars.
    """
    if len(pattern) > MAX_PATTERN:
        raise TooHard
    try:
        return re.compile(_regex(pattern), re.S)
    except re.error:
        raise TooHard from None


def _fits(value: str, pattern: str, use: str) -> None:
    nested = re.search(r"[?*+@]\(", pattern) is not None
    if len(value) > MAX_VALUE["nested" if nested else use]:
        raise TooHard


def matches(value: str, pattern: str) -> bool:
    """Whether a whole value matches."""
    _fits(value, pattern, "match")
    return compiled(pattern).fullmatch(value) is not None


def _regex(pattern: str) -> str:
    out, at = [], 0
    segments: list[str] = []
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\" and at + 1 < len(pattern):
            out.append(re.escape(pattern[at + 1]))
            at += 2
            continue
        if sign in "?*+@!" and pattern[at + 1 : at + 2] == "(":
            end = _close(pattern, at + 2)
            if sign == "!" or end < 0:
                raise TooHard
            inner = "|".join(_regex(part) for part in options(pattern[at + 2 : end]))
            out.append(f"(?:{inner})" + {"@": "", "?": "?", "*": "*", "+": "+"}[sign])
            at = end + 1
            continue
        if sign == "*":
            segments.append("".join(out))
            out = []
        elif sign == "?":
            out.append(".")
        elif sign == "[" and (found := _SET.match(pattern, at)):
            out.append(_set(found[1], found[2]))
            at = found.end()
            continue
        else:
            out.append(re.escape(sign))
        at += 1
    if not segments:
        return "".join(out)
    # Between two stars the first place that fits will do, so nothing is tried twice.
    first, *middle = segments
    return first + "".join(f"(?>.*?{part})" for part in middle if part) + ".*" + "".join(out)


_CLASSES = {
    "alpha": "A-Za-z",
    "digit": "0-9",
    "alnum": "A-Za-z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
}


def _set(negated: str, inner: str) -> str:
    def known(match: re.Match[str]) -> str:
        if match[1] not in _CLASSES:
            raise TooHard
        return _CLASSES[match[1]]

    body = re.sub(r"\[:(\w+):\]", known, inner.replace("\\", "\\\\") if "\\" not in inner else inner)
    body = body.replace("]", r"\]").replace("^", r"\^").replace("[", r"\[")
    return f"[{'^' if negated else ''}{body}]"


def _close(pattern: str, at: int) -> int:
    level = 1
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif pattern[at] == "(":
            level += 1
        elif pattern[at] == ")":
            level -= 1
            if not level:
                return at
        at += 1
    return -1


def options(text: str) -> list[str]:
    """What stands between the bars of `a|b`, outside of quotes and parentheses."""
    parts, level, start, at = [], 0, 0, 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] in "'\"":
            end = text.find(text[at], at + 1)
            at = end if end > 0 else at
        elif text[at] == "(":
            level += 1
        elif text[at] == ")":
            level -= 1
        elif text[at] == "|" and not level:
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return [*parts, text[start:]]


def trimmed(value: str, pattern: str, how: str) -> str:
    """`${value#pattern}` and its kin: `#` and `##` take from the front, `%` and `%%` from the back, the
    doubled ones as much as they can."""
    _fits(value, pattern, "trim")
    form = compiled(pattern)
    count = len(value)
    ends = range(count + 1) if len(how) == 1 else range(count, -1, -1)
    for size in ends:
        if how[0] == "#" and form.fullmatch(value, 0, size):
            return value[size:]
        if how[0] == "%" and form.fullmatch(value, count - size):
            return value[: count - size]
    return value


def replaced(value: str, pattern: str, by: str, how: str) -> str:
    """`${value/pattern/by}`; `how` is `/`, `//`, `/#` or `/%`. The longest match counts, as in bash."""
    _fits(value, pattern, "replace")
    form = compiled(pattern)
    if not pattern and how in ("/", "//"):
        return value
    if how == "/#":
        sizes = [size for size in range(len(value), -1, -1) if form.fullmatch(value, 0, size)]
        return by + value[sizes[0] :] if sizes else value
    if how == "/%":
        starts = [start for start in range(len(value) + 1) if form.fullmatch(value, start)]
        return value[: starts[0]] + by if starts else value
    out, at = [], 0
    while at < len(value):
        end = next((end for end in range(len(value), at, -1) if form.fullmatch(value, at, end)), 0)
        if not end:
            out.append(value[at])
            at += 1
            continue
        out.append(by)
        at = end
        if how == "/":
            break
    return "".join(out) + value[at:]
