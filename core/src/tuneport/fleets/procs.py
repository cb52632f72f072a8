"""Processes as Linux shows them under /proc: who lives, who belongs to a job, and ending all of those."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tuneport.fleets.disk import read_bytes

MARK = "TUNEPORT_JOB_KEY"
"""In the environment of every process of a job: its key."""
SUPERVISOR_MARK = "TUNEPORT_SUPERVISOR"
"""In the environment of supervisors, so that a job which submits another job does not own it."""
_PROC = Path("/proc")


class Ident(NamedTuple):
    """A process that can be told from a later one with the same id. `start` is in clock ticks since boot."""

    pid: int
    start: int
    boot: str
    host: str

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


class Stat(NamedTuple):
    pid: int
    state: str
    parent: int
    group: int
    session: int
    start: int


def ident_from_json(document: Any) -> Ident | None:
    """The ident in a record, None where the record was cut short by a crash or damaged."""
    try:
        return Ident(
            int(document["pid"]), int(document["start"]), str(document["boot"]), str(document["host"])
        )
    except (TypeError, KeyError, ValueError, OverflowError):
        return None


def myself() -> Ident:
    stat = read_stat(os.getpid())
    return Ident(os.getpid(), stat.start if stat else 0, boot_id(), host_name())


@cache
def boot_id() -> str:
    """What process ids here are counted in: this boot, and this container's view of it."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def user_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no name for this user anywhere
        return f"user {os.getuid()}"


def host_name() -> str:
    return os.uname().nodename


def elsewhere(ident: Ident) -> bool:
    """True where the process was started on another machine or in another container, so that nothing
    here can tell. After a reboot under the same name it is known to be gone."""
    return ident.host != host_name() and ident.boot != boot_id()


def alive(ident: Ident | None) -> bool:
    """True while that very process runs here. One that ended but was not collected is not alive."""
    if ident is None or ident.boot != boot_id():
        return False
    stat = read_stat(ident.pid)
    if stat is None:
        return not _PROC.joinpath("self/stat").exists() and _signalable(ident.pid)
    return stat.state not in "ZX" and stat.start == ident.start


def _signalable(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def read_stat(pid: int) -> Stat | None:
    try:
        text = read_bytes(f"{_PROC}/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The name is in brackets and may hold spaces and brackets itself.
    fields = text[text.rindex(b")") + 2 :].split(maxsplit=20)
    return Stat(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def everyone() -> list[Stat]:
    """All processes that have not ended."""
    try:
        names = os.listdir(_PROC)
    except OSError:
        return []
    stats = (read_stat(int(name)) for name in names if name.isdigit())
    return [stat for stat in stats if stat is not None and stat.state not in "ZX"]


def members(key: str, logs: Path, roots: Iterable[Ident]) -> list[int]:
    """The processes of a job as anyone can find them: those that carry its mark, share a session or
    group with one of `roots`, or write their output to the folder `logs`, and all their descendants.

    A process may clear its environment, overwrite it with a title, or leave its session: no single sign
    is enough. The caller and supervisors are left out; a root that has not become its command yet looks like
    the supervisor that it was forked from, and is the job's all the same.
    """
    stats = everyone()
    by_pid = {stat.pid: stat for stat in stats}
    sessions = {root.pid for root in roots if _keeps(root, by_pid.get(root.pid))}
    mark, prefix = f"{MARK}={key}".encode(), os.fsencode(os.path.realpath(logs)) + b"/"  # as /proc names it
    found = {
        stat.pid
        for stat in stats
        if sessions & {stat.pid, stat.session, stat.group}
        or mark in _environ(stat.pid)
        or any(link.startswith(prefix) for link in _outputs(stat.pid))
    }
    return sorted(_family(found, stats, sessions & by_pid.keys()))


def descendants(ancestor: int) -> list[int]:
    """Every process below `ancestor`; complete where it is a subreaper. Below a supervisor nothing is
    counted: that is another job."""
    return sorted(_family({ancestor}, everyone()) - {ancestor})


def _keeps(root: Ident, stat: Stat | None) -> bool:
    """Whether session and group ids equal to this pid are still the job's: an id is not given to a new
    process while a session or group of that number exists."""
    return root.boot == boot_id() and (stat is None or stat.start == root.start)


def _family(found: set[int], stats: list[Stat], roots: Collection[int] = ()) -> set[int]:
    children: dict[int, list[int]] = {}
    for stat in stats:
        children.setdefault(stat.parent, []).append(stat.pid)
    family: set[int] = set()
    queue = list(found)
    while queue:
        pid = queue.pop()
        if pid in family or (pid != os.getpid() and pid not in roots and _supervises(pid)):
            continue
        family.add(pid)
        queue.extend(children.get(pid, ()))
    return family - {os.getpid()}


def _supervises(pid: int) -> bool:
    return any(entry.startswith(SUPERVISOR_MARK.encode() + b"=") for entry in _environ(pid))


def _environ(pid: int) -> list[bytes]:
    try:
        return _PROC.joinpath(str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _outputs(pid: int) -> list[bytes]:
    base = os.fsencode(_PROC / str(pid))
    links = []
    for name in (b"/fd/1", b"/fd/2"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(base + name))
    return links


def end_all(find: Callable[[], list[int]], grace: float, reap: Callable[[], None] = lambda: None) -> int:
    """Ask every process that `find` returns to end, and after `grace` seconds end what is left.

    Returns how many were still there when the grace was over. Returns only when `find` is empty, or
    after 30 s in which the kernel did not let go of one (a device that hangs).
    """
    asked: set[int] = set()
    deadline = time.monotonic() + grace
    pause = 0.005
    while left := find():
        if time.monotonic() >= deadline:
            break
        for pid in left:
            if pid not in asked:
                asked.add(pid)
                send(pid, signal.SIGTERM)
                send(pid, signal.SIGCONT)  # a stopped process hears nothing
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
        reap()
    stubborn = len(left)
    hopeless = time.monotonic() + 30
    while (left := find()) and time.monotonic() < hopeless:
        for pid in left:
            send(pid, signal.SIGKILL)
        time.sleep(0.01)
        reap()
    return stubborn


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
