"""Publishes a folder as a dataset version: all of it or nothing, and never over another one."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tuneport.datasets import files as reading
from tuneport.datasets import store
from tuneport.datasets.files import File
from tuneport.datasets.reference import parse_name, parse_version
from tuneport.errors import Invalid, Unavailable
from tuneport.processes import alive
from tuneport.settings import private_dir, state_dir


@dataclass(frozen=True, slots=True)
class Pushed:
    """`created` is false where the same content was there already."""

    version: store.Version
    created: bool


def push(name: str, version: str, folder: Path, progress: Callable[[str, int], None] | None = None) -> Pushed:
    """Copy `folder` into the store as `name`@`version`. `progress` gets each file's name and size.

    The copy is made beside its place and moved there in one step, so nobody sees a part of it, and of
    two pushes of one version the first wins.

    Raises:
        Invalid: a malformed name, files that cannot be stored as they are, or the version exists with
            another content. Unavailable: the store cannot be written.
    """
    owner, stem = parse_name(name)
    reference = f"{name}@{parse_version(version)}"
    names = reading.listing(folder)
    home = store.root() / owner / stem
    target = home / version
    if target.exists():
        return _already(target, reference, _hash(folder, names))
    try:
        if home.is_relative_to(state_dir()):
            private_dir(state_dir())
            private_dir(home)
        else:
            home.mkdir(parents=True, exist_ok=True)  # shared: the folder's owner decides who may read
        _sweep(home)
        draft = home / f".push-{socket.gethostname()}-{os.getpid()}-{time.time_ns()}"
        (draft / store.DATA).mkdir(parents=True)
    except OSError as error:
        raise _unwritable(home, error) from error
    try:
        stored = {one: _copy(folder / one, draft / store.DATA / one, one, progress) for one in names}
        published = store.Version(reference, target, reading.tree_digest(stored), time.time(), stored)
        _write_manifest(draft, published)
        try:
            draft.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return _already(target, reference, stored)
        return Pushed(published, True)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT):
            raise _unwritable(home, error) from error
        raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _copy(source: Path, target: Path, name: str, progress: Callable[[str, int], None] | None) -> File:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as out:
        size, sha256 = reading.read(source, out.write)
    target.chmod(0o444)
    if progress is not None:
        progress(name, size)
    return File(size, sha256, target.stat().st_mtime_ns)


def _hash(folder: Path, names: list[str]) -> dict[str, File]:
    return {name: File(*reading.read(folder / name), mtime=0) for name in names}


def _already(target: Path, reference: str, files: dict[str, File]) -> Pushed:
    there = store.read_manifest(target, reference)
    if there.digest == reading.tree_digest(files):
        return Pushed(there, False)
    raise Invalid(
        f"{reference} exists with another content ({there.digest[:19]}…); versions never change",
        code="dataset-version-exists",
        hint="push it as another version",
    )


def _write_manifest(draft: Path, version: store.Version) -> None:
    note = {
        "format": store.FORMAT,
        "reference": version.reference,
        "digest": version.digest,
        "created": version.created,
        "files": {
            name: {"size": file.size, "sha256": file.sha256, "mtime": file.mtime}
            for name, file in sorted(version.files.items())
        },
    }
    path = draft / store.MANIFEST
    with path.open("x", encoding="utf-8") as stream:
        json.dump(note, stream, indent=1, ensure_ascii=False)
        stream.flush()
        os.fsync(stream.fileno())
    path.chmod(0o444)


def _sweep(home: Path) -> None:
    """Drop what pushes of this machine left behind when they were killed."""
    mine = f".push-{socket.gethostname()}-"
    for path in home.glob(".push-*"):
        pid = path.name.removeprefix(mine).partition("-")[0]
        if path.name.startswith(mine) and pid.isdigit() and not alive(int(pid)):
            shutil.rmtree(path, ignore_errors=True)


def _unwritable(home: Path, error: OSError) -> Unavailable:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return Unavailable(
        f"cannot write to {home}: {error.strerror or error}",
        code="dataset-store-full" if full else "dataset-store-read-only",
        hint="free some space and push again"
        if full
        else "ask for the right to write there, or push on another machine",
    )
