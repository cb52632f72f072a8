"""Slurm's states in Tuneport's words."""

from __future__ import annotations

from dataclasses import replace

from tuneport.fleets.protocol import Status

from tuneport_fleet_slurm.engine import Row

_WAITING = {
    "Resources": "waits for free nodes",
    "Priority": "waits for jobs of higher priority",
    "Dependency": "waits for another job",
    "BeginTime": "waits for its begin time",
    "Licenses": "waits for a licence",
    "Reservation": "waits for its reservation",
    "ReqNodeNotAvail": "waits for nodes that are down or reserved",
    "PartitionDown": "waits: its partition is down",
    "PartitionInactive": "waits: its partition is inactive",
    "PartitionNodeLimit": "waits: it asks for more nodes than the partition gives",
    "PartitionTimeLimit": "waits: its time limit is above the partition's",
    "JobHeldUser": "held: scontrol release {id}",
    "JobHeldAdmin": "held by an administrator",
    "launch failed requeued held": "held: it could not be launched; scontrol release {id}",
}
_BAD = {
    "TIMEOUT": "ran into its time limit",
    "NODE_FAIL": "a node of it failed",
    "OUT_OF_MEMORY": "ran out of memory",
    "PREEMPTED": "was preempted by a job of higher priority",
    "BOOT_FAIL": "a node of it did not boot",
    "DEADLINE": "could not end before its deadline",
    "REVOKED": "was revoked",
    "LAUNCH_FAILED": "could not be launched",
}
ACTIVE = frozenset(
    {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "STAGE_OUT", "SIGNALING",
     "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESIZING", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)  # fmt: skip
"""Those after which something may still happen."""


def status(row: Row, ran: Status | None, *, begun: bool) -> Status:
    """What a job's row means.

    Args:
        ran: the record that the job itself left, None while there is none.
        begun: it has run before: a job that waits again was requeued, and does not go back.
    """
    name, reason = row.state, row.reason if row.reason not in ("None", "") else ""
    where = f"Slurm job {row.id}"
    if name in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "CONFIGURING"):
        known = _WAITING.get(reason.partition(",")[0], f"waits ({reason})" if reason else "waits")
        why = known.replace("{id}", row.id)
        why = "its nodes are being prepared" if name == "CONFIGURING" else why
        if begun:
            return Status("RUNNING", f"{where}: requeued, {why}")
        return Status("QUEUED", f"{where}: {why}")
    if name in ACTIVE:
        doing = {"COMPLETING": "ending", "SUSPENDED": "suspended", "STOPPED": "suspended"}.get(
            name, "started"
        )
        return Status("RUNNING", f"{where}: {doing}", started=row.started)
    code = row.code if row.code is not None else (ran.exit_code if ran else None)
    ended = Status("FAILED", exit_code=code, started=row.started, ended=row.ended)
    if name == "COMPLETED":
        return replace(ended, state="SUCCEEDED", cause="ended with exit code 0", exit_code=0)
    if name == "CANCELLED":
        by = "stopped" if ran is not None and ran.state == "STOPPED" else "cancelled"
        return replace(ended, state="STOPPED", cause=f"{where}: {by}" + (f" ({reason})" if reason else ""))
    if name == "FAILED":
        own = ran.cause if ran is not None and ran.state == "FAILED" else ""
        return replace(ended, cause=own or f"{where}: failed" + (f" ({reason})" if reason else ""))
    if name in _BAD:
        return replace(ended, cause=f"{where} {_BAD[name]}")
    return Status("UNKNOWN", f"{where} is in state {name}, which means nothing here")
