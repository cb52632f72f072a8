"""Settings whose value nobody knows: what must not be judged because of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from tuneport.checks.cel import config_paths
from tuneport.types import Json, Ref

UNDECIDED = Ref("undecided")
_TRACE = repr(UNDECIDED)


def depends(value: Json) -> bool:
    """Whether a value is, or was made from, one that nobody knows."""
    if isinstance(value, str):
        return _TRACE in value
    if isinstance(value, dict):
        return any(map(depends, value.values()))
    return any(map(depends, value)) if isinstance(value, list) else value == UNDECIDED


def keys(written: Mapping[str, Json], resolved: Mapping[str, Json]) -> frozenset[str]:
    """The keys whose value nobody knows: those set so, and those that refer to them.

    Args:
        written: the configuration before its interpolations were resolved.
        resolved: the same afterwards; what could not be resolved is absent.
    """
    open_ = {name for name, value in resolved.items() if depends(value)}
    return frozenset(open_ | (written.keys() - resolved.keys()))


def touches(sources: Sequence[str], unknown: Collection[str], more: Collection[str]) -> bool:
    """Whether an expression reads a setting that nobody knows.

    Args:
        more: other variables of expressions that depend on such a setting, such as `params`.
    """
    if not unknown and not more:
        return False
    if any(name in source for source in sources for name in more):
        return True
    paths = config_paths(tuple(sources))
    if paths is None:
        return bool(unknown)
    read = [".".join(path) for path in paths]
    return any(
        name == path or name.startswith(f"{path}.") or path.startswith(f"{name}.")
        for path in read
        for name in unknown
    )


class Watched(dict[str, Json]):
    """A configuration that notes whether a setting was read that nobody knows; such a one reads as null."""

    def __init__(self, known: Mapping[str, Json], unknown: Collection[str]) -> None:
        super().__init__({name: value for name, value in known.items() if name not in unknown})
        self._unknown, self.read = frozenset(unknown), False

    def __getitem__(self, key: str) -> Json:
        self._note(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Json:
        self._note(key)
        return super().get(key, default)

    def __iter__(self) -> Iterator[str]:
        self.read = self.read or bool(self._unknown)
        return super().__iter__()

    def items(self) -> Any:
        self.read = self.read or bool(self._unknown)
        return super().items()

    def values(self) -> Any:
        self.read = self.read or bool(self._unknown)
        return super().values()

    def _note(self, key: object) -> None:
        if key in self._unknown:
            self.read = True
