"""Whether a process is still there."""

from __future__ import annotations

import os


def alive(pid: int) -> bool:
    """Whether a process of this machine has this number; one of another user counts."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
