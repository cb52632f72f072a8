"""Surfaces: the keys that a release has, as a file holds them or as the release composes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from tuneport.errors import Invalid
from tuneport.registry import catalog
from tuneport.types import Composed, Json, Key, Release

FLAG = ("style", "action", "nargs", "dest", "converter", "reads", "items", "bare", "const", "also")
"""How a command line says a key, in a surface."""


def release(framework: str, version: str = "", entry: str = "", choices: Mapping[str, Json] = {}) -> Release:
    """A release with the surface keys of `entry` (none where it is empty or the release has no surface).

    Args:
        choices: for a release that composes its configuration, values by key. Those that name a group
            choose its option; `--config` names another primary configuration, `+GROUP` adds a choice,
            `~GROUP` takes one out. Every other key is ignored.

    Raises:
        Invalid: the surface is missing or damaged, or the release would refuse the choices.
    """
    version = version or catalog.default_release(framework)
    spec = catalog.release_spec(framework, version)
    if not entry or not spec.get("surface"):
        return Release(framework, version, spec, {})
    keys, composed = _surface(framework, spec, entry, choices)
    return Release(framework, version, spec, keys, composed, outline(framework, version)["lists"])


def _surface(
    framework: str, spec: Mapping[str, Json], entry: str, choices: Mapping[str, Json]
) -> tuple[dict[str, Key], Composed | None]:
    """The keys of one entry point of a release, and how they came to be.

    Raises:
        Invalid: the surface file is missing, damaged or has no such entry, or the choices are impossible.
    """
    version, program = spec["release"], spec.get("entries", {}).get(entry, entry)
    known = spec.get("keys", {}).get(entry, {})
    try:
        if outline(framework, version)["entries"][program]["composed"]:
            return _composed(framework, version, entry, program, choices)
        items = of(framework, version)["entries"][program]["keys"]
        return _corrected({name: key(name, facts) for name, facts in items.items()}, known), None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        message = f"the surface {spec['surface']} of {framework} has no usable entry {entry!r} ({why})"
        raise Invalid(message, code="surface-broken") from error


def _composed(
    framework: str, version: str, entry: str, program: str, choices: Mapping[str, Json]
) -> tuple[dict[str, Key], Composed]:
    """The keys of an entry point whose configuration is composed, and how they came to be."""
    from tuneport.dialects.hydra.choices import CONFIG, is_group

    groups = outline(framework, version)["entries"][program].get("groups", ())
    asked = tuple(
        (key, value)
        for key, value in sorted(choices.items())
        if isinstance(value, str) and (key == CONFIG or is_group(groups, key.lstrip("+~").partition("@")[0]))
    )
    digest = _surface_entry(framework, version)["digest"]
    return _composition(framework, version, entry, program, asked, digest)


@lru_cache(maxsize=64)
def _composition(
    framework: str, version: str, entry: str, program: str, asked: tuple[tuple[str, str], ...], digest: str
) -> tuple[dict[str, Key], Composed]:
    """What was composed before for the same choices, read back; else composed and kept."""
    from tuneport.registry import compositions

    place = compositions.place_of(framework, version, program, asked)
    key = [digest, program, [list(choice) for choice in asked]]
    found = compositions.load(place, key)
    if found is None:
        from tuneport.dialects.hydra.surface import composed_surface

        document = of(framework, version)
        found = composed_surface(document, document["entries"][program], dict(asked))
        compositions.save(place, key, found)
    keys, composed = found
    return _corrected(keys, catalog.release_spec(framework, version).get("keys", {}).get(entry, {})), composed


@cache
def outline(framework: str, version: str) -> dict[str, Json]:
    """What is small in the surface document of a release; see `compositions.outline`.

    Raises:
        Invalid: the file is missing or damaged.
    """
    from tuneport.registry import compositions, store

    if not catalog.release_spec(framework, version).get("surface"):
        return compositions.outline({})
    entry = _surface_entry(framework, version)
    place = f"outline-{framework}-{store.hash_text(version):x}"
    kept: dict[str, Json] | None = store.load(place, entry["digest"])
    if kept is None:
        kept = compositions.outline(of(framework, version))
        store.save(place, entry["digest"], kept)
    return kept


def _corrected(keys: dict[str, Key], known: Mapping[str, Mapping[str, Json]]) -> dict[str, Key]:
    """The keys with what the manifest of the release knows better: a key that code reads and no file
    holds, which has to be added, and types that a default does not show."""
    if not known:
        return keys
    found = dict(keys)
    for name, item in known.items():
        here = keys.get(name)
        if here is None:
            found[name] = key(name, item)._replace(add=True)
        else:
            found[name] = here._replace(types=tuple(item["types"]), inferred=False)
    return found


def of(framework: str, version: str) -> dict[str, Any]:
    """The surface document of a release, which must not be changed; empty where it publishes none.

    Raises:
        Invalid: the file is missing or damaged.
    """
    spec = catalog.release_spec(framework, version)
    if not spec.get("surface"):
        return {}
    found = _surface_entry(framework, version)
    try:
        return _surface_document(found["file"], found["digest"])
    except (OSError, ValueError, RecursionError) as error:
        message = f"the surface {spec['surface']} of {framework} cannot be read: {error}"
        raise Invalid(message, code="surface-broken") from error


def _surface_entry(framework: str, version: str) -> dict[str, Any]:
    """What the index holds of a release's surface file: where it is and its digest.

    Raises:
        Invalid: the file is missing or damaged.
    """
    name = catalog.release_spec(framework, version)["surface"]
    found: dict[str, Any] | None = catalog.index_of(framework)["surfaces"].get(name)
    if found is None:
        message = f"{framework} {version} names the surface {name}, which is not there"
        raise Invalid(message, code="surface-missing")
    catalog.usable(found, name)
    return found


@lru_cache(maxsize=8)
def _surface_document(file: str, _digest: str) -> dict[str, Any]:
    """A surface file. It may be kept: its digest is part of what it is known by."""
    document: dict[str, Any] = json.loads(Path(file).read_bytes())
    return document


def key(name: str, item: Mapping[str, Json]) -> Key:
    """A key of a surface from what the file says of it."""
    return Key(
        name,
        tuple(item["types"]),
        item.get("default"),
        bool(item.get("required", False)),
        tuple(item.get("choices", ())),
        item.get("source", ""),
        flag={name: item[name] for name in FLAG if name in item},
    )
