"""Shows that code touches nothing: hooks are pure functions, and this is how a test says so."""

from __future__ import annotations

import datetime
import os
import random
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_WATCHED = ("open", "socket.", "subprocess.", "os.", "shutil.", "ctypes.", "urllib.")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_effects: list[list[str]] = []
_imports: list[list[str]] = []
_installed = False

# What Python's audit events do not tell, found by the calls themselves.
_CLOCK = (
    *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"),
    *("clock_gettime", "clock_gettime_ns", "localtime", "gmtime", "ctime", "strftime", "sleep"),
)
_SYSTEM = (
    *("read", "write", "pread", "pwrite", "readv", "writev", "sendfile", "close", "fsync", "umask"),
    *("dup", "dup2", "pipe", "pipe2", "isatty", "ttyname", "get_terminal_size", "urandom", "getrandom"),
    *("stat", "lstat", "fstat", "statvfs", "access", "readlink", "getcwd", "getcwdb"),
    *("getpid", "getppid", "getuid", "geteuid", "getgid", "getegid", "getlogin", "uname", "cpu_count"),
    *("sched_getaffinity", "getloadavg", "times"),
)  # fmt: skip
_BUILTINS: dict[object, str] = {
    **{getattr(time, name): f"time.{name}" for name in _CLOCK if hasattr(time, name)},
    **{getattr(os, name): f"os.{name}" for name in _SYSTEM if hasattr(os, name)},
    random.random: "random.random",
    random.getrandbits: "random.getrandbits",
    print: "print",
}
_ENVIRONMENT: dict[CodeType, str] = {
    getattr(type(os.environ), name).__code__: "os.environ"
    for name in ("__getitem__", "__setitem__", "__delitem__", "__iter__", "copy")
}
_STDLIB = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})
_INSTALLED = ("site-packages", "dist-packages")
_CORE = f"{Path(__file__).parents[1]}{os.sep}"


@contextmanager
def no_side_effects() -> Iterator[list[str]]:
    """Collects every file, process, socket and system call made inside the block, and every use of the
    clock, of shared or of the system's randomness, of an environment variable and of a standard stream; the
    caller asserts that the list is empty. Reading Python's own modules is not counted: an import may happen.

    What Tuneport's core does by itself inside the block counts only where it opens or starts something.
    """
    with _watch(_effects) as seen:
        before = sys.getprofile()
        sys.setprofile(_watcher(seen))
        try:
            yield seen
        finally:
            sys.setprofile(before)


@contextmanager
def imports() -> Iterator[list[str]]:
    """Collects the dotted name of every module that is asked for inside the block and was not imported
    before, also where importing it fails."""
    with _watch(_imports) as seen:
        yield seen


@contextmanager
def _watch(active: list[list[str]]) -> Iterator[list[str]]:
    global _installed
    if not _installed:
        sys.addaudithook(_audit)  # cannot be removed again, so it is installed once and looks at the stack
        _installed = True
    seen: list[str] = []
    active.append(seen)
    try:
        yield seen
    finally:
        active[:] = [other for other in active if other is not seen]


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event == "import":
        for seen in _imports:
            seen.append(str(arguments[0]))
    if not _effects or not event.startswith(_WATCHED):
        return
    target = str(arguments[0]) if arguments else ""
    compiled = sys.pycache_prefix  # Python keeps here, or beside the source, what it compiles
    if "__pycache__" in target or (compiled and target.startswith(compiled)):
        return
    if event == "open":
        if isinstance(arguments[0], int):  # it was seen when it was opened
            return
        flags = arguments[2] if len(arguments) > 2 else 0
        if isinstance(flags, int) and flags & _WRITES and target != os.devnull:
            event = "writing"
        elif target.endswith((".py", ".pyc", ".so")):
            return
    if event in ("os.listdir", "os.scandir") and target in ("", *sys.path):
        return
    for seen in _effects:
        seen.append(f"{event} {target}")


def _watcher(seen: list[str]) -> Callable[[FrameType, str, Any], None]:
    """A profile function that notes what no audit event tells, of code that is not the core's own."""

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            said = _builtin(argument)
        elif event == "call":
            said = _ENVIRONMENT.get(frame.f_code, "")
        else:
            return
        if said and said not in seen and not _is_core(frame):
            seen.append(said)

    return watch


def _builtin(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    if isinstance(owner, type) and issubclass(owner, datetime.date):
        return f"datetime.{name}" if name in ("now", "today", "utcnow") else ""
    if name in ("write", "writelines") and any(owner is stream for stream in _streams()):
        return "a standard stream"
    try:
        return _BUILTINS.get(function, "")
    except TypeError:  # a method of something that has no hash
        return ""


def _streams() -> Iterator[object]:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is not None:
            yield stream
            yield getattr(stream, "buffer", stream)


def _is_core(frame: FrameType | None) -> bool:
    """Whether the code on whose behalf Python's own library runs is the core."""
    while frame is not None:
        file = frame.f_code.co_filename
        library = file.startswith(("<frozen", *_STDLIB)) and not any(part in file for part in _INSTALLED)
        if not library:
            return file.startswith(_CORE)
        frame = frame.f_back
    return True
