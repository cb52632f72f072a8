"""The exit record of an attempt: one file, written once, final."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from tuneport.fleets import disk
from tuneport.fleets.layout import Folder
from tuneport.fleets.protocol import TERMINAL, State, Status

SIZE = 4096
"""Bytes reserved before the job starts, because a job that fills the disk still has to be recorded."""


def write_exit(
    folder: Folder,
    state: State,
    cause: str,
    *,
    exit_code: int | None = None,
    started: float | None = None,
    roles: Mapping[str, int] | None = None,
) -> None:
    """Record how the attempt ended. The caller holds the supervisor lock, so nobody else writes one."""
    document = {
        "state": state,
        "cause": cause[:1000],
        "exit_code": exit_code,
        "started": started,
        "ended": time.time(),
        "roles": dict(roles or {}),
    }
    data = json.dumps(document).encode()
    if len(data) > SIZE:
        document["roles"], document["cause"] = {}, cause[:300]
        data = json.dumps(document).encode()
    disk.fill(folder.reserve, data.ljust(SIZE), "exit-write")
    disk.rename(folder.reserve, folder.exit, "exit-record")


def read_exit(folder: Folder) -> Status | None:
    """How the attempt ended; None while there is no record, or where it is damaged."""
    document: Any = folder.ended()
    if not isinstance(document, dict) or document.get("state") not in tuple(TERMINAL):
        return None
    code = document.get("exit_code")
    return Status(
        document["state"],
        str(document.get("cause") or ""),
        code if isinstance(code, int) else None,
        seconds(document.get("started")),
        seconds(document.get("ended")),
    )


def seconds(value: Any) -> float | None:
    """A time of a record, None where it has none."""
    return value if isinstance(value, int | float) else None
