"""The composed configuration of a Hydra tree as the keys of a surface.

A tree's leaf is `[value, line]`; a mapping is a branch. What a key may hold comes from the class that
its branch names as `_target_`; fields of that class which no file mentions are keys too, but need `+`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tuneport.dialects.hydra.defaults import Choices, Expansion, reach
from tuneport.types import Json, Key

MISSING = "???"
_ANY = ("any",)
_NO_FIELD: Mapping[str, Json] = {}
_KINDS: dict[type, str] = {kind: kind.__name__ for kind in (bool, int, float, str, list, dict)}
_KINDS[type(None)] = "null"


class Leaf(NamedTuple):
    value: Json
    line: int
    file: str


Branch = dict[str, Any]  # of Branch and Leaf


@dataclass(frozen=True, slots=True)
class Composition:
    """`keys` by dotted name; `groups` the choices that took part; `options` the names each group takes;
    `classes` the class of each typed branch by its dotted place; `free` the branches that a class declares
    as mappings of anything; `needed` the keys that a class asks for (with where), `closed` the branches whose
    class takes no other keys."""

    keys: dict[str, Key]
    groups: dict[str, str]
    options: dict[str, list[str]]
    classes: dict[str, str] = field(default_factory=dict)
    free: frozenset[str] = frozenset()
    needed: Mapping[str, str] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()


def compose(surface: Mapping[str, Json], entry: Mapping[str, Json], choices: Choices) -> Composition:
    """Compose one entry of a surface document.

    Raises:
        ComposeError: the release would refuse these choices.
    """
    files = surface["files"]
    tree = reach(files, entry["path"], entry["config"])
    expansion = Expansion(tree, entry["config"], choices)
    root: Branch = {}
    for placed in expansion.placed:
        at = root
        for part in placed.package.split(".") if placed.package else ():
            below = at.get(part)
            if not isinstance(below, dict):
                below = at[part] = {}
            at = below
        merge_tree(at, files[placed.file]["tree"], placed.file)
    root.pop("hydra", None)
    typed = Typed(surface.get("classes", {}))
    typed.walk(root, "")
    groups = {key: option for key, option in expansion.groups.items() if option is not None}
    options = {key: tree.options(key.partition("@")[0]) for key in groups if ".." not in key}
    return Composition(typed.found, groups, options, typed.places, frozenset(typed.free))


def merge_tree(into: Branch, content: Mapping[str, Json], file: str) -> None:
    """Lay the tree of a file over what is there."""
    for name, item in content.items():
        below = into.get(name)
        if isinstance(item, dict):
            if not isinstance(below, dict):
                below = into[name] = {}
            merge_tree(below, item, file)
        elif below is None or not (item[0] == MISSING or (item[0] == {} and isinstance(below, dict))):
            into[name] = Leaf(item[0], item[1], file)


class Typed:
    """Gives each leaf the types that its class declares.

    Args:
        bare: whether a field that no file mentions, and that has no default, holds nothing.
    """

    def __init__(self, classes: Mapping[str, Json], *, bare: bool = False) -> None:
        self._classes, self._bare = classes, bare
        self._fields: dict[str, dict[str, Json]] = {}
        self.places: dict[str, str] = {}
        self.free: set[str] = set()
        self.found: dict[str, Key] = {}

    def fields(self, name: str) -> dict[str, Json]:
        """Declared fields of a class, inherited ones included; none where it is not of the release."""
        if name not in self._fields:
            spec = self._classes.get(name, {})
            found: dict[str, Json] = {}
            for base in spec.get("bases", ()):
                found |= self.fields(base)
            checked = spec.get("choices", {})
            found |= spec.get("fields", {})
            self._fields[name] = {k: {**v, **checked[k]} if k in checked else v for k, v in found.items()}
        return self._fields[name]

    def needed(self) -> Iterator[tuple[str, str]]:
        """(key, where) of what the classes of the branches met so far ask for."""
        for place, name in self.places.items():
            for part, spec in self.fields(name).items():
                if spec.get("required"):
                    yield f"{place}.{part}".lstrip("."), spec.get("source", "")

    def walk(self, branch: Branch, prefix: str, declared: str = "") -> None:
        """Take in the keys below a branch whose class is `declared` unless the branch itself names one."""
        target = branch.get("_target_")
        name = target.value if isinstance(target, Leaf) and target.value in self._classes else declared
        fields = self.fields(name) if name else {}
        if name and prefix:
            self.places[prefix[:-1]] = name
        for part, item in branch.items():
            spec = fields.get(part, _NO_FIELD)
            if type(item) is Leaf:
                self.found[prefix + part] = _key(prefix + part, item, spec)
                continue
            if "class" not in spec and {"dict", "any"} & set(spec.get("types", ())):
                self.free.add(prefix + part)
            self.walk(item, f"{prefix}{part}.", spec.get("class", ""))
        for part, spec in fields.items():
            if part not in branch and self._is_field(part):
                self._add(prefix + part, spec, 0)

    def _is_field(self, part: str) -> bool:
        return part[0] != "_" or (self._bare and part[-1] != "_")

    def _add(self, name: str, spec: Mapping[str, Json], depth: int) -> None:
        """A field that no file mentions, and what its own class holds."""
        inner = spec.get("class")
        if inner and depth < 4:
            self.places[name] = inner
            for part, below in self.fields(inner).items():
                if self._is_field(part):
                    self._add(f"{name}.{part}", below, depth + 1)
            return
        self.found[name] = Key(
            name,
            tuple(spec["types"]),
            spec.get("default"),
            self._bare and "default" not in spec,
            tuple(spec.get("choices", ())),
            spec.get("source", ""),
            True,
            False,
            spec.get("choices_from", ""),
        )


def _key(name: str, leaf: Leaf, spec: Mapping[str, Json]) -> Key:
    value = leaf.value
    missing = isinstance(value, str) and value == MISSING
    kind = _KINDS[type(value)]
    declared = spec.get("types")
    if declared is None:
        vague = missing or kind == "null" or (kind == "str" and "${" in value)
        types: tuple[str, ...] = _ANY if vague else (kind,)
    else:
        types = tuple(declared)
        dynamic = missing or (kind == "str" and "${" in value)
        if not (dynamic or kind in types or "any" in types or (kind == "int" and "float" in types)):
            types = (*types, kind)
    return Key(
        name,
        types,
        None if missing else value,
        missing,
        tuple(spec.get("choices", ())),
        f"{leaf.file}.yaml:{leaf.line}",
        False,
        declared is None,
        spec.get("choices_from", ""),
    )
