"""What is plain to see of a folder that `datasets` saved, and of arrays that NumPy did."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tuneport.experiment import tables
from tuneport.types import Json

_HEADER = 64 * 1024
_FIRST = 1_000  # rows that are looked into
_INFO = 4 * 1024 * 1024
_SPLIT = "train"
_DTYPES = {"b": "bool", "i": "number", "u": "number", "f": "number", "U": "text", "S": "text", "O": "record"}
_SHAPE = re.compile(rb"'shape'\s*:\s*\(([0-9, L]*)\)")
_DESCR = re.compile(rb"'descr'\s*:\s*'[<>|=]?([a-zA-Z])")


def folder(path: Path) -> dict[str, Json]:
    """The first rows of a dataset that was saved with `save_to_disk`; nothing of other folders. See
    `tables.read`; `format` is `saved`.

    Sources: datasets/arrow_dataset.py, Dataset.save_to_disk; datasets/dataset_dict.py,
    DatasetDict.save_to_disk.
    """
    if (path / "dataset_dict.json").is_file():
        splits = _json(path / "dataset_dict.json").get("splits")
        if not isinstance(splits, list) or _SPLIT not in splits:
            return {"columns": []}
        path = path / _SPLIT
    if not (path / "state.json").is_file() or not (path / "dataset_info.json").is_file():
        return {}
    state, features = _json(path / "state.json"), _json(path / "dataset_info.json").get("features")
    files = [str(one.get("filename")) for one in state.get("_data_files") or () if isinstance(one, dict)]
    if not isinstance(features, dict) or not files or any(Path(name).name != name for name in files):
        return {}
    if state.get("_indices_data_files"):  # a choice of rows: what the first of them are is not known
        return {"columns": list(features), "format": "saved"}
    records, whole = _records([path / name for name in files])
    facts = {**tables.of_records(records, whole), "columns": list(features), "format": "saved"}
    return {**facts, "rows": len(records)} if whole else facts


def _json(path: Path) -> dict[str, Json]:
    if path.stat().st_size > _INFO:
        return {}
    found = json.loads(path.read_bytes())
    return found if isinstance(found, dict) else {}


def _records(paths: list[Path]) -> tuple[list[dict[str, Json]], bool]:
    """The first rows of files of an Arrow stream, and whether these are all."""
    from nanoarrow import ArrayStream  # late: it is seldom needed

    found: list[dict[str, Json]] = []
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path.name} is missing")
        try:
            with ArrayStream.from_path(path) as stream:
                for row in stream.iter_py():
                    if len(found) == _FIRST:
                        return found, False
                    found.append(row)
        except RuntimeError as error:  # what the library says of damaged files
            raise ValueError(f"{path.name}: {error}") from error
    return found, True


def arrays(path: Path) -> dict[str, Json]:
    """The arrays of a .npz file as columns: rows along their first axis, which is told where all agree.

    Source: numpy/lib/format.py, the header of a .npy file."""
    import zipfile

    columns: list[str] = []
    shapes: dict[str, Json] = {}
    lengths = set()
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist()[:256]:
                with archive.open(name) as stream:
                    header = stream.read(_HEADER)
                column = name.removesuffix(".npy")
                columns.append(column)
                descr, size = _DESCR.search(header), _SHAPE.search(header)
                if not header.startswith(b"\x93NUMPY") or descr is None or size is None:
                    continue
                axes = [int(part.strip(b" L")) for part in size[1].split(b",") if part.strip(b" L")]
                lengths.add(axes[0] if axes else 0)
                kind = "list" if len(axes) > 1 else _DTYPES.get(descr[1].decode(), "record")
                shapes[column] = {kind: 0}
    except zipfile.BadZipFile as error:
        raise ValueError("no archive") from error
    facts: dict[str, Json] = {"columns": columns, "shapes": shapes}
    return {**facts, "rows": lengths.pop()} if len(lengths) == 1 else facts
