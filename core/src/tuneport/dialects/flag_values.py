"""What some parsers make of the words of one flag: mappings, and lists in one word. Surfaces name these as
`converter`; each takes the words and what the flag held before."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tuneport.types import Json

Convert: TypeAlias = Callable[[Sequence[str], Json], Json]
_DEEPEST = 2000  # characters in brackets that Python's own parser is given


def _pairs(words: Sequence[str], _before: Json) -> Json:
    """`a=1,b=[2,3]` or `a=1 b=2`, or one JSON object."""
    found: dict[str, Json] = {}
    first = _json_or_text(words[0]) if words else {}
    if isinstance(first, dict):
        return first
    for word in words:
        for item in _split(word):
            name, equal, value = item.partition("=")
            if not equal:
                raise ValueError(f"write it as NAME=VALUE: {item!r} has no `=`")
            found[name] = _scalar(value)
    return found


def _split(text: str) -> list[str]:
    """The parts between commas that stand outside of brackets and quotes."""
    parts, start, depth, quote = [], 0, 0, ""
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "[({":
            depth += 1
        elif char in "])}":
            depth = max(depth - 1, 0)
        elif char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part for part in (*parts, text[start:]) if part]


def _scalar(text: str) -> Json:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return float(text)
    except ValueError:
        return _literal(text)


def _literal(text: str) -> Json:
    """Python's notation, or the text itself."""
    if len(text) > _DEEPEST:
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if _plain(value) else text


def _plain(value: Json) -> bool:
    if isinstance(value, list | dict):
        return all(map(_plain, value.values() if isinstance(value, dict) else value))
    return value is None or isinstance(value, bool | int | float | str)


def _json_or_text(text: str) -> Json:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    except ValueError as error:
        if "{" in text and "=" not in text.partition("{")[0]:
            raise ValueError(f"what starts with {{ must be JSON, with double quotes ({error})") from None
        return text


def _json(words: Sequence[str], _before: Json) -> Json:
    """One JSON value."""
    try:
        return json.loads(words[0])
    except (ValueError, RecursionError) as error:
        hint = "write JSON with double quotes, and the whole in single quotes for the shell"
        raise ValueError(f"{hint} ({error})") from None


def _json_file(words: Sequence[str], _before: Json) -> Json:
    """JSON, or a text without braces, such as the name of a file."""
    return _json_or_text(words[0])


def _json_or_pairs(words: Sequence[str], _before: Json) -> Json:
    """JSON, or `a=1,b=2` where a comma always divides."""
    try:
        return json.loads(words[0])
    except (ValueError, RecursionError):
        pass
    found = {}
    for item in words[0].strip().split(","):
        name, equal, value = item.partition("=")
        if not equal:
            raise ValueError(f"write JSON, or NAME=VALUE divided by commas: {item.strip()!r} has no `=`")
        value = value.strip()
        read = _literal(value)
        truth = {"true": True, "false": False}.get(value.lower())
        found[name.strip()] = truth if isinstance(read, str) and read == value and truth is not None else read
    return found


def _commas(words: Sequence[str], before: Json) -> Json:
    """Words and commas both divide; added to what an earlier flag said."""
    return [
        *(before if isinstance(before, list) else []),
        *(item for word in words for item in word.split(",")),
    ]


def _int_list(words: Sequence[str], _before: Json) -> Json:
    """One whole number, or as many as there are slots, `None` for an empty one."""
    try:
        items = [None if item.strip().lower() == "none" else int(item) for item in words[0].split(",")]
    except ValueError:
        raise ValueError("write whole numbers, or None, divided by commas") from None
    if len(items) not in (1, 3, 4):
        raise ValueError("write one whole number, or four divided by commas")
    return items[0] if len(items) == 1 else items


def _truth(words: Sequence[str], _before: Json) -> Json:
    return words[0].lower() in ("true", "1", "yes")


WHOLE: Mapping[str, Convert] = {
    "pairs": _pairs,
    "json": _json,
    "json-file": _json_file,
    "json-or-pairs": _json_or_pairs,
    "commas": _commas,
    "int-list": _int_list,
    "truth": _truth,
}
ADDS = frozenset({"pairs", "commas"})
"""Those of which a second flag adds to the first."""
