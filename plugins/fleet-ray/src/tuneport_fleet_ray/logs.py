"""The lines of one role out of a job's log, which Ray hands out whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from tuneport.errors import Unavailable
from tuneport.fleets.protocol import LogLine


def lines(
    text: Callable[[], str], over: Callable[[], bool], role: str, roles: Sequence[str], since: int
) -> Iterator[LogLine]:
    """The role's lines from byte `since` on, until `over()`; the last one may have no end. A cluster that
    cannot be reached meanwhile is asked again.

    Args:
        roles: all of the job. Where there are several each line says whose it is; what Ray itself writes
            goes with the first.
    """
    pause = 0.5
    while True:
        try:
            last, whole = over(), text().encode("utf-8", "surrogatepass")
        except Unavailable:
            if over_at_once(over):
                raise
            time.sleep(min(pause, 5.0))
            pause *= 1.5
            continue
        found = False
        while since < len(whole):
            end = whole.find(b"\n", since)
            if end < 0 and not last:
                break
            raw = whole[since : end if end >= 0 else len(whole)]
            since = end + 1 if end >= 0 else len(whole)
            found = True
            line = _own(raw.decode(errors="replace"), role, roles)
            if line is not None:
                yield LogLine(role, line, since)
        if last:
            return
        pause = 0.5 if found else min(pause * 1.3, 3.0)
        time.sleep(pause)


def over_at_once(over: Callable[[], bool]) -> bool:
    """Whether nothing is to be waited for: only a log that is not followed says so without asking."""
    try:
        return over()
    except Unavailable:
        return False


def _own(line: str, role: str, roles: Sequence[str]) -> str | None:
    if len(roles) < 2:
        return line
    for name in roles:
        if line.startswith(f"{name}| "):
            return line[len(name) + 2 :] if name == role else None
    return line if role == roles[0] else None
