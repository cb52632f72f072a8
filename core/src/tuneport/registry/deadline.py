"""What a plugin's code may do to the command that calls it: its time has a bound, so that one that never ends
is blamed like one that raises, and what it prints goes to stderr, so that stdout stays data."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
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
    with redirect_stdout(sys.stderr):
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


def _clock_is_free() -> bool:
    main = threading.current_thread() is threading.main_thread()
    return main and not signal.getitimer(signal.ITIMER_REAL)[0]


def _seconds() -> float:
    try:
        seconds = max(0.0, float(setting("PLUGIN_DEADLINE") or SECONDS))
    except ValueError:
        return SECONDS
    return seconds if seconds < _LONGEST else 0.0
