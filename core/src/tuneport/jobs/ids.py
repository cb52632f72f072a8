"""Names for jobs: short enough to type, and never the same twice."""

from __future__ import annotations

import re

_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # no letter that looks like a digit


def new_id(method: str, action: str = "train") -> str:
    """An id such as `sft-k7m2qd`: the method's short name, or the action where that is not training."""
    import secrets  # late: who only looks at jobs names none

    name = method.rpartition("/")[2] if action == "train" else action
    stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:20].strip("-") or "job"
    return f"{stem}-{''.join(secrets.choice(_ALPHABET) for _ in range(6))}"
