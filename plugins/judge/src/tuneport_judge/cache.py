"""Replies on disk. Any number of processes may share a folder: a file appears whole or not at all.
No manifest: it is a part of a program, shipped to the job as it stands.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path


class Cache:
    """Replies by everything that decides them. A folder that cannot be written costs time only."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def _path(self, key: Sequence[object]) -> Path:
        assert self.folder is not None
        name = hashlib.sha256(json.dumps(key, ensure_ascii=True).encode()).hexdigest()
        return self.folder / name[:2] / f"{name}.json"

    def get(self, key: Sequence[object]) -> str | None:
        """The reply that was kept, None where there is none or its file is damaged."""
        if self.folder is None:
            return None
        try:
            reply = json.loads(self._path(key).read_bytes())["reply"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return reply if isinstance(reply, str) else None

    def put(self, key: Sequence[object], reply: str) -> None:
        if self.folder is None:
            return
        path = self._path(key)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps({"reply": reply}), "utf-8")
            draft.replace(path)
        except OSError:
            self.folder = None


def default_folder() -> Path:
    """Where Tuneport keeps what can be made again, on the machine that runs."""
    for name, below in (("TUNEPORT_CACHE_DIR", "judge"), ("XDG_CACHE_HOME", "tuneport/judge")):
        if os.environ.get(name):
            return Path(os.environ[name]) / below
    return Path("~/.cache/tuneport/judge").expanduser()
