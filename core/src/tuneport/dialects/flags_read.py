"""An existing argument list as settings, word by word as Python's argparse takes it."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tuneport.checks.surface import kinds
from tuneport.checks.undecided import UNDECIDED
from tuneport.dialects import flag_values
from tuneport.dialects.hydra.read import Applied, placed, twice
from tuneport.shell.gaps import Word, blank, open_, shown, word
from tuneport.text import closest
from tuneport.types import Finding, Json, Key

_NAME = re.compile(r"[A-Za-z_][\w-]*")
_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
_DOCS = "Python 3.11 argparse.py, ArgumentParser._parse_known_args"
_CONVERTERS = {"int": int, "float": float}
MAX_SAID = 50
"""Words that belong to no flag, and flags given again, that are said one by one."""


@dataclass(slots=True)
class Read:
    """What the words set. `words` say the same as KEY=VALUE, each in its place; a word that nobody knows
    stays as it is. `handed` are the flags that the program hands on to what starts it, with their values."""

    applied: Applied = field(default_factory=Applied)
    words: list[str] = field(default_factory=list)
    handed: list[tuple[str, str]] = field(default_factory=list)


def read(arguments: Sequence[str], keys: Mapping[str, Key]) -> Read:
    """Take an argument list apart, against a parser that takes flags alone, abbreviated ones too.

    A flag that the parser does not have is set under its name all the same, for whoever knows where it went.
    """
    options: dict[str, tuple[Key, bool]] = {}
    for key in keys.values():
        style = key.flag.get("style") or f"--{key.name}"
        options[style] = (key, True)
        options |= dict.fromkeys(key.flag.get("also", ()), (key, True))
        if key.flag.get("action") == "boolean_optional":
            options[f"--no-{style.lstrip('-')}"] = (key, False)
    return Reader(arguments, options, _converted).run()


def _converted(key: Key, text: str) -> Json:
    """A word as the value that it stands for.

    Raises:
        ValueError: the key does not take it.
    """
    kind = next((name for name in _CONVERTERS if name in key.types), "")
    if kind:
        return _CONVERTERS[kind](text)
    # A word of a script is more than text.
    return bool(text) if key.flag.get("converter") == "bool" else str(text)


class Reader:
    """Takes an argument list apart against the options of one parser.

    Args:
        options: option -> (its key, the value that a switch sets).
        converted: see `_converted`.
        handed: flags that belong to what starts the program -> whether they take a value.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        options: Mapping[str, tuple[Key, bool]],
        converted: Callable[[Key, str], Json],
        handed: Mapping[str, bool] = {},
    ) -> None:
        self._rest = deque(arguments)
        self._options = options
        self._converted = converted
        self._handed = handed
        self._sorted = sorted(self._options)
        self._taken: dict[str, tuple[Json, str]] = {}
        self._stray = self._repeated = 0
        self.read = Read()

    def run(self) -> Read:
        sure = True  # whether a word that is no flag certainly belongs to none
        last = ""
        while self._rest:
            text = self._rest.popleft()
            if text in ("-h", "--help"):
                message = f"{text} prints what the program takes and ends it; nothing else is done"
                self._say("flag-help", "note", message, "leave it out", text, text)
            elif text == "--":  # what follows are no flags, whatever it looks like
                while self._rest:
                    self._no_flag(self._rest.popleft(), last)
            elif open_(text) and (blank(text) or open_(text.partition("=")[0])):
                self.read.words.append(text)
                sure = False
            elif self._is_flag(text):
                last = self._flag(text)
                sure = True
            elif sure:
                self._no_flag(text, last)
        return self.read

    def _is_flag(self, text: str) -> bool:
        if len(text) < 2 or not text.startswith("-") or text == "--":
            return False
        if text in self._options or text.partition("=")[0] in self._options:
            return True
        if any(self._longer(text.partition("=")[0])):
            return True
        return not _NUMBER.fullmatch(text) and " " not in text

    def _longer(self, text: str) -> Iterator[str]:
        """The flags that begin with a text."""
        if not text.startswith("--"):
            return
        for option in self._sorted[bisect_left(self._sorted, text) :]:
            if not option.startswith(text):
                return
            yield option

    def _flag(self, text: str) -> str:
        """Read one flag with its values; the flag in full."""
        option, equal, given = text.partition("=")
        if option not in self._options and text[:2] in self._options:  # `-b8` is `-b 8`
            option, equal, given = text[:2], "=", text[2:]
        found = [option] if option in self._options else list(self._longer(option))
        if not found and option in self._handed:
            alone = not self._handed[option] and not equal
            value = given if equal else " ".join(self._values(0 if alone else 1))
            self.read.handed.append((option, value))
            return option
        if len(found) > 1:
            message = f"{option} is short for {', '.join(found[:4])}{', …' if len(found) > 4 else ''}"
            self._say("flag-ambiguous", "error", message, "write the flag in full", option, text)
            self._values()
            return option
        if not found:
            self._set(option.lstrip("-"), given if equal else self._unknown_value(), text)
            return option
        if found[0] != option:
            message = f"{option} is read as {found[0]}, as long as no other flag begins like it"
            self._say("flag-short", "note", message, f"write {found[0]}", found[0].lstrip("-"), text)
        self._known(found[0], *self._options[found[0]], [given] if equal else None, text)
        return found[0]

    def _known(self, option: str, key: Key, truth: bool, given: list[str] | None, text: str) -> None:
        action, nargs = key.flag.get("action", "store"), key.flag.get("nargs")
        if action not in ("store", "append", "extend", "custom"):
            if given is not None:
                message = f"{option} takes no value, and is given {shown(given[0])!r}"
                hint = f"write {option} alone, or leave it out"
                self._say("flag-value", "error", message, hint, key.name, text)
            elif action == "count":
                before = self._taken.get(key.name, (0, ""))[0]
                self._set(key.name, before + 1, text, again=True)
            else:
                self._set(key.name, truth, text)
            return
        if action == "custom":
            self._set(key.name, UNDECIDED, text)
            self._values()
            return
        values = given if given is not None else self._values(1 if nargs in (None, "?") else nargs)
        if values and any(map(open_, values)):
            self._set(key.name, UNDECIDED, text, values)
            return
        wanted = {None: 1, "+": "1 or more"}.get(nargs, nargs)
        if (wanted == 1 or isinstance(nargs, int)) and len(values) != wanted:
            several = "value" if wanted == 1 else "values"
            message = f"{option} takes {wanted} {several} and gets {len(values)}"
            self._say("key-values", "error", message, self._dash_hint(option, values), key.name, text)
        elif nargs == "+" and not values:
            message = f"{option} takes one value or more and gets none"
            self._say("key-values", "error", message, self._dash_hint(option, values), key.name, text)
        else:
            self._convert(option, key, values, text)

    def _dash_hint(self, option: str, values: list[str]) -> str:
        ahead = self._rest[0] if self._rest else ""
        if ahead.startswith("-") and len(values) == 0 and ahead.partition("=")[0] not in self._options:
            return f"a value that starts with a dash is given as {option}={shown(ahead)}"
        return ""

    def _convert(self, option: str, key: Key, values: list[str], text: str) -> None:
        if values and key.flag.get("converter") in flag_values.WHOLE:
            self._whole(option, key, values, text)
            return
        found: list[Json] = []
        for value in values:
            try:
                found.append(self._converted(key, value))
            except ValueError as refusal:
                said = str(refusal) if isinstance(refusal, Unfit) else ""
                message = f"`{key.name}` is {shown(value)!r} where {option} takes {kinds(key)}"
                self._say("key-type", "error", message, said, key.name, text)
                return
        if key.flag.get("action") in ("append", "extend"):
            before = self._taken.get(key.name, ([], ""))[0]
            self._set(key.name, [*before, *found], text, again=True)
        elif key.flag.get("nargs") in (None, "?"):
            alone = key.flag.get("const", True if key.flag.get("bare") else UNDECIDED)
            self._set(key.name, found[0] if found else alone, text)
        else:
            self._set(key.name, found, text)

    def _whole(self, option: str, key: Key, values: list[str], text: str) -> None:
        """Words that make one value together. What a mapping holds becomes a setting of its own, by its
        name."""
        kind = key.flag["converter"]
        adds = kind in flag_values.ADDS
        before = self._taken[key.name][0] if key.name in self._taken else None
        try:
            value = flag_values.WHOLE[kind]([str(item) for item in values], before)
        except ValueError as refusal:
            message = f"{option} cannot take {shown(' '.join(values))!r}"
            self._say("key-type", "error", message, str(refusal), key.name, text)
            return
        if not isinstance(value, dict) or not value or not all(map(_NAME.fullmatch, value)):
            self._set(key.name, value, text, values, again=adds)
            return
        if not adds:  # a second flag replaces the first as a whole
            for name in [name for name in self._taken if name.startswith(f"{key.name}.")]:
                del self._taken[name], self.read.applied.own[name]
        for name, item in value.items():
            self._set(f"{key.name}.{name}", item, text, again=isinstance(item, dict))

    def _values(self, most: int | str = "*") -> list[str]:
        """The words that follow a flag and are none themselves, as many as it takes."""
        found: list[str] = []
        while self._rest and (not isinstance(most, int) or len(found) < most):
            ahead = self._rest[0]
            if not open_(ahead) and (ahead == "--" or ahead in ("-h", "--help") or self._is_flag(ahead)):
                break
            found.append(self._rest.popleft())
        return found

    def _unknown_value(self) -> Json:
        values = self._values()
        return True if not values else UNDECIDED if any(map(open_, values)) else str(values[0])

    def _set(
        self, name: str, value: Json, text: str, values: Sequence[str] = (), *, again: bool = False
    ) -> None:
        applied = self.read.applied
        if name in self._taken and not again:
            self._repeated += 1
            if self._repeated <= MAX_SAID:
                before, first = self._taken[name]
                applied.findings.append(placed(twice(name, before, value, first, text), text))
        self._taken[name] = (value, text)
        applied.own[name] = value
        if isinstance(text, Word):
            applied.places[name] = text
        shown_value = " ".join(values) if values else str(value)
        if value is UNDECIDED and not values:
            shown_value = text.partition("=")[2]
        said = f"{name}={shown_value}"
        self.read.words.append(word(said, text.file, text.line) if isinstance(text, Word) else said)

    def _no_flag(self, text: str, last: str) -> None:
        self._stray += 1
        if self._stray > MAX_SAID:
            return
        key = self._options[last][0] if last in self._options else None
        hint = "quote a value that has blanks in it"
        if key is not None and key.flag.get("action", "").startswith("store_"):
            hint = f"{last} takes no value: write it alone, or leave it out"
        close = closest(f"--{text}", self._options) if "=" in text or "." in text else ""
        hint = f"did you mean {close}?" if close else hint
        message = f"{shown(text)!r} belongs to no flag"
        self._say("flag-stray", "error", message, hint, key.name if key else text, text)

    def _say(self, code: str, severity: str, message: str, hint: str, key: str, text: str) -> None:
        finding = Finding(code, severity, message, hint, key, source=_DOCS)  # type: ignore[arg-type]
        self.read.applied.findings.append(placed(finding, text))


class Unfit(ValueError):
    """A word that a key does not take, with what to do about it."""
