"""Brings the numbers of all files together under canonical names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tuneport.jobs.metrics import events, lines
from tuneport.jobs.metrics.events import Scalar


class Point(NamedTuple):
    """`time` is in seconds since the epoch."""

    step: int
    value: float
    time: float


@dataclass(frozen=True, slots=True)
class Series:
    """One curve, by step, one point per step. `tag` is what the trainer calls it; `source` the folder
    below the log folder, or `report`, empty for the log folder itself."""

    name: str
    tag: str
    source: str
    points: tuple[Point, ...]

    @property
    def last(self) -> Point:
        return self.points[-1]

    @property
    def finite(self) -> list[float]:
        return [point.value for point in self.points if math.isfinite(point.value)]

    @property
    def odd(self) -> int:
        """How many values are NaN or infinite."""
        return sum(not math.isfinite(point.value) for point in self.points)


@dataclass(frozen=True, slots=True)
class Collected:
    """`problems` says what could not be read."""

    series: Mapping[str, Series]
    problems: tuple[str, ...]

    def missing(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in self.series]


def collect(paths: Sequence[Path], aliases: Mapping[str, Sequence[str]]) -> Collected:
    """Read event files (a folder is searched for them) and report files (`*.jsonl`).

    `aliases` maps a canonical name to the tags that mean it, the best first; `*` in one stands for any
    text. Tags nobody claims keep their own names. Paths that do not exist (yet) hold nothing.
    """
    problems: list[str] = []
    raw: dict[tuple[str, str], dict[int, Point]] = {}
    for path in paths:
        for source, scalar in _read(path, problems):
            # A step that comes twice, after a restart or from several processes: the last one holds.
            raw.setdefault((scalar.tag, source), {})[scalar.step] = Point(
                scalar.step, scalar.value, scalar.time
            )
    names = _names(list(raw), aliases)
    series = {
        names[key]: Series(names[key], *key, points=tuple(points[step] for step in sorted(points)))
        for key, points in raw.items()
    }
    return Collected(dict(sorted(series.items())), tuple(problems))


def _read(path: Path, problems: list[str]) -> Iterable[tuple[str, Scalar]]:
    try:
        if path.is_dir():
            for file in sorted(path.rglob("*tfevents*"), key=lambda file: (len(file.parts), str(file))):
                if file.is_file():
                    source = "" if file.parent == path else str(file.parent.relative_to(path))
                    for scalar in events.scalars(file, problems.append):
                        yield source, scalar
        elif path.suffix == ".jsonl":
            for scalar in lines.scalars(path, problems.append):
                yield "report", scalar
        else:
            for scalar in events.scalars(path, problems.append):
                yield "", scalar
    except FileNotFoundError:
        return
    except OSError as error:
        problems.append(f"{path.name}: {error.strerror}")


def _meant(tag: str, by_tag: Mapping[str, list[tuple[str, str]]]) -> Sequence[tuple[str, str]]:
    """The keys of a tag, or of every tag that fits a pattern, in the order of their names."""
    if "*" not in tag:
        return by_tag.get(tag, ())
    pattern = re.compile(".*".join(map(re.escape, tag.split("*"))))
    return [key for name in sorted(by_tag) if pattern.fullmatch(name) for key in by_tag[name]]


def _names(keys: list[tuple[str, str]], aliases: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], str]:
    by_tag: dict[str, list[tuple[str, str]]] = {}
    for key in keys:
        by_tag.setdefault(key[0], []).append(key)
    names: dict[tuple[str, str], str] = {}
    for canonical, tags in aliases.items():
        present = [key for tag in tags for key in _meant(tag, by_tag) if key not in names]
        if present:
            names[present[0]] = canonical
    taken = set(names.values())
    for key in keys:
        if key not in names:
            tag, source = key
            name = tag if tag not in taken else f"{tag} ({source or 'log folder'})"
            while name in taken:
                name += "'"
            names[key] = name
            taken.add(name)
    return names
