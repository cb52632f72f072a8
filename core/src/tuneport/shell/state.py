"""What a script has set so far, and what is left of it where nobody knows which way the script went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuneport.shell.gaps import Gap, Gaps
from tuneport.shell.limits import Budget
from tuneport.shell.syntax import Node

Value = str | list[str] | dict[str, str]
"""A plain variable, an indexed array or an associative one. In a list a word that is nothing but a gap
stands for any number of words."""


@dataclass(slots=True)
class Common:
    """What all states of one reading share. `elsewhere`: it runs on a machine whose files are not here."""

    gaps: Gaps = field(default_factory=Gaps)
    budget: Budget = field(default_factory=Budget)
    elsewhere: bool = False


@dataclass(slots=True)
class State:
    """Variables, positional parameters and functions at one point of a script."""

    common: Common
    file: str
    home: str
    cwd: str
    variables: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    given: frozenset[str] = frozenset()  # set from outside, by whoever asks
    params: list[str] = field(default_factory=list)
    functions: dict[str, tuple[Node, bytes, str]] = field(default_factory=dict)
    locals: list[dict[str, Value | None]] = field(default_factory=list)
    line: int = 0

    def gap(self, why: str, variable: str = "") -> str:
        """Text for something that is not known."""
        return self.common.gaps.new(Gap(why, variable, self.file, self.line))

    def copy(self) -> State:
        """A state of its own, as of a subshell."""
        self.common.budget.step(1 + len(self.variables) // 16)
        return State(
            common=self.common,
            file=self.file,
            home=self.home,
            cwd=self.cwd,
            variables={
                name: (value if isinstance(value, str) else value.copy())
                for name, value in self.variables.items()
            },
            exported=set(self.exported),
            given=self.given,
            params=list(self.params),
            functions=dict(self.functions),
            locals=[dict(frame) for frame in self.locals],
            line=self.line,
        )

    def take(self, other: State) -> None:
        """Go on as another state of the same script."""
        self.variables, self.exported, self.params = other.variables, other.exported, other.params
        self.functions, self.cwd = other.functions, other.cwd

    def merge(self, ways: list[State], why: str, variable: str) -> None:
        """Go on where several states may be the real one: what differs among them is not known."""
        first = ways[0]
        names = {name for way in ways for name in way.variables}
        merged: dict[str, Value] = {}
        gap = ""
        for name in names:
            values = [way.variables.get(name) for way in ways]
            if all(value == values[0] for value in values) and values[0] is not None:
                merged[name] = values[0]
                continue
            gap = gap or self.gap(why, variable)
            merged[name] = _either(values, gap)
        self.variables = merged
        self.exported = {name for way in ways for name in way.exported}
        self.functions = {name: node for way in reversed(ways) for name, node in way.functions.items()}
        same = all(way.params == first.params for way in ways)
        self.params = first.params if same else _common([way.params for way in ways], self.gap(why, variable))
        self.cwd = first.cwd if all(way.cwd == first.cwd for way in ways) else self.gap(why, variable)


def _either(values: list[Value | None], gap: str) -> Value:
    lists = [value for value in values if isinstance(value, list)]
    if lists and all(value is None or isinstance(value, list) for value in values):
        return _common([value if isinstance(value, list) else [] for value in values], gap)
    if all(value is None or isinstance(value, dict) for value in values):
        tables: list[Mapping[str, str]] = [value if isinstance(value, dict) else {} for value in values]
        keys = {key for table in tables for key in table}
        return {
            key: tables[0].get(key, gap) if all(t.get(key) == tables[0].get(key) for t in tables) else gap
            for key in keys
        }
    return gap


def _common(lists: list[list[str]], gap: str) -> list[str]:
    """What several lists begin with, and a gap for the rest."""
    count = 0
    for items in zip(*lists, strict=False):
        if any(item != items[0] for item in items):
            break
        count += 1
    return [*lists[0][:count], gap]
