"""The index cache: JSON files in the user's cache folder that any command may lose or rebuild.

A file holds the key that it was built from; a different key, a damaged file or an unwritable cache
means "build it again", never an error.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tuneport.errors import TuneportError
from tuneport.settings import cache_dir

if TYPE_CHECKING:
    from tuneport.types import Json

_FORMAT = 1
_MOST_FILES = 4096


def load(name: str, key: Json) -> Json:
    """What was saved under `name` for exactly this `key`, else None."""
    try:
        with _path(name).open("rb") as stream:
            kept = json.load(stream)
    except (OSError, ValueError, TuneportError, RecursionError):
        return None
    if not isinstance(kept, dict) or kept.get("key") != _key(key):
        return None
    return kept.get("value")


def save(name: str, key: Json, value: Json) -> None:
    """Keep `value`; a cache that cannot be written only costs time."""
    try:
        path = _path(name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            partial.write_text(json.dumps({"key": _key(key), "value": value}), "utf-8")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        _prune(path.parent)
    except (OSError, TuneportError):
        return


def _prune(folder: Path) -> None:
    """Forget the older half once there are too many: every experiment file that was ever read has one."""
    names = os.listdir(folder)
    if len(names) > _MOST_FILES:
        kept = sorted((folder / name for name in names), key=lambda path: path.stat().st_mtime_ns)
        for path in kept[: len(kept) // 2]:
            path.unlink(missing_ok=True)


def _key(key: Json) -> Json:
    return [_FORMAT, _version(), key]


@cache
def _version() -> str:
    """The code that builds an index is part of what it depends on; the times of its files stand for it."""
    package = Path(__file__).parent.parent
    built_by = [
        package / name
        for name in (
            "checks/cel.py",
            "checks/simple_syntax.py",
            "experiment/yamlread.py",
            "experiment/functions.py",
            "experiment/parquet_rows.py",
            "experiment/rows.py",
            "types.py",
        )
    ]
    folders = [package / "registry", package / "dialects" / "hydra"]
    times = [
        entry.stat().st_mtime_ns for folder in folders for entry in os.scandir(folder) if entry.is_file()
    ]
    times += [path.stat().st_mtime_ns for path in built_by]
    return f"{sys.version_info[:2]}:{sum(times)}"


def _path(name: str) -> Path:
    # One cache serves several environments; the prefix keeps them apart.
    return cache_dir() / "index" / f"{name}-{abs(hash_text(sys.prefix)):x}.json"


def hash_text(text: str) -> int:
    """A small stable hash (zlib.crc32) for file names; not for trust."""
    from zlib import crc32

    return crc32(text.encode("utf-8", "surrogatepass"))
