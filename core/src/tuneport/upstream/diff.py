"""What changed from one release to another, and which of our methods, rules and words that touches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tuneport.types import Json, Key
from tuneport.upstream.checks import checks_changed
from tuneport.upstream.difference import Change, Difference, Keyed
from tuneport.upstream.moves import Move, moves
from tuneport.upstream.raises import Check
from tuneport.upstream.scan import Scan, scan
from tuneport.upstream.touches import touches

_FEW = 3  # keys with one last name: more, and it tells nothing
_FACTS = ("default", "types", "choices", "required", "flag")


def compare(old: str | Path, new: str | Path, framework: str = "") -> Difference:
    """Scan two releases and compare them; see `scan` for what they may be, and what it raises."""
    return diff(scan(old, framework), scan(new, framework))


def diff(old: Scan, new: Scan) -> Difference:
    """Compare two releases of one distribution."""
    gone, come = _only(old, new), _only(new, old)
    moved = moves(old, new, gone, come)
    left = {(entry, move.old) for move in moved for entry in move.entries}
    arrived = {(entry, move.new) for move in moved for entry in move.entries}
    removed, added = _keyed(gone, left), _keyed(come, arrived)
    changed = (*_facts(old, new), *_around(old, new))
    checks = checks_changed(old.checks, new.checks) if old.whole and new.whole else ()
    names = {
        *(move.old for move in moved),
        *(item.key for item in removed),
        *(item.key for item in changed if item.entries),
    }
    found = touches(new.framework or old.framework, old.release, names | _checked(new, checks))
    said = [set(one.undecided) for one in (old, new)]
    undecided = (
        *(why for why in new.undecided if why in said[0]),
        *(
            f"{one.release}: {why}"
            for one in (old, new)
            for why in one.undecided
            if why not in said[0] & said[1]
        ),
    )
    return Difference(old, new, added, removed, moved, changed, checks, found, undecided)


def _checked(new: Scan, checks: Iterable[tuple[str, Check]]) -> set[str]:
    """The keys that checks read, where a last name tells which ones."""
    by_last: dict[str, set[str]] = {}
    for keys in new.keys.values():
        for key in keys:
            by_last.setdefault(key.rpartition(".")[2], set()).add(key)
    found = [by_last.get(name, set()) for _, check in checks for name in check.names]
    return {key for keys in found if len(keys) <= _FEW for key in keys}


def _only(one: Scan, other: Scan) -> dict[str, dict[str, Key]]:
    """Keys of entries that both have, which only one of them has there. Keys of an option that the other
    release does not offer are compared with all that it has at that entry."""
    found: dict[str, dict[str, Key]] = {}
    for entry, keys in one.keys.items():
        start = _start(entry)
        beside = other.keys.get(entry)
        if beside is None and start in other.keys:
            alike = [keys for name, keys in other.keys.items() if _start(name) == start]
            beside = {key: item for some in alike for key, item in some.items()}
        only = {key: item for key, item in keys.items() if beside is not None and key not in beside}
        if start != entry:  # said of the entry already
            only = {key: item for key, item in only.items() if key not in found.get(start, {})}
        if only:
            found[entry] = only
    return found


def _keyed(only: Mapping[str, Mapping[str, Key]], moved: set[tuple[str, str]]) -> tuple[Keyed, ...]:
    entries: dict[str, list[str]] = {}
    facts: dict[str, Key] = {}
    for entry, keys in only.items():
        for key, item in keys.items():
            if (entry, key) not in moved:
                entries.setdefault(key, []).append(entry)
                facts.setdefault(key, item)
    return tuple(Keyed(key, tuple(names), facts[key]) for key, names in entries.items())


def _start(entry: str) -> str:
    """The entry without the option of a group that was chosen for it."""
    name, _, option = entry.rpartition(" ")
    return name if "=" in option else entry


def _facts(old: Scan, new: Scan) -> Iterator[Change]:
    found: dict[str, tuple[str, str, Json, Json]] = {}
    entries: dict[str, list[str]] = {}
    for entry, keys in old.keys.items():
        for key, before in keys.items():
            after = new.keys.get(entry, {}).get(key)
            for kind, was, now in _pairs(before, after) if after is not None else ():
                mark = json.dumps([kind, key, was, now], default=str)
                found[mark] = (kind, key, was, now)
                entries.setdefault(mark, []).append(entry)
    for mark, fact in found.items():
        names = entries[mark]
        starts = [name for name in names if name == _start(name)]
        yield Change(*fact, tuple(starts or names))


def _pairs(before: Key, after: Key) -> Iterator[tuple[str, Json, Json]]:
    if _text(before) == _text(after):  # nearly always: the order of choices alone is no difference
        return
    for kind in _FACTS:
        was, now = _fact(before, kind), _fact(after, kind)
        if repr(was) == repr(now):  # by text, since true is 1 otherwise
            continue
        if json.dumps(was, sort_keys=True, default=str) == json.dumps(now, sort_keys=True, default=str):
            continue
        if kind == "types" and (before.inferred or after.inferred):
            continue  # these say what the default is, and that is said already
        yield kind, was, now


def _text(key: Key) -> str:
    return repr((key.types, key.default, key.required, key.choices, key.add, key.flag))


def _fact(key: Key, kind: str) -> Json:
    if kind == "default":
        return None if key.required else key.default
    if kind == "flag":
        return {**key.flag, **({"add": True} if key.add else {})}
    value = getattr(key, kind)
    return sorted(value, key=repr) if isinstance(value, tuple) else value


def _around(old: Scan, new: Scan) -> Iterator[Change]:
    """What is not of one key: entries, and, where both were read whole, points, pins and registries."""
    entries = [dict.fromkeys(one.surface.get("entries", {}), "present") for one in (old, new)]
    yield from _mapping("entry", *entries)
    options = [{name: "present" for name in one.keys if name != _start(name)} for one in (old, new)]
    yield from _mapping("option", *options)
    if not (old.whole and new.whole):
        return
    yield from _mapping("entry-point", old.entry_points, new.entry_points)
    pins = [{"python": one.requires_python, **one.requirements} for one in (old, new)]
    yield from _mapping("pin", *pins)
    registries = [{name: list(names) for name, names in one.choices.items()} for one in (old, new)]
    yield from _mapping("registry", *registries)
    lists = [one.surface.get("lists", {}) for one in (old, new)]
    yield from _mapping("list", *lists)


def _mapping(kind: str, old: Mapping[str, Json], new: Mapping[str, Json]) -> Iterator[Change]:
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            was, now = old.get(name), new.get(name)
            if isinstance(was, list) and isinstance(now, list):  # long: only what differs is told
                was, now = [x for x in was if x not in now], [x for x in now if x not in was]
            yield Change(kind, name, was, now)


__all__ = ["Change", "Difference", "Keyed", "Move", "compare", "diff"]
