"""What tells a group choice from a setting: small, because every command with a Hydra release asks."""

from __future__ import annotations

from collections.abc import Collection

CONFIG = "--config"
"""The choice of another primary configuration, among choices by key."""


def is_group(groups: Collection[str], name: str) -> bool:
    """Whether a name is one of some folders that hold files, or lies above one."""
    return bool(name) and (name in groups or any(group.startswith(name + "/") for group in groups))
