"""Reads a log file by lines while it grows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tuneport.fleets.protocol import LogLine

_CHUNK = 1 << 20


def lines(path: Path, role: str, since: int, over: Callable[[], bool]) -> Iterator[LogLine]:
    """The lines of `path` from byte `since` on, until `over()`.

    `over` is asked before the file is read, so what was written before the end is not missed. The file
    may not exist yet. Bytes that are not UTF-8 are replaced; a line longer than 1 MiB comes in parts.
    """
    pause = 0.05
    while True:
        last = over()
        found = 0
        for line in _read(path, role, since, last):
            found += 1
            since = line.offset
            yield line
        if last:
            return
        pause = 0.05 if found else min(pause * 1.5, 0.5)
        time.sleep(pause)


def _read(path: Path, role: str, since: int, last: bool) -> Iterator[LogLine]:
    """Complete lines up to the end of the file; when `last`, also one that has no end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        offset, rest = since, b""
        while chunk := os.pread(descriptor, _CHUNK, offset + len(rest)):
            *complete, rest = (rest + chunk).split(b"\n")
            for raw in complete:
                offset += len(raw) + 1
                yield LogLine(role, raw.decode(errors="replace"), offset)
            if len(rest) >= _CHUNK:
                offset += len(rest)
                yield LogLine(role, rest.decode(errors="replace"), offset)
                rest = b""
        if last and rest:
            yield LogLine(role, rest.decode(errors="replace"), offset + len(rest))
    finally:
        os.close(descriptor)
