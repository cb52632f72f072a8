"""Writing so that a reader, or the next process after a crash, sees all of it or none of it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuneport.fleets.faults import fault

_PART = 1 << 16


def folder(path: Path, point: str) -> None:
    """Create `path` for this user alone; fine where it exists."""
    fault(point)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    fault(point)


def publish(path: Path, data: bytes, point: str, *, mode: int = 0o600, durable: bool = True) -> None:
    """Replace `path` by `data` at once. `durable`: it is on the disk when this returns."""
    fault(point)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            write_all(descriptor, data)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        fault(point)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    if durable:
        sync_folder(path.parent)
    fault(point)


def publish_json(path: Path, document: Any, point: str, *, durable: bool = True) -> None:
    publish(path, json.dumps(document).encode(), point, durable=durable)


def publish_folder(draft: Path, path: Path, point: str) -> None:
    """Give the finished folder `draft` its name. It must not exist."""
    fault(point)
    draft.rename(path)
    sync_folder(path.parent)
    fault(point)


def reserve(path: Path, size: int, point: str) -> None:
    """Take `size` bytes of disk now, so that `fill` works when the disk is full."""
    fault(point)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, b" " * size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    fault(point)


def fill(path: Path, data: bytes, point: str) -> None:
    """Overwrite the start of a reserved file; what is left of the reserve stays blank."""
    fault(point)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    fault(point)


def rename(old: Path, new: Path, point: str) -> None:
    """Give a finished file its name, durably."""
    fault(point)
    old.replace(new)
    sync_folder(new.parent)
    fault(point)


def remove(path: Path, point: str) -> None:
    """Remove a file; fine where there is none."""
    fault(point)
    path.unlink(missing_ok=True)
    fault(point)


def write_all(descriptor: int, data: bytes) -> None:
    """`os.write` may take less than it was given."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_folder(path: Path) -> None:
    """Make renames in `path` durable, where the file system can."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_bytes(path: Path | str) -> bytes:
    """What `Path.read_bytes` gives, with half as many calls of the system: one look reads thousands."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(descriptor, _PART)]
        while len(parts[-1]) == _PART:
            parts.append(os.read(descriptor, _PART))
    finally:
        os.close(descriptor)
    return b"".join(parts)


def read_json(path: Path | str) -> Any:
    """The document in `path`; None where it is missing or not (yet) complete."""
    try:
        return json.loads(read_bytes(path).decode())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None


def try_lock(path: Path) -> int | None:
    """The descriptor of the held lock file, None where another holds it. The kernel releases it when
    the last process that inherited the descriptor has closed it or died."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def locked(path: Path, *, timeout: float | None = None) -> Iterator[bool]:
    """Hold the lock file `path`; yields False where `timeout` seconds were not enough."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while (descriptor := try_lock(path)) is None:
        if deadline is not None and time.monotonic() >= deadline:
            yield False
            return
        time.sleep(0.02)
    try:
        yield True
    finally:
        os.close(descriptor)
