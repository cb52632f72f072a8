"""Shows that code touches nothing: hooks are pure functions, and this is how a test says so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_WATCHED = ("open", "socket.", "subprocess.", "os.", "shutil.", "ctypes.", "urllib.")
_active: list[list[str]] = []
_installed = False


@contextmanager
def no_side_effects() -> Iterator[list[str]]:
    """Collects every audited file, process, socket and system call made inside the block; the caller
    asserts that the list is empty. Reading Python's own modules is not counted: an import may happen."""
    global _installed
    if not _installed:
        sys.addaudithook(_audit)  # cannot be removed again, so it is installed once and looks at the stack
        _installed = True
    seen: list[str] = []
    _active.append(seen)
    try:
        yield seen
    finally:
        _active.remove(seen)


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if not _active or not event.startswith(_WATCHED):
        return
    target = str(arguments[0]) if arguments else ""
    if event == "open" and target.endswith((".py", ".pyc", ".so")):
        return
    if event in ("os.listdir", "os.scandir") and target in ("", *sys.path):
        return
    for seen in _active:
        seen.append(f"{event} {target}")
