"""The effective configuration: one layer over another, each key remembering who set it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tuneport.experiment.yamlread import Document
from tuneport.types import Json, Key, Origin

NATIVE_LAYERS = frozenset({"identity", "method defaults", "config.yaml", "native.append", "command line"})
"""Layers whose authors write the framework's own language: text in them may interpolate."""


class Layers:
    """Native key -> value above the release's defaults, with the chain of origins behind each."""

    def __init__(self, keys: Mapping[str, Key]) -> None:
        self._keys = keys
        self.own: dict[str, Json] = {}
        self.origins: dict[str, Origin] = {}
        self.history: dict[str, list[tuple[Origin, Json]]] = {}
        self._dropped: tuple[str, ...] = ()

    def set(self, key: str, value: Json, origin: Origin) -> None:
        """Put one key's value on top of what is there."""
        self.own[key] = value
        self.origins[key] = origin
        self.history.setdefault(key, []).append((origin, value))

    def update(self, values: Mapping[str, Json], origin: Origin) -> None:
        for key, value in values.items():
            self.set(key, value, origin)

    def drop(self, names: Iterable[str]) -> None:
        """Take keys, and what is below them, out of the release's defaults."""
        self._dropped = tuple(names)

    def effective(self) -> dict[str, Json]:
        """Defaults of the release (known ones) with everything above them."""
        defaults = {name: key.default for name, key in self._keys.items() if not key.required}
        for gone in self._dropped:
            defaults = {n: v for n, v in defaults.items() if n != gone and not n.startswith(f"{gone}.")}
        for name in self.own:  # a key below one that holds nothing yet takes its place
            while "." in name:
                name = name.rpartition(".")[0]
                if name in defaults and not isinstance(defaults[name], dict):
                    del defaults[name]
        return {**defaults, **self.own}

    def chain(self, key: str) -> list[tuple[Origin, Json]]:
        """Every layer that set `key`, lowest first; the release's default is the lowest."""
        known = self._keys.get(key)
        base: list[tuple[Origin, Json]] = []
        if known is not None and not known.required:
            base = [(Origin("release defaults", known.source), known.default)]
        return base + self.history.get(key, [])


def flatten(
    tree: Mapping[str, Json], keys: Mapping[str, Key], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Json]]:
    """(path, value) of each native key of a nested mapping; what the surface declares as one key stays
    whole even where its value is a mapping."""
    for name, value in tree.items():
        here = (*path, name)
        if isinstance(value, dict) and value and ".".join(here) not in keys:
            yield from flatten(value, keys, here)
        else:
            yield here, value


def from_document(
    document: Document, keys: Mapping[str, Key], consumed: frozenset[str]
) -> Iterator[tuple[str, Json, Origin]]:
    """(native key, value, origin) of everything a `config.yaml` sets, without the consumed keys."""
    for path, value in flatten(document.data, keys):
        name = ".".join(path)
        if name not in consumed:
            yield name, value, Origin("config.yaml", document.place(path), document.line(path))
