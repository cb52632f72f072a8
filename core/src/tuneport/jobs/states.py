"""The published table of job states. They only move forward; the last ones are final.

    ACCEPTED -> QUEUED -> RUNNING -> SUCCEEDED | FAILED | STOPPED

Steps may be skipped. UNKNOWN, contact lost, may follow any state but a final one, and from it a job comes
back to where it was or to something later.
"""

from __future__ import annotations

from tuneport.fleets.protocol import TERMINAL, State

RANK: dict[State, int] = {
    "ACCEPTED": 0,
    "QUEUED": 1,
    "RUNNING": 2,
    "SUCCEEDED": 3,
    "FAILED": 3,
    "STOPPED": 3,
}
"""How far each state is; UNKNOWN has no place."""


def may_follow(reached: int, current: State, new: State) -> bool:
    """Whether a job in `current`, which once was as far as rank `reached`, may become `new`."""
    if current in TERMINAL or new == current:
        return False
    if new == "UNKNOWN":
        return True
    return RANK[new] >= reached if current == "UNKNOWN" else RANK[new] > reached
