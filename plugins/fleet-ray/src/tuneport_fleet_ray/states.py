"""Ray's job states in Tuneport's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneport.fleets.protocol import State, Status

_ENDED: dict[str, State] = {"SUCCEEDED": "SUCCEEDED", "FAILED": "FAILED", "STOPPED": "STOPPED"}
_COMMAND = "JOB_ENTRYPOINT_COMMAND_ERROR"


def status(info: Mapping[str, Any]) -> Status:
    """What the Jobs API says of a job; its times are milliseconds."""
    name = str(info.get("status"))
    message = " ".join(str(info.get("message") or "").split())[:300]
    code = info.get("driver_exit_code")
    started, ended = _seconds(info.get("start_time")), _seconds(info.get("end_time"))
    if name == "PENDING":
        return Status("QUEUED", message or "waits for the cluster")
    if name == "RUNNING":
        return Status("RUNNING", "started", started=started)
    state = _ENDED.get(name)
    if state is None:
        return Status("UNKNOWN", f"Ray says {name[:40]!r}, which means nothing here")
    if state == "SUCCEEDED":
        return Status(state, "ended with exit code 0", 0, started, ended)
    if state == "STOPPED":
        return Status(state, "stopped", code, started, ended)
    if code is not None and info.get("error_type") in (None, _COMMAND):
        # The message would hold the whole end of the log.
        return Status(state, f"ended with exit code {code}", code, started, ended)
    kind = str(info.get("error_type") or "").replace("_", " ").lower()
    cause = ": ".join(part for part in (kind, message) if part) or "failed"
    return Status(state, cause, code, started, ended)


def _seconds(milliseconds: Any) -> float | None:
    return milliseconds / 1000 if isinstance(milliseconds, int | float) and milliseconds > 0 else None
