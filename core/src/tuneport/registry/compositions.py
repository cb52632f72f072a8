"""Surfaces that were composed before, kept for each set of group choices.

Reading a surface document and composing it takes longer than the rest of a command; the keys it gave are
kept in the index cache under the document's digest. What is small in the document is kept beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneport.registry import store
from tuneport.types import Composed, Json, Key

Release = tuple[dict[str, Key], Composed]


def outline(document: Mapping[str, Any]) -> dict[str, Json]:
    """What must be known of a surface document before it is read: `lists`, and by entry whether it is a
    `chain` of files, or `composed` with these `groups`."""
    from tuneport.dialects.hydra.defaults import Tree, reach

    entries: dict[str, Json] = {}
    for name, entry in document.get("entries", {}).items():
        known = entries[name] = {"chain": bool(entry.get("chain")), "composed": "keys" not in entry}
        if known["composed"] and not known["chain"]:
            files, path = document["files"], entry["path"]
            configs = Tree(files, path).options("")
            known["groups"] = sorted(
                {group for name in configs for group in reach(files, path, name).groups()}
            )
    return {"lists": document.get("lists", {}), "entries": entries}


def place_of(*words: Json) -> str:
    return f"composed-{store.hash_text(repr(words)):x}"


def load(place: str, key: Json) -> Release | None:
    """The keys and how they came to be; None where they are not kept."""
    kept = store.load(place, key)
    if not isinstance(kept, dict):
        return None
    keys = {
        name: Key(name, tuple(types), default, required, tuple(choices), *rest)
        for name, types, default, required, choices, *rest in kept["keys"]
    }
    how = kept["composed"]
    options = {name: tuple(known) for name, known in how["options"].items()}
    built = None if how["built"] is None else tuple(how["built"])
    sets = {name: frozenset(how[name]) for name in ("free", "unread", "closed")}
    return keys, Composed(**{**how, **sets, "options": options, "built": built})


def save(place: str, key: Json, found: Release) -> None:
    """Keep what was composed. Keys of a composed surface are no flags of a command line."""
    keys, composed = found
    how = composed._asdict()
    how |= {name: dict(value) for name, value in how.items() if isinstance(value, Mapping)}
    how |= {name: sorted(how[name]) for name in ("free", "unread", "closed")}
    store.save(place, key, {"keys": [item[:-1] for item in keys.values()], "composed": how})
