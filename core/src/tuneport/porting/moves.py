"""Where the keys of one release went in another, by the moves that the releases between them declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuneport.checks.surface import ancestor
from tuneport.registry import catalog
from tuneport.types import Json, Key


@dataclass(frozen=True, slots=True)
class Destination:
    """The names that a key may have now, all of them in the surface. `notes` are sentences of the moves on
    the way about its value; `towards` is where it was moved to, whether that is there or not."""

    names: tuple[str, ...]
    notes: tuple[str, ...]
    towards: tuple[str, ...]


def between(framework: str, old: str, new: str) -> list[list[Mapping[str, Json]]]:
    """The moves of each release after `old` up to `new`, in order; where `new` is the older one, those of the
    releases from `old` down, turned round. From an unknown release, and to the same one, those of `new`."""
    known = catalog.releases(framework)
    here, there = (known.index(name) if name in known else -1 for name in (old, new))
    if here > there:
        back = reversed(known[there + 1 : here + 1])
        return [[_turned(move) for move in _moves(framework, name)] for name in back]
    way = known[here + 1 : there + 1] if 0 <= here < there else [new]
    return [list(_moves(framework, name)) for name in way]


def _moves(framework: str, version: str) -> Sequence[Mapping[str, Json]]:
    found: Sequence[Mapping[str, Json]] = catalog.release_spec(framework, version).get("moves", ())
    return found


def _turned(move: Mapping[str, Json]) -> dict[str, Json]:
    return {**move, "from": move["to"], "to": move["from"]}


def destination(
    name: str, steps: Sequence[Sequence[Mapping[str, Json]]], keys: Mapping[str, Key]
) -> Destination:
    """Follow a key through the moves of several releases; of what it may be called, those that `keys` has.

    A move of a branch takes the keys below it along, unless a longer name has a move of its own.
    """
    now: dict[str, tuple[str, ...]] = {name: ()}  # a name that it may have -> the notes on the way there
    towards: list[str] = []
    for moves in steps:
        after: dict[str, tuple[str, ...]] = {}
        for known, notes in now.items():
            found = _applied(known, moves)
            towards += [new for new, _ in found]
            after |= {new: (*notes, *([note] if note else ())) for new, note in found} or {known: notes}
        now = after
    there = {known: notes for known, notes in now.items() if known != name and _has(known, keys)}
    notes = tuple(dict.fromkeys(note for found in there.values() for note in found))
    return Destination(tuple(there), notes, tuple(dict.fromkeys(towards)))


def _applied(name: str, moves: Iterable[Mapping[str, Json]]) -> list[tuple[str, str]]:
    """(new name, note) of each move that fits best."""
    fitting = [move for move in moves if name == move["from"] or name.startswith(f"{move['from']}.")]
    longest = max((len(move["from"]) for move in fitting), default=0)
    best = [move for move in fitting if len(move["from"]) == longest]
    return [(move["to"] + name[longest:], str(move.get("note", ""))) for move in best]


def _has(name: str, keys: Mapping[str, Key]) -> bool:
    return name in keys or ancestor(name, keys) is not None


def gathered(names: Mapping[str, str], written: Iterable[str]) -> dict[str, str]:
    """The same renames with one for a whole branch where all that is written below it goes the same way."""
    leaves = set(written)
    found = dict(names)
    branches = {name.rpartition(".")[0] for name in names} - {""}
    while branches:
        branch = max(branches, key=len)
        branches.discard(branch)
        below = {leaf for leaf in leaves if leaf.startswith(f"{branch}.")}
        new = {found[leaf].removesuffix(leaf[len(branch) :]) for leaf in below if leaf in found}
        alike = below <= found.keys() and all(found[leaf].endswith(leaf[len(branch) :]) for leaf in below)
        if alike and len(new) == 1:
            found = {leaf: name for leaf, name in found.items() if leaf not in below} | {branch: new.pop()}
            leaves = (leaves - below) | {branch}
            branches |= {branch.rpartition(".")[0]} - {""}
    return found
