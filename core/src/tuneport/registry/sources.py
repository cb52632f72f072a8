"""Where manifests come from: installed data packages, then the folders of TUNEPORT_MANIFEST_PATH.

A package is located by name without importing it, so listing what it offers runs none of its code.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tuneport.errors import Invalid
from tuneport.registry import store
from tuneport.registry.scan import EntryPoint, entry_points
from tuneport.settings import setting


class Source(NamedTuple):
    """A folder laid out like the manifests package, and who answers for it."""

    owner: str
    folder: Path


def locate(point: EntryPoint) -> Source:
    """The package folder that a `tuneport.manifests` entry point names.

    Raises:
        Invalid: it is not a plain top-level name, or no such package is installed.
    """
    from importlib.machinery import PathFinder

    if not point.value.isidentifier():
        raise Invalid(
            f"manifests {point.name!r} of {point.dist} name {point.value!r}, not a top-level package",
            code="manifests-target",
            hint=f"reinstall or remove {point.dist}",
        )
    spec = PathFinder.find_spec(point.value)
    if spec is None:
        import importlib.util  # an editable install may have its own finder

        spec = importlib.util.find_spec(point.value)
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise Invalid(
            f"the package {point.value!r} of {point.dist} is not there",
            code="manifests-missing",
            hint=f"reinstall or remove {point.dist}",
        )
    return Source(f"{point.dist} {point.version}", Path(places[0]))


def sources() -> tuple[list[Source], list[str]]:
    """Every source in order, and a sentence for each one that cannot be used."""
    points = entry_points("tuneport.manifests")
    # The path belongs to it: another one may lead to another copy of the same version.
    key = [[list(point) for point in points], sys.path]
    kept = store.load("sources", key)
    if kept is None or not all(os.path.isdir(folder) for _, folder in kept[0]):
        found, problems = [], []
        for point in points:
            try:
                found.append(locate(point))
            except Invalid as error:
                problems.append(error.message)
        kept = [[[source.owner, str(source.folder)] for source in found], problems]
        store.save("sources", key, kept)
    result = [Source(owner, Path(folder)) for owner, folder in kept[0]]
    problems = list(kept[1])
    for folder in filter(None, (setting("MANIFEST_PATH") or "").split(os.pathsep)):
        if os.path.isdir(folder):
            result.append(Source(folder, Path(folder)))
        else:
            problems.append(f"TUNEPORT_MANIFEST_PATH names {folder}, which is not a folder")
    return result, problems


def framework_folders() -> dict[str, list[Source]]:
    """Framework name -> the sources with a folder of that name. The folders are looked at once in a process,
    at the cost of one stat for each source."""
    return _framework_folders(setting("MANIFEST_PATH"), tuple(sys.path))


@cache
def _framework_folders(_manifest_path: str | None, _import_path: tuple[str, ...]) -> dict[str, list[Source]]:
    found: dict[str, list[Source]] = {}
    for source in sources()[0]:
        for name in _folders(source.folder):
            found.setdefault(name, []).append(source)
    return found


_listing: dict[str, list[object]] = {}
_dirty = False


def _folders(folder: Path) -> list[str]:
    """The framework folders of one source, re-listed only when the source folder itself changed."""
    global _dirty
    if not _listing:
        _listing.update(store.load("folders", "all") or {"": [0, []]})
    try:
        stamp = os.stat(folder).st_mtime_ns
    except OSError:
        return []
    kept = _listing.get(str(folder))
    if kept is None or kept[0] != stamp:
        kept = [stamp, frameworks_in(folder)]
        _listing[str(folder)] = kept
        _dirty = True
    names_kept = kept[1]
    assert isinstance(names_kept, list)
    return names_kept


def frameworks_in(folder: Path) -> list[str]:
    """The frameworks that a source says something about."""
    entries = os.scandir(folder)
    return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith((".", "_")))


def keep_listing() -> None:
    """Write the folder listing back if this command changed it."""
    if _dirty:
        store.save("folders", "all", _listing)
