"""One builder at a time: a lock file that the kernel releases when its last holder dies."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tuneport.errors import Unavailable
from tuneport.processes import alive


@contextlib.contextmanager
def held(path: Path, purpose: str, say: Callable[[str], None], *, wait: bool = True) -> Iterator[int]:
    """Hold the lock `path` and yield its descriptor; hand that to a child that must hold it as well.

    Waits for another holder, saying once a minute who it is. The file stays: removing it would let
    two processes lock two files of one name.

    Raises:
        Unavailable: somebody else holds it and `wait` is false.
    """
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        tries, said = 0, 0.0
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not wait:
                    raise Unavailable(
                        f"{holder(path)}", code="runtime-busy", hint="wait for it, or stop it"
                    ) from None
                tries += 1  # a listing holds the lock for an instant: nothing worth a word
                if tries > 1 and (time.monotonic() - said > 60 or not said):
                    said = time.monotonic()
                    say(f"waiting: {holder(path)}")
                time.sleep(0.2)
        note = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time(), "purpose": purpose}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(note).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """True where some process holds the lock now."""
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def holder(path: Path) -> str:
    """Who holds the lock, in one clause, from what the holder wrote into it."""
    try:
        note = json.loads(path.read_bytes()[:4096])
        since = time.strftime("%H:%M:%S", time.localtime(note["since"]))
        pid, host, purpose = int(note["pid"]), str(note["host"]), str(note["purpose"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return "another tp is at work on it"
    gone = host == socket.gethostname() and not alive(pid)
    ended = "; it has died and what it started is still ending" if gone else ""
    return f"process {pid} on {host} is {purpose} since {since}{ended}"
