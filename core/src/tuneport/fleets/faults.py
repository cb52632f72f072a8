"""Places where a process may be killed by a test, each just before or after something becomes durable.

Every write of the job store and the local fleet goes through a primitive that takes the name of its
point, and the names are listed here: a write without a point, or a point that no test kills at, fails
the suite. With TUNEPORT_TEST_FAULT="ROLE:N" the N-th point that a process of that role reaches is its
last moment; without the variable a point costs one comparison.
"""

from __future__ import annotations

import os
import signal

POINTS: dict[str, tuple[str, ...]] = {
    "cli": (
        "store-schema",
        "store-intent",
        "store-retry",
        "store-handle",
        "store-move",
        "job-folder",
        "source-folder",
        "source-copy",
        "source-publish",
        "attempt-folder",
        "work-copy",
        "reporter-copy",
        "launch-record",
        "supervisor-spawn",
        "supervisor-spawned",
        "stop-mark",
        "stop-record",
    ),
    "supervisor": (
        "supervisor-locked",
        "supervisor-detach",
        "supervisor-record",
        "exit-reserve",
        "lease-folder",
        "lease-ticket",
        "lease-sweep",
        "lease-grant",
        "lease-remove",
        "wait-note",
        "plan-file",
        "role-fork",
        "role-forked",
        "exit-write",
        "exit-record",
    ),
    "role": ("begun-mark", "begun-write", "role-exec"),
}
"""Which points a process of each role may reach."""

_NAMES = frozenset(name for names in POINTS.values() for name in names)
_role = "cli"
_reached = 0
_armed = os.environ.get("TUNEPORT_TEST_FAULT", "")


def arm(text: str) -> None:
    """Choose the point at which this process dies (`ROLE:N`, empty for none), counting from now."""
    global _armed, _reached
    _armed, _reached = text, 0


def enter(role: str) -> None:
    """Say what this process is from now on."""
    global _role, _reached
    _role, _reached = role, 0


def fault(name: str) -> None:
    """Reach the point `name`."""
    if _armed:
        _count(name)


def _count(name: str) -> None:
    global _reached
    if name not in _NAMES:
        raise AssertionError(f"fault point {name!r} is not listed")
    role, _, number = _armed.partition(":")
    if role != _role:
        return
    _reached += 1
    if number != "log" and _reached != int(number):
        return
    log = os.environ.get("TUNEPORT_TEST_FAULT_LOG")
    if log:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{_role} {name}\n".encode())
        os.close(descriptor)
    if number != "log":
        os.kill(os.getpid(), signal.SIGKILL)
