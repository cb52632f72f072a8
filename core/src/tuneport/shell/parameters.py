"""Variables by name, and what `${…}` can do to their values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tuneport.shell import patterns
from tuneport.shell.gaps import fog, open_
from tuneport.shell.state import State

NAME = re.compile(r"[A-Za-z_]\w*")
_NAMED = re.compile(r"[A-Za-z_]\w*|[0-9]+|[@*#?$!-]")
MACHINE = frozenset(
    {"BASHPID", "BASH_VERSION", "EPOCHSECONDS", "EUID", "HOSTNAME", "HOSTTYPE", "LINENO", "LOGNAME", "OSTYPE"}
    | {"PATH", "PPID", "RANDOM", "SECONDS", "SHELL", "SRANDOM", "UID", "USER"}
)
"""Always set, to what only the machine knows."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a word. `plain` text stood in the source, `quoted` text is never split, `open` text came from
    an expansion outside quotes and is."""

    text: str
    kind: str


class Parameters:
    """Looks variables up in a state.

    Args:
        single: expands text without splitting it.
        number: the value of an arithmetic expression, as text.
    """

    def __init__(self, state: State, single: Callable[[str], str], number: Callable[[str], str]) -> None:
        self._state, self._single, self._number = state, single, number

    def named(self, content: str) -> tuple[str, str, str]:
        """(name, subscript, what follows) of the inside of `${…}`; no name where it has none."""
        match = _NAMED.match(content)
        if match is None:
            return "", "", ""
        rest = content[match.end() :]
        if rest.startswith("[") and NAME.fullmatch(match[0]):
            end = _bracket(rest)
            if end < 0:
                return "", "", ""
            return match[0], rest[1:end], rest[end + 1 :]
        return match[0], "", rest

    def value(self, name: str, subscript: str = "") -> str | list[str] | None:
        """The value: a list for all elements or parameters, None where nobody set it."""
        state = self._state
        if name in ("@", "*"):
            return list(state.params)
        if not NAME.fullmatch(name):
            return self._special(name)
        if name in ("BASH_SOURCE", "PWD", "HOME", "OLDPWD") and name not in state.variables:
            return {"BASH_SOURCE": state.file, "PWD": state.cwd, "HOME": state.home}.get(name)
        if name in MACHINE and name not in state.variables:
            return state.gap(f"{name} comes from the machine", name)
        held = state.variables.get(name)
        if held is None or (isinstance(held, str) and not subscript):
            return held
        if isinstance(held, str):
            held = [held]
        if subscript in ("@", "*"):
            return list(held.values()) if isinstance(held, dict) else list(held)
        if isinstance(held, dict):
            key = self._single(subscript or "0")
            return fog(key) if open_(key) else held.get(key)
        index = self._number(subscript) if subscript else "0"
        if open_(index):
            return fog(index)
        # A gap in the list stands for any number of words: what comes after it has no certain place.
        position = int(index)
        before = held[: position + 1] if position >= 0 else held
        if any(open_(item) and not item.strip("\0").strip("0123456789") for item in before):
            return next(fog(item) for item in before if open_(item))
        return held[position] if -len(held) <= position < len(held) else None

    def plain(self, name: str) -> str | None:
        """The value as one text."""
        base, subscript, rest = self.named(name)
        if not base or rest:
            return None
        value = self.value(base, subscript)
        return " ".join(value) if isinstance(value, list) else value

    def _special(self, name: str) -> str:
        state = self._state
        if name == "0":
            return state.file
        if name == "#":
            unsure = [param for param in state.params if open_(param)]
            return fog(unsure[0]) if unsure else str(len(state.params))
        if name.isdigit():
            number = int(name[:6])
            before = state.params[:number]
            unsure = [param for param in before if open_(param) and param == fog(param)]
            if unsure:
                return unsure[0]
            return before[-1] if len(before) == number else ""
        return state.gap(f"${name} is known only while the script runs")

    def length(self, content: str) -> str | None:
        """`${#…}`."""
        name, subscript, rest = self.named(content)
        if not name or rest:
            return None
        value = self.value(name, subscript)
        if value is None:
            return "0" if subscript in ("@", "*") else None
        unsure = [text for text in (value if isinstance(value, list) else [value]) if open_(text)]
        return fog(unsure[0]) if unsure else str(len(value))

    def keys(self, content: str) -> list[str] | None:
        """`${!name[@]}`, or None where it is none."""
        match = re.fullmatch(r"!([A-Za-z_]\w*)\[[@*]\]", content)
        if match is None:
            return None
        held = self._state.variables.get(match[1], [])
        if isinstance(held, dict):
            return list(held)
        return [str(number) for number in range(len(held))] if isinstance(held, list) else ["0"]

    def separators(self) -> str:
        """IFS."""
        held = self._state.variables.get("IFS")
        return held if isinstance(held, str) and not open_(held) else " \t\n"

    def separator(self) -> str:
        """What stands between the elements of `"${name[*]}"`."""
        return self.separators()[:1]


def _bracket(text: str) -> int:
    level = 0
    for at, sign in enumerate(text):
        level += (sign == "[") - (sign == "]")
        if not level:
            return at
    return -1


def sliced(
    value: str | list[str], spec: str, number: Callable[[str], str], *, positional: bool
) -> str | list[str]:
    """`${name:offset:length}`.

    Raises:
        ValueError: an offset is not known, or there is no such part.
    """
    offset_text, colon, count_text = spec.partition(":")
    texts = value if isinstance(value, list) else [value]
    if any(map(open_, texts)):
        return fog(next(filter(open_, texts)))
    offset_text, count_text = number(offset_text), number(count_text) if colon else ""
    for text in (offset_text, count_text):
        if open_(text):
            return fog(text)
    offset = int(offset_text)
    if positional:
        if offset < 1:
            raise ValueError
        offset -= 1
    elif offset < 0:
        offset += len(value)
        if offset < 0:
            return ""
    if not colon:
        return value[offset:]
    count = int(count_text)
    if count < 0 and isinstance(value, list):
        raise ValueError
    return value[offset : offset + count] if count >= 0 else value[offset:count]


def transformed(
    value: str | list[str], rest: str, pattern: Callable[[str], str], single: Callable[[str], str]
) -> str | list[str]:
    """`${name%…}`, `${name/…/…}`, `${name^^}` and their kin, of each element.

    Raises:
        TooHard: the pattern is not judged. ValueError: the operator is unknown.
    """
    if isinstance(value, list):
        return [str(transformed(item, rest, pattern, single)) for item in value]
    if open_(value):
        return fog(value)
    sign = re.match(r"##?|%%?|//|/#|/%|/|\^\^|\^|,,|,|@[ULu]\Z", rest)
    if sign is None:
        raise ValueError
    how, word = sign[0], rest[sign.end() :]
    if how[0] in "#%":
        form = pattern(word)
        return fog(form) if open_(form) else patterns.trimmed(value, form, how)
    if how[0] == "/":
        form_raw, by_raw = _halves(word)
        form, by = pattern(form_raw), single(by_raw)
        if open_(form) or open_(by):
            return fog(form if open_(form) else by)
        if "&" in by or "\\" in by:  # what they mean there differs from one bash to another
            raise ValueError
        return patterns.replaced(value, form, by, how)
    if word:
        raise ValueError
    changed = str.lower if how[0] == "," or how == "@L" else str.upper
    return changed(value) if how in ("^^", ",,", "@U", "@L") else changed(value[:1]) + value[1:]


def _halves(word: str) -> tuple[str, str]:
    at = 0
    while at < len(word):
        if word[at] == "\\":
            at += 1
        elif word[at] == "/":
            return word[:at], word[at + 1 :]
        at += 1
    return word, ""
