"""What a Parquet file's footer and its first rows tell together; the rows where pyarrow is installed.

A process of its own reads rows (`parquet_reader`), since whoever made the file decides what becomes of it.
What was seen of a file is kept in the index cache for as long as the file is as it was.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from tuneport.registry import store
from tuneport.types import Json

EXTRA = "tuneport-core[parquet]"
_WALL = 15  # seconds that reading may take
_NOTHING = {"null", "empty"}  # shapes that do not tell what other rows hold


def with_rows(path: Path, footer: Mapping[str, Json]) -> dict[str, Json]:
    """What `tables.read` tells of a Parquet file, from what its footer does and from its first rows.

    `wants` is what to install so that rows can be read, where that is all that is missing.

    Raises:
        ValueError: the rows are damaged, or not as many as the footer says.
    """
    if not footer.get("rows"):
        return {**footer}
    seen = _kept(path)
    if "judged" not in seen:
        return {**footer, **seen}
    judged, total, ended = seen.pop("judged"), footer["rows"], seen.pop("ended")
    if ended and judged != total:
        raise ValueError("it has other rows than its footer says")
    facts: dict[str, Json] = {**seen, **footer}
    if ended:
        del facts["unseen"]
        facts["columns_blank"] = seen["columns_blank"]
        return {**facts, "shapes": {**footer["shapes"], **seen["shapes"]}}
    facts["shapes"] = {**seen["shapes"]}
    for name, kinds in footer["shapes"].items():  # which it says of all rows
        known = seen["shapes"].get(name, {})
        told = kinds if known.keys() <= _NOTHING else {kind: kinds[kind] for kind in kinds.keys() & _NOTHING}
        facts["shapes"][name] = {**told, **known}
    return {**facts, "unseen": f"the first {judged:,} of its {total:,} rows were judged"}


def read_ahead(paths: Iterable[Path]) -> None:
    """Look into files that will be asked for, all at once: most of the time goes to loading pyarrow."""
    keys = {path: _key(path) for path in paths}
    new = {path: key for path, key in keys.items() if store.load(_place(path), key) is None}
    if len(new) > 1 and _can():
        for path, seen in _read([*new]).items():
            store.save(_place(path), new[path], seen)


def _kept(path: Path) -> dict[str, Json]:
    """What was seen of the file as it is now.

    Raises:
        ValueError: its rows are damaged.
    """
    key = _key(path)
    seen: dict[str, Json] = store.load(_place(path), key) or {}
    if not seen and not _can():
        return {"wants": EXTRA}
    if not seen:
        seen = _read([path]).get(path, {})
        if seen:
            store.save(_place(path), key, seen)
    if "damaged" in seen:
        raise ValueError(seen["damaged"])
    return seen


def _can() -> bool:
    return bool(sys.executable) and find_spec("pyarrow") is not None


def _key(path: Path) -> list[int]:
    state = path.stat()
    return [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_dev]


def _place(path: Path) -> str:
    return f"rows-{store.hash_text(os.path.abspath(path)):x}"


def _read(paths: Sequence[Path]) -> dict[Path, dict[str, Json]]:
    """What the other process says of each file, until one is too much for it."""
    import subprocess

    command = [sys.executable, "-P", "-m", "tuneport.experiment.parquet_reader", *map(os.path.abspath, paths)]
    env = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}  # others reserve more than they use
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_WALL, env=env)
    except subprocess.TimeoutExpired as late:
        return _said(paths, late.stdout or b"")
    return _said(paths, done.stdout)


def _said(paths: Sequence[Path], lines: bytes) -> dict[Path, dict[str, Json]]:
    whole = [line for line in lines.splitlines(keepends=True) if line.endswith(b"\n")]
    return {path: json.loads(line) for path, line in zip(paths, whole, strict=False)}
