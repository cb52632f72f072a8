"""What is left of an attempt, told from its files and the process table."""

from __future__ import annotations

from tuneport.errors import NotFound
from tuneport.fleets.disk import read_json
from tuneport.fleets.layout import Folder
from tuneport.fleets.leases import Leases
from tuneport.fleets.procs import alive, elsewhere, host_name, members
from tuneport.fleets.protocol import Status
from tuneport.fleets.record import read_exit, seconds
from tuneport.settings import state_dir


def leases() -> Leases:
    """The tickets of this user's jobs on this machine, also where several share the state folder."""
    return Leases(state_dir() / "leases" / host_name(), lives)


def lives(key: str) -> bool:
    """Whether the supervisor or any process of a job is there."""
    try:
        folder = Folder.of(key)
    except NotFound:
        return False
    return alive(folder.supervised_by()) or (bool(folder.started()) and bool(processes(folder)))


def processes(folder: Folder) -> list[int]:
    return members(folder.key, folder.logs, folder.roots())


def taken(folder: Folder) -> bool:
    """Whether a submission got as far as needing no other: it runs, waits, ran, or is another machine's."""
    if read_exit(folder) or folder.started():
        return True
    supervisor = folder.supervised_by()
    return supervisor is not None and (alive(supervisor) or elsewhere(supervisor))


def status(folder: Folder) -> Status:
    """The state of an attempt. A job whose fate cannot be known is UNKNOWN, never FAILED."""
    ended = read_exit(folder)
    if ended is not None:
        return ended
    supervisor = folder.supervised_by()
    started = folder.started()
    times = (seconds(one.get("time")) for one in started.values() if isinstance(one, dict))
    since = min((time for time in times if time is not None), default=None)
    if alive(supervisor):
        if started:
            return Status("RUNNING", "started", started=since)
        return Status("QUEUED", _waiting(folder))
    if supervisor is not None and elsewhere(supervisor):
        return Status(
            "UNKNOWN",
            f"it was submitted on {supervisor.host}, which cannot be asked from here",
            started=since,
        )
    if not started:
        return Status("ACCEPTED", "nothing has been started yet")
    if processes(folder):
        return Status("RUNNING", "unsupervised: its supervisor died, its processes go on", started=since)
    # Looked at last: the supervisor may have written it and ended since the first look.
    return read_exit(folder) or Status(
        "UNKNOWN", "its supervisor died and it ended without a record of how", started=since
    )


def look(folder: Folder) -> Status:
    """`status`, where one job whose files cannot be read must not hide the others."""
    try:
        return status(folder)
    except OSError as error:
        return Status("UNKNOWN", f"its files in {folder.place} cannot be read: {error.strerror or error}")


def _waiting(folder: Folder) -> str:
    note = read_json(folder.waiting)
    text = note.get("waits_for", "") if isinstance(note, dict) else ""
    return f"waits for {text}" if text else "about to start"
