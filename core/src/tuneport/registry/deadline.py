"""What a plugin's code may do to the command that calls it: its time has a bound, so that one that never ends
is blamed like one that raises, and what it writes to stdout, by whatever way, goes to stderr, so that stdout
stays data."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import NoReturn

from tuneport.settings import setting

SECONDS = 30.0
_LONGEST = 1e9  # what the alarm clock takes; beyond it is for ever


class TooLong(BaseException):
    """Raised inside the plugin; a BaseException, because `except Exception` around a loop would go on."""


@contextmanager
def deadline() -> Iterator[None]:
    """A block that may take TUNEPORT_PLUGIN_DEADLINE seconds (30 unless set; 0: for ever).

    Works in the main thread and where nobody else uses the alarm clock; elsewhere there is no bound.

    Raises:
        TooLong: from within the block.
    """
    seconds = _seconds()
    with _descriptor_aside(), redirect_stdout(sys.stderr):
        if not seconds or not _clock_is_free():
            yield
            return

        def ring(*_: object) -> NoReturn:
            raise TooLong(f"it went on for more than {seconds:g} seconds")

        before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again, should it catch even this
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before if before is not None else signal.SIG_DFL)


_aside = False


@contextmanager
def _descriptor_aside() -> Iterator[None]:
    """A block in which file descriptor 1 is what 2 is: compiled code, processes and `os.write` know no
    `sys.stdout`. In the main thread, since a descriptor belongs to all of them."""
    global _aside
    if _aside or threading.current_thread() is not threading.main_thread():
        yield
        return
    _flush()
    try:
        os.fstat(2)
        target, made = 2, False
    except OSError:  # there is no stderr; asked before anything else takes its number
        target, made = os.open(os.devnull, os.O_WRONLY), True
    try:
        kept = os.dup(1)
    except OSError:  # it is closed: nothing can be written to it
        kept = -1
    try:
        _aside = True
        if kept >= 0:
            os.dup2(target, 1)
        yield
    finally:
        _flush()
        if kept >= 0:
            os.dup2(kept, 1)
            os.close(kept)
        if made:
            os.close(target)
        _aside = False


def _flush() -> None:
    """What Python holds back for descriptor 1 belongs to where that leads now."""
    if sys.__stdout__ is not None:
        with suppress(OSError, ValueError):  # nobody reads it any more, or it is closed
            sys.__stdout__.flush()


def _clock_is_free() -> bool:
    main = threading.current_thread() is threading.main_thread()
    return main and not signal.getitimer(signal.ITIMER_REAL)[0]


def _seconds() -> float:
    try:
        seconds = max(0.0, float(setting("PLUGIN_DEADLINE") or SECONDS))
    except ValueError:
        return SECONDS
    return seconds if seconds < _LONGEST else 0.0
