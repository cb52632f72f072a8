"""Configurations that build on one another: a YAML file names its bases under `defaults`, the last word wins.

A section (a top-level mapping) that says `_override_: true` takes the place of what its bases say, instead of
being merged into it. Overrides of the command line have Hydra's grammar and meet a closed tree; a file may
hold any key. This composes the release's own files; those of a user are layers above them, see
`experiment/overlays.py`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tuneport.compiler.layers import NATIVE_LAYERS, Layers
from tuneport.dialects import Rendered
from tuneport.dialects.hydra.choices import CONFIG
from tuneport.dialects.hydra.compose import Branch, Composition, Leaf, Typed, merge_tree
from tuneport.dialects.hydra.quote import escaped
from tuneport.errors import Invalid
from tuneport.types import Composed, Context, FileSpec, Finding, Json, Key, Ref, Value

REPLACES = "_override_"
NO_FILE = "-"
"""A base that is none: everything comes from the files of a user."""
MAX_CHAIN = 50
_CACHE = " chains"


def chain_surface(
    document: dict[str, Any], entry: Mapping[str, Json], values: Mapping[str, Json]
) -> tuple[dict[str, Key], Composed]:
    """(keys, how they came to be) of one entry; `--config` among `values` names files of the release,
    separated by commas.

    Raises:
        Invalid: the release has no such file, or its files go round in a circle.
    """
    config = str(values.get(CONFIG) or entry["config"])
    made = document.setdefault(_CACHE, {})
    if (config, entry["class"]) not in made:
        made[config, entry["class"]] = _compose(document, entry, config)
    found: Composition = made[config, entry["class"]]
    chosen = {} if config == entry["config"] else {CONFIG: config}
    composed = Composed(
        "chain",
        chosen,
        {},
        {},
        found.classes,
        found.free,
        document.get("names", ""),
        resolvers=document.get("resolvers", {}),
        open=True,
        unread=frozenset(entry.get("unread", ())),
        needed=found.needed,
        closed=found.closed,
    )
    return found.keys, composed


def _compose(document: Mapping[str, Any], entry: Mapping[str, Json], config: str) -> Composition:
    root: Branch = {}
    for name in config.split(","):
        if name != NO_FILE:
            _merge(root, _loaded(document["files"], name, ()))
    typed = Typed(document.get("classes", {}), bare=True)
    typed.walk(root, "", entry["class"])
    typed.places[""] = entry["class"]
    classes = document.get("classes", {})
    closed = frozenset(place for place, name in typed.places.items() if classes.get(name, {}).get("closed"))
    return Composition(typed.found, {}, {}, typed.places, frozenset(typed.free), dict(typed.needed()), closed)


def _loaded(files: Mapping[str, Mapping[str, Json]], name: str, chain: tuple[str, ...]) -> Branch:
    """The tree of a file over those of its bases."""
    if name not in files:
        raise _refused("config-unknown", name, f"the release has no file {name!r}")
    if name in chain or len(chain) > MAX_CHAIN:
        raise _refused("config-circle", name, f"{name} builds on itself")
    root: Branch = {}
    for base in listed(files[name].get("defaults")):
        place = posixpath.normpath(posixpath.join(posixpath.dirname(name), base))
        _merge(root, _loaded(files, place, (*chain, name)))
    own: Branch = {}
    merge_tree(own, files[name]["tree"], name.removesuffix(".yaml"))
    _merge(root, own)
    return root


def _refused(code: str, name: str, message: str) -> Invalid:
    return Invalid(message, code=code, findings=[Finding(code, "error", message, "", name)])


def listed(defaults: Json) -> list[str]:
    """The bases that a file names, as a list."""
    if defaults is None:
        return []
    return [str(item) for item in defaults] if isinstance(defaults, list) else [str(defaults)]


def _merge(into: Branch, over: Branch) -> None:
    for name, item in over.items():
        below = into.get(name)
        if not isinstance(item, dict):
            into[name] = below if isinstance(below, dict) and item.value == {} else item
            continue
        marker = item.get(REPLACES)
        if isinstance(marker, Leaf) and marker.value:
            below = None
        content = {key: value for key, value in item.items() if key != REPLACES}
        if isinstance(below, dict):
            _deep(below, content)
        else:
            into[name] = content


def _deep(into: Branch, over: Branch) -> None:
    for name, item in over.items():
        below = into.get(name)
        if isinstance(item, dict) and isinstance(below, dict):
            _deep(below, item)
        elif not (isinstance(below, dict) and not isinstance(item, dict) and item.value == {}):
            into[name] = item


def leaves(tree: Mapping[str, Json], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Json]]:
    """(path, value) of every leaf of what a surface keeps of a file."""
    for name, item in tree.items():
        if isinstance(item, dict):
            yield from leaves(item, (*path, name))
        else:
            yield (*path, name), item[0]


def render(settings: Mapping[str, Json], context: Context) -> Rendered:
    """The whole configuration in one file, and the flag that names it: the program then depends on no other.

    Settings: `file` (default `tuneport-config.yaml`) and `flag` (default `--config`).
    """
    from tuneport.checks.rules import nested

    layers = Layers({name: key for name, key in context.release.keys.items() if not key.add})
    for name, value in context.own.items():
        literal = context.origins[name].layer not in NATIVE_LAYERS
        layers.own[name] = _guarded(value) if literal else value
    layers.drop(context.request.native.get("delete", ()))
    file = settings.get("file", "tuneport-config.yaml")
    words: Sequence[Value] = (settings.get("flag", CONFIG), Ref("work_dir", f"/{file}"))
    return Rendered(tuple(words), files={file: FileSpec("yaml", nested(layers.effective()))})


def _guarded(value: Json) -> Json:
    """Text that stands for itself: what looks like an interpolation is none."""
    if isinstance(value, str):
        return escaped(value) if "${" in value else value
    if isinstance(value, list):
        return [_guarded(item) for item in value]
    return {name: _guarded(item) for name, item in value.items()} if isinstance(value, dict) else value
