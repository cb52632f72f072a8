"""Unpacks what a release can be read from out of a wheel, a source archive or a folder; nothing of it runs.

Only text is kept (Python, YAML, JSON, TOML and packaging metadata): compiled code and data are not read,
so the gigabytes of a large wheel are never unpacked.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from tuneport.errors import Invalid

MAX_FILE = 8 * 1024 * 1024
MAX_TOTAL = 512 * 1024 * 1024
MAX_MEMBERS = 300_000
_SUFFIXES = (".py", ".yaml", ".yml", ".json", ".toml", ".cfg")
FORMAT = 3  # of what is kept: raised when it changes
_NAMES = ("METADATA", "PKG-INFO", "entry_points.txt")
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError, RuntimeError)


class Member(NamedTuple):
    name: str
    size: int
    open: Callable[[], IO[bytes] | None]


def unpack(archive: Path, into: Path) -> None:
    """Write the text of a wheel (`.whl`), a `.zip` or a `.tar.gz` below a folder.

    Raises:
        Invalid: the archive is damaged, larger than what is read, or names a place outside of the folder.
    """
    try:
        if archive.suffix in (".whl", ".zip"):
            with zipfile.ZipFile(archive) as opened:
                _write(_zipped(opened), into, archive)
        else:
            with tarfile.open(archive) as opened_tar:
                _write(_tarred(opened_tar), into, archive)
    except _BROKEN as error:
        raise Invalid(f"{archive} is damaged: {error}", code="upstream-archive") from error
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise Invalid(f"{archive} cannot be unpacked: {why}", code="upstream-archive") from error


def copy(folder: Path, into: Path) -> None:
    """Write the text of a source tree below another folder; links in it are not followed.

    Raises:
        Invalid: the tree is larger than what is read, or cannot be read.
    """
    try:
        _write(_walked(folder), into, folder)
    except OSError as error:
        raise Invalid(f"{folder} cannot be read: {error.strerror}", code="upstream-archive") from error


def _zipped(opened: zipfile.ZipFile) -> Iterator[Member]:
    for item in opened.infolist():
        if not item.is_dir() and not stat.S_ISLNK(item.external_attr >> 16):
            yield Member(item.filename, item.file_size, lambda item=item: opened.open(item))  # type: ignore[misc]


def _tarred(opened: tarfile.TarFile) -> Iterator[Member]:
    total = 0
    for item in opened:  # a compressed archive is read from its beginning: all of it counts
        total += item.size
        if total > 4 * MAX_TOTAL:
            raise tarfile.TarError(f"it holds more than {4 * MAX_TOTAL >> 20} MiB")
        if item.isfile():
            yield Member(item.name, item.size, lambda item=item: opened.extractfile(item))  # type: ignore[misc]


def _walked(folder: Path) -> Iterator[Member]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in (".git", "__pycache__", "node_modules"))
        for name in sorted(files):
            path = Path(place, name)
            if wanted(name) and not path.is_symlink() and path.is_file():
                relative = path.relative_to(folder).as_posix()
                yield Member(relative, path.stat().st_size, lambda path=path: path.open("rb"))  # type: ignore[misc]


def wanted(name: str) -> bool:
    """Whether a file is one that is read. YAML that other files include may have no suffix of its own."""
    base = name.rpartition("/")[2]
    return name.endswith(_SUFFIXES) or base in _NAMES or "yaml" in base or "." not in base


def _write(members: Iterator[Member], into: Path, archive: Path) -> None:
    total = 0
    for number, member in enumerate(members):
        place = PurePosixPath(member.name)
        outside = place.is_absolute() or ".." in place.parts or "\\" in member.name or "\0" in member.name
        if outside or not place.parts:
            what = f"{archive} holds {member.name!r}, which leads out of it"
            raise Invalid(what, code="upstream-archive", hint="do not use this file")
        if number >= MAX_MEMBERS:
            raise Invalid(f"{archive} holds more than {MAX_MEMBERS} files", code="upstream-archive")
        code = member.name.endswith((".py", ".yaml", ".yml"))
        if not wanted(member.name) or (member.size > MAX_FILE and not code):
            continue
        total += member.size
        if member.size > MAX_FILE or total > MAX_TOTAL:
            what, most = (member.name, MAX_FILE) if member.size > MAX_FILE else ("its text", MAX_TOTAL)
            message = f"{archive}: {what} is larger than the {most >> 20} MiB that are read"
            raise Invalid(message, code="upstream-archive")
        target = into / place
        target.parent.mkdir(parents=True, exist_ok=True)
        source = member.open()
        if source is not None:
            with source, target.open("wb") as out:
                shutil.copyfileobj(source, out)
