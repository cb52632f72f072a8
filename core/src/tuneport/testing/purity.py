"""Shows that code touches nothing: hooks are pure functions, and this is how a test says so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_WATCHED = ("open", "socket.", "subprocess.", "os.", "shutil.", "ctypes.", "urllib.")
_effects: list[list[str]] = []
_imports: list[list[str]] = []
_installed = False


@contextmanager
def no_side_effects() -> Iterator[list[str]]:
    """Collects every audited file, process, socket and system call made inside the block; the caller
    asserts that the list is empty. Reading Python's own modules is not counted: an import may happen."""
    with _watch(_effects) as seen:
        yield seen


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
    if event == "open" and target.endswith((".py", ".pyc", ".so")):
        return
    if event in ("os.listdir", "os.scandir") and target in ("", *sys.path):
        return
    for seen in _effects:
        seen.append(f"{event} {target}")
