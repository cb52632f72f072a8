"""Text with holes. No shell value holds a NUL, so NUL, a number, NUL stands for what is not known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

NUL = "\0"
_GAP = re.compile("\0([0-9]+)\0")


class Word(str):
    """A word of a command and where it stands in its script."""

    __slots__ = ("file", "line")
    file: str
    line: int


def word(text: str, file: str, line: int) -> Word:
    made = Word(text)
    made.file, made.line = file, line
    return made


@dataclass(frozen=True, slots=True)
class Gap:
    """Why something is not known. `variable` is what could be given to settle it, where there is one."""

    why: str
    variable: str
    file: str
    line: int


@dataclass(slots=True)
class Gaps:
    """All gaps of one reading; text refers to them by number."""

    found: list[Gap] = field(default_factory=list)
    _known: dict[Gap, str] = field(default_factory=dict)

    def new(self, gap: Gap) -> str:
        """The text that stands for a gap."""
        if gap not in self._known:
            self._known[gap] = f"{NUL}{len(self.found)}{NUL}"
            self.found.append(gap)
        return self._known[gap]

    def of(self, text: str) -> Iterator[Gap]:
        for match in _GAP.finditer(text):
            yield self.found[int(match[1])]

    def variable(self, texts: Iterable[str]) -> str:
        """A variable that would settle one of the texts."""
        return next((gap.variable for text in texts for gap in self.of(text) if gap.variable), "")


def open_(text: str) -> bool:
    """Whether something in a text is not known."""
    return NUL in text


def blank(text: str) -> bool:
    """Whether nothing at all of a text is known, not even that it is there."""
    return NUL in text and not _GAP.sub("", text)


def fog(text: str) -> str:
    """What is left of a text that cannot be taken further: its first gap."""
    match = _GAP.search(text)
    assert match is not None
    return match[0]


def shown(text: str) -> str:
    """A text for a person, with an ellipsis for what is not known."""
    return _GAP.sub("…", text)
