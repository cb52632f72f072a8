"""Finds installed plugins by entry-point metadata, without importing any of them.

`importlib.metadata` takes a second for a thousand distributions and this is on the way of every
command, so the `entry_points.txt` files are read directly and the result is kept until a folder of
`sys.path` changes. A test holds this scan to `importlib.metadata`'s answer.
"""

import os
import sys
from typing import NamedTuple

from tuneport.registry import store

GROUPS = ("tuneport.frameworks", "tuneport.manifests", "tuneport.fleets", "tuneport.policies")


class EntryPoint(NamedTuple):
    """One line of a distribution's `entry_points.txt`."""

    group: str
    name: str
    value: str
    dist: str
    version: str


def entry_points(group: str, *, refresh: bool = False) -> list[EntryPoint]:
    """Every entry point of one of our groups, in `sys.path` order."""
    return [point for point in _all(refresh) if point.group == group]


_memory: tuple[list[list[object]], list[EntryPoint]] | None = None


def _all(refresh: bool) -> list[EntryPoint]:
    global _memory
    stamps = _stamps()
    if _memory is not None and _memory[0] == stamps and not refresh:
        return _memory[1]
    cached = None if refresh else store.load("plugins", stamps)
    if cached is None:
        points = _scan()
        store.save("plugins", stamps, [list(point) for point in points])
    else:
        points = [EntryPoint(*row) for row in cached]
    _memory = (stamps, points)
    return points


def _stamps() -> list[list[object]]:
    """Installing or removing a distribution changes the time of the folder that holds it."""
    stamps: list[list[object]] = []
    for folder in sys.path:
        try:
            stamps.append([folder, os.stat(folder or ".").st_mtime_ns])
        except OSError:
            continue
    return stamps


def _scan() -> list[EntryPoint]:
    points: list[EntryPoint] = []
    seen: set[str] = set()
    for folder in sys.path:
        try:
            entries = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
        except OSError:
            continue  # a zip, or gone: plugins there are not supported
        for entry in entries:
            if entry.name.endswith((".dist-info", ".egg-info")):
                dist, _, rest = entry.name.rpartition(".")[0].partition("-")
                normal = dist.lower().replace("_", "-").replace(".", "-")
                if normal in seen:
                    continue  # the first on the path hides later ones, as for imports
                seen.add(normal)
                points.extend(_read(entry.path, normal, rest.partition("-")[0]))
    return points


def _read(folder: str, dist: str, version: str) -> list[EntryPoint]:
    try:
        with open(os.path.join(folder, "entry_points.txt"), "rb") as stream:
            content = stream.read(1 << 20)
    except OSError:
        return []
    if b"tuneport." not in content:
        return []
    points, group = [], ""
    for raw in content.decode("utf-8", "replace").splitlines():
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif group in GROUPS and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            points.append(EntryPoint(group, name.strip(), value.strip(), dist, version))
    return points
