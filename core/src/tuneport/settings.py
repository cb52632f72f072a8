"""Settings from the environment, and the folders that Tuneport may write to.

A setting is read under `TUNEPORT_` first, then under the two older prefixes, and nothing else in the
tree knows those.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tuneport.errors import Unavailable

_PREFIXES = ("TUNEPORT_", "TUNEPLANE_", "FORGE_")


def setting(name: str) -> str | None:
    """The value of `TUNEPORT_<name>` or its older spellings; None where unset. Empty counts as set."""
    for prefix in _PREFIXES:
        value = os.environ.get(prefix + name)
        if value is not None:
            return value
    return None


def state_dir() -> Path:
    """Jobs, datasets and their database. Not created here."""
    return _folder("STATE_DIR", "user_state_path")


def cache_dir() -> Path:
    """What can be rebuilt: indexes and virtual environments. Not created here."""
    return _folder("CACHE_DIR", "user_cache_path")


def private_dir(path: Path) -> Path:
    """Create `path` for this user alone and return it.

    Raises:
        Unavailable: the folder cannot be created or written.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"cannot create {path}: {error.strerror or error}",
            code="folder-not-writable",
            hint="set TUNEPORT_STATE_DIR and TUNEPORT_CACHE_DIR to folders you can write",
        ) from error
    return path


def _folder(name: str, default: str) -> Path:
    value = setting(name)
    if value:
        return Path(value).absolute()
    usual = _on_linux(default)
    if usual is not None:
        return usual
    import platformdirs

    try:
        folder: Path = getattr(platformdirs, default)("tuneport", appauthor=False)
    except (RuntimeError, KeyError) as error:  # no HOME and no passwd entry
        raise Unavailable(
            "there is no home folder to keep state in",
            code="no-home",
            hint=f"set TUNEPORT_{name} to a folder you can write",
        ) from error
    if not folder.is_absolute():  # platformdirs returns "~/…" unexpanded where there is no home
        raise Unavailable(
            "there is no home folder to keep state in",
            code="no-home",
            hint=f"set TUNEPORT_{name} to a folder you can write",
        )
    return folder


_XDG = {
    "user_state_path": ("XDG_STATE_HOME", ".local/state"),
    "user_cache_path": ("XDG_CACHE_HOME", ".cache"),
}


def _on_linux(default: str) -> Path | None:
    """What platformdirs says on a Linux where nothing is odd: its import takes longer than many a command."""
    if sys.platform != "linux":
        return None
    variable, below = _XDG[default]
    base, home = os.environ.get(variable, ""), os.environ.get("HOME", "")
    if os.path.isabs(base):
        return Path(base, "tuneport")
    return Path(home, below, "tuneport") if os.path.isabs(home) else None
