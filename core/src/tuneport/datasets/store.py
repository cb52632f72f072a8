"""Where dataset versions are kept, and whether one is still what was pushed.

    ROOT/<owner>/<name>/<version>/manifest.json   what was pushed: names, sizes, digests, times
    ROOT/<owner>/<name>/<version>/data/…          the files

ROOT is `datasets: {path: …}` of the site file, else the state folder. `locate` is meant for every
submission: it compares names, sizes and times, and reads only the files whose time is not the one
recorded. What changes a file and puts its time back is found by `verify`, which reads everything.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from tuneport.datasets import files as reading
from tuneport.datasets.files import File
from tuneport.datasets.reference import parse_reference
from tuneport.errors import Invalid, NotFound, TuneportError, Unavailable, Untrusted
from tuneport.settings import state_dir

MANIFEST = "manifest.json"
DATA = "data"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Version:
    """One dataset version as its manifest describes it. `created` is in seconds since the epoch."""

    reference: str
    path: Path
    digest: str
    created: float
    files: Mapping[str, File]

    @property
    def data(self) -> Path:
        return self.path / DATA

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())


def root() -> Path:
    """The folder of all datasets. Not created here.

    Raises:
        Invalid: the site file names a relative path.
    """
    from tuneport.experiment.site import load_site

    named = (load_site().get("datasets") or {}).get("path")
    if not named:
        return state_dir() / "datasets"
    path = Path(named)
    if not path.is_absolute():
        raise Invalid(f"datasets.path of the site file is relative: {named}", code="site-datasets-path")
    return path


def locate(reference: str, *, full: bool = False) -> Path:
    """The folder that holds the files of a version, after a check that they are what was pushed.

    The check compares names, sizes and times, and reads files whose time differs; with `full` it
    reads everything.

    Raises:
        Invalid: not a reference. NotFound: no such version; those that exist are named.
        Untrusted: a file was changed, added or removed. Unavailable: the store cannot be read.
    """
    version = describe(reference)
    _compare(version, full=full)
    return version.data


def verify(reference: str) -> Version:
    """The version, after reading every byte of it.

    Raises:
        As `locate`.
    """
    version = describe(reference)
    _compare(version, full=True)
    return version


def describe(reference: str) -> Version:
    """What the manifest of a version says; its files are not looked at.

    Raises:
        Invalid, NotFound, Unavailable: as `locate`. Untrusted: the manifest itself was damaged.
    """
    owner, name, version = parse_reference(reference)
    path = root() / owner / name / version
    try:
        present = stat.S_ISDIR(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        present = False
    except OSError as error:
        raise _unreadable(path, error) from error
    if not present:
        raise _missing(owner, name, version)
    return read_manifest(path, reference)


def versions(owner: str, name: str) -> list[str]:
    """The versions of a dataset, in natural order (v2 before v10)."""
    return sorted(_folders(root() / owner / name), key=_natural)


def references() -> Iterator[str]:
    """Every `owner/name@version` in the store, in order."""
    for owner in _folders(root()):
        for name in _folders(root() / owner):
            for version in versions(owner, name):
                yield f"{owner}/{name}@{version}"


def read_manifest(path: Path, reference: str) -> Version:
    """The manifest in the version folder `path`.

    Raises:
        Untrusted: it is damaged or not about `reference`. Unavailable: it cannot be read.
    """
    place = path / MANIFEST
    try:
        note = json.loads(place.read_bytes())
        files = {
            str(name): File(int(item["size"]), str(item["sha256"]), int(item["mtime"]))
            for name, item in note["files"].items()
        }
        found = Version(str(note["reference"]), path, str(note["digest"]), float(note["created"]), files)
        sound = note["format"] == FORMAT and found.reference == reference
        sound = sound and reading.tree_digest(files) == found.digest and not any(map(_escapes, files))
    except FileNotFoundError as error:
        raise _damaged(reference, f"{place} is missing") from error
    except OSError as error:
        raise _unreadable(place, error) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, TuneportError) as error:
        raise _damaged(reference, f"{place} cannot be understood") from error
    if not sound:
        raise _damaged(reference, f"{place} does not match its own digest and name")
    return found


def _compare(version: Version, *, full: bool) -> None:
    try:
        there = dict(reading.walk(version.data))
        changed = [name for name in version.files if name in there and _differs(version, name, full)]
    except (FileNotFoundError, NotADirectoryError):
        there, changed = {}, []
    except OSError as error:
        raise _unreadable(Path(str(error.filename)), error) from error
    problems = [f"{name} was changed" for name in changed]
    problems += [f"{name} is missing" for name in version.files if name not in there]
    problems += [f"{name} was added" for name in there if name not in version.files]
    if problems:
        more = f" and {len(problems) - 10} more" if len(problems) > 10 else ""
        raise Untrusted(
            f"{version.reference} is not what was pushed: {', '.join(sorted(problems)[:10])}{more}",
            code="dataset-changed",
            hint=f"restore {version.data}, or push its content as another version",
        )


def _differs(version: Version, name: str, full: bool) -> bool:
    recorded, path = version.files[name], version.data / name
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_size != recorded.size:
        return True
    if not full and found.st_mtime_ns == recorded.mtime:
        return False
    try:
        return reading.read(path) != (recorded.size, recorded.sha256)
    except Invalid as error:
        if error.code == "dataset-changing":
            return True
        raise Unavailable(error.message, code="dataset-unreadable") from error


def _missing(owner: str, name: str, version: str) -> NotFound:
    known = versions(owner, name)
    if known:
        return NotFound(
            f"{owner}/{name} has no version {version!r}; it has {', '.join(known)}",
            code="dataset-version-unknown",
        )
    names = sorted({reference.partition("@")[0] for reference in references()})
    close = get_close_matches(f"{owner}/{name}", names, n=1, cutoff=0.5)
    hint = (
        f"did you mean {close[0]}?" if close else f"push it: tp dataset push {owner}/{name} {version} FOLDER"
    )
    return NotFound(f"no dataset {owner}/{name} in {root()}", code="dataset-unknown", hint=hint)


def _folders(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            # A leading dot marks a push under way.
            return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False) and e.name[0] != ".")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unreadable(path, error) from error


def _natural(text: str) -> list[tuple[int, int, str]]:
    return [
        (1, int(part), part) if part.isdigit() else (0, 0, part)
        for part in re.findall(r"[0-9]+|[^0-9]+", text)
    ]


def _escapes(name: str) -> bool:
    return name.startswith("/") or "\0" in name or not {"", ".", ".."}.isdisjoint(name.split("/"))


def _damaged(reference: str, why: str) -> Untrusted:
    return Untrusted(
        f"{reference} cannot be trusted: {why}",
        code="dataset-damaged",
        hint="restore it, or push it as another version",
    )


def _unreadable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"cannot read {path}: {error.strerror or error}", code="dataset-store-unreadable")
