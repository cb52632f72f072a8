"""Walks, reads and hashes the files of a dataset, refusing what could not be stored as it is."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuneport.errors import Invalid
from tuneport.types import Finding

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class File:
    """One stored file. `size` in bytes, `sha256` in hex, `mtime` in nanoseconds since the epoch."""

    size: int
    sha256: str
    mtime: int


def walk(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """(path relative to `folder` with `/`, entry) of everything that is not a folder, in order of path."""
    pending = [("", str(folder))]
    while pending:
        prefix, path = pending.pop()
        with os.scandir(path) as entries:
            children = sorted(entries, key=lambda entry: entry.name)
        for entry in children:
            if entry.is_dir(follow_symlinks=False):
                pending.append((f"{prefix}{entry.name}/", entry.path))
            else:
                yield prefix + entry.name, entry


def listing(folder: Path) -> list[str]:
    """The relative paths of the files of a folder that may be pushed.

    Raises:
        Invalid: with one finding for each file that may not, or when there is no file.
    """
    if not folder.is_dir():
        message = f"{folder} is not a folder" if folder.exists() else f"{folder} does not exist"
        raise Invalid(message, code="dataset-folder", hint="push a folder that holds the files")
    names, findings = [], []
    try:
        for name, entry in walk(folder):
            problem = _problem(name, entry)
            if problem is not None:
                findings.append(problem)
            names.append(name)
    except OSError as error:
        findings.append(_unreadable(str(error.filename), error))
    if findings:
        count = len(findings)
        raise Invalid(
            f"{folder} cannot be pushed: {count} problem{'s' if count > 1 else ''}",
            code="dataset-files",
            findings=findings[:100],
        )
    if not names:
        raise Invalid(f"{folder} holds no files", code="dataset-empty")
    return sorted(names)


def read(path: Path, write: Callable[[bytes], object] | None = None) -> tuple[int, str]:
    """(size, sha256) of a regular file, its bytes handed to `write` as they are read.

    Raises:
        Invalid: it is no regular file, cannot be read, or changed while it was read.
    """
    # A link or a pipe put here after the listing must not be followed, nor waited for.
    flags = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise Invalid(_unreadable(str(path), error).message, code="dataset-unreadable") from error
    hasher, size = hashlib.sha256(), 0
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise Invalid(f"{path} is not a regular file", code="dataset-special-file")
        while chunk := stream.read(_CHUNK):
            hasher.update(chunk)
            size += len(chunk)
            if write is not None:
                write(chunk)
        after = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or size != after.st_size:
        raise Invalid(
            f"{path} changed while it was read",
            code="dataset-changing",
            hint="push it when nothing writes to it",
        )
    return size, hasher.hexdigest()


def tree_digest(files: Mapping[str, File]) -> str:
    """The digest of a set of files: names, sizes and content, whatever their times."""
    from tuneport.registry.digest import digest

    return digest({name: {"sha256": file.sha256, "size": str(file.size)} for name, file in files.items()})


def _problem(name: str, entry: os.DirEntry[str]) -> Finding | None:
    shown = ascii(name)[1:-1] if not name.isprintable() else name
    if not name.isprintable() or not _encodable(name):
        message = f"{shown}: the name is not printable UTF-8 text"
        return Finding("dataset-file-name", "error", message, "rename it", shown, shown)
    if entry.is_symlink():
        message = f"{shown} is a symbolic link"
        return Finding("dataset-symlink", "error", message, "replace it by what it points to", shown, shown)
    if not entry.is_file(follow_symlinks=False):
        message = f"{shown} is a pipe, socket or device"
        return Finding("dataset-special-file", "error", message, "remove it", shown, shown)
    if not os.access(entry.path, os.R_OK):
        return _unreadable(shown, PermissionError(errno.EACCES, "permission denied"))
    return None


def _encodable(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _unreadable(name: str, error: OSError) -> Finding:
    shown = ascii(name)[1:-1] if not name.isprintable() else name
    message = f"{shown} cannot be read: {(error.strerror or str(error)).lower()}"
    return Finding("dataset-unreadable", "error", message, "make it readable or leave it out", shown, shown)
