"""What a comparison of two releases says, as data and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuneport.types import Json, Key
from tuneport.upstream.moves import Move
from tuneport.upstream.raises import Check
from tuneport.upstream.scan import Scan


@dataclass(frozen=True, slots=True)
class Keyed:
    """A key that only one of two releases has, with all entries that it is in."""

    key: str
    entries: tuple[str, ...]
    facts: Key

    def document(self) -> dict[str, Json]:
        """As `tp upstream diff --json` has it."""
        facts = self.facts
        found: dict[str, Json] = {"key": self.key, "entries": list(self.entries), "types": list(facts.types)}
        if facts.required:
            found["required"] = True
        else:
            found["default"] = facts.default
        if facts.choices:
            found["choices"] = list(facts.choices)
        return {**found, "source": facts.source}


@dataclass(frozen=True, slots=True)
class Change:
    """One fact that two releases say differently. `kind`: default, types, choices, required or flag of a
    key; pin, entry-point, registry or entry, whose name is then `key`; None is absence."""

    kind: str
    key: str
    old: Json
    new: Json
    entries: tuple[str, ...] = ()

    def document(self) -> dict[str, Json]:
        """As `tp upstream diff --json` has it."""
        return {
            "kind": self.kind,
            "key": self.key,
            "old": self.old,
            "new": self.new,
            "entries": list(self.entries),
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """Two releases compared. A key that moved is in `moved`, not in `added` and `removed`.

    Attributes:
        checks: (what happened to it: added, removed or changed; the check, as the newer release that has it).
        touches: native key -> what of ours names it.
        undecided: what neither surface can say.
    """

    old: Scan
    new: Scan
    added: tuple[Keyed, ...] = ()
    removed: tuple[Keyed, ...] = ()
    moved: tuple[Move, ...] = ()
    changed: tuple[Change, ...] = ()
    checks: tuple[tuple[str, Check], ...] = ()
    touches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    undecided: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether the releases take, ask for and check the same."""
        return not (self.added or self.removed or self.moved or self.changed or self.checks)

    def document(self) -> dict[str, Json]:
        """As `tp upstream diff --json` prints it: upstream-diff.schema.json."""
        return {
            "old": _named(self.old),
            "new": _named(self.new),
            "added": [item.document() for item in self.added],
            "removed": [item.document() for item in self.removed],
            "moved": [item.document() for item in self.moved],
            "changed": [item.document() for item in self.changed],
            "checks": [{"change": change, **check.document()} for change, check in self.checks],
            "touches": {key: list(names) for key, names in self.touches.items()},
            "undecided": list(self.undecided),
        }


def _named(one: Scan) -> dict[str, Json]:
    artefacts = [dict(item) for item in one.artefacts]
    return {"framework": one.framework, "release": one.release, "artefacts": artefacts}
