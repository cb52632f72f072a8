"""What is plain to see of a folder that `datasets` saved, and of arrays that NumPy did."""

from __future__ import annotations

import errno
import json
import re
import sys
from array import array
from pathlib import Path
from typing import IO

from tuneport.experiment import rows
from tuneport.types import Json

_HEADER = 64 * 1024
_FIRST = 1_000  # rows that are looked into
_INFO = 4 * 1024 * 1024
_SPLIT = "train"
_DTYPES = {"b": "bool", "i": "number", "u": "number", "f": "number", "U": "text", "S": "text", "O": "record"}
_SHAPE = re.compile(rb"'shape'\s*:\s*\(([0-9, L]*)\)")
_DESCR = re.compile(rb"'descr'\s*:\s*'([<>|=]?)([a-zA-Z])([0-9]*)")
_CODES = {"1": "b", "2": "h", "4": "i", "8": "q"}  # width of signed integers -> array's code
_LABELS = 1 << 20  # integers of a column that are looked into
_IGNORED = -100  # what a loss over classes leaves out; torch/nn/functional.py, cross_entropy, ignore_index


def folder(path: Path) -> dict[str, Json]:
    """The first rows of a dataset that was saved with `save_to_disk`; nothing of other folders. See
    `tables.read`; `format` is `saved`.

    Sources: datasets/arrow_dataset.py, Dataset.save_to_disk; datasets/dataset_dict.py,
    DatasetDict.save_to_disk.
    """
    if (path / "dataset_dict.json").is_file():
        splits = _json(path / "dataset_dict.json").get("splits")
        if not isinstance(splits, list) or _SPLIT not in splits:
            return {"columns": [], "unseen": "it has no split `train`, so its rows were not looked into"}
        path = path / _SPLIT
    if not (path / "state.json").is_file() or not (path / "dataset_info.json").is_file():
        return {}
    state, features = _json(path / "state.json"), _json(path / "dataset_info.json").get("features")
    files = [str(one.get("filename")) for one in state.get("_data_files") or () if isinstance(one, dict)]
    if not isinstance(features, dict) or not files or any(Path(name).name != name for name in files):
        return {}
    if state.get("_indices_data_files"):  # a choice of rows: what the first of them are is not known
        unseen = "it is a choice of rows that was saved with indices, so its rows were not looked into"
        return {"columns": list(features), "format": "saved", "unseen": unseen}
    try:
        records, whole = _records([path / name for name in files])
    except NotImplementedError:
        unseen = "it has columns of a type that is not read here, so its rows were not looked into"
        return {"columns": list(features), "format": "saved", "unseen": unseen}
    facts = {**rows.of_records(records, whole), "columns": list(features), "format": "saved"}
    if whole:
        return {**facts, "rows": len(records)}
    return {**facts, "unseen": f"the first {len(records):,} of its rows were judged"}


def _json(path: Path) -> dict[str, Json]:
    if path.stat().st_size > _INFO:
        return {}
    found = json.loads(path.read_bytes())
    return found if isinstance(found, dict) else {}


def _records(paths: list[Path]) -> tuple[list[dict[str, Json]], bool]:
    """The first rows of files of an Arrow stream, and whether these are all.

    Raises:
        ValueError: they are damaged. NotImplementedError: the library cannot say what they hold."""
    import warnings

    from nanoarrow import ArrayStream  # late: it is seldom needed

    found: list[dict[str, Json]] = []
    room = rows.ENOUGH
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path.name} is missing")
        try:
            with warnings.catch_warnings(), ArrayStream.from_path(path) as stream:
                warnings.simplefilter("ignore")  # that nanoseconds are lost
                for row in stream.iter_py():
                    if len(found) == _FIRST or room < 0:
                        return found, False
                    found.append(row)
                    room -= rows.weight(row)
        except RuntimeError as error:  # what the library says of damaged files
            kind = NotImplementedError if f"({errno.ENOTSUP})" in str(error) else ValueError
            raise kind(f"{path.name}: {error}") from error
        except (KeyError, OverflowError) as error:
            raise NotImplementedError(f"{path.name}: {error}") from error
    return found, True


def arrays(path: Path) -> dict[str, Json]:
    """The arrays of a .npz file as columns: `rows` along their first axis where all agree, else `lengths`,
    array -> rows. A column of integers is `negative`, too, from the first that counts no class.

    Source: numpy/lib/format.py, the header of a .npy file."""
    import zipfile

    columns: list[str] = []
    shapes: dict[str, dict[str, int]] = {}
    lengths: dict[str, int] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist()[:256]:
                column = name.removesuffix(".npy")
                columns.append(column)
                with archive.open(name) as stream:
                    found = _array(stream)
                if found is not None:
                    shapes[column], lengths[column] = found
    except zipfile.BadZipFile as error:
        raise ValueError("no archive") from error
    facts: dict[str, Json] = {"columns": columns, "shapes": shapes}
    if len(set(lengths.values())) > 1:
        return {**facts, "lengths": lengths}
    return {**facts, "rows": next(iter(lengths.values()))} if lengths else facts


def _array(stream: IO[bytes]) -> tuple[dict[str, int], int] | None:
    """(kinds of value, rows along the first axis) of a .npy file; None where it is none."""
    start = stream.read(_HEADER)
    descr, size = _DESCR.search(start), _SHAPE.search(start)
    if not start.startswith(b"\x93NUMPY") or descr is None or size is None:
        return None
    axes = [int(part.strip(b" L")) for part in size[1].split(b",") if part.strip(b" L")]
    order, letter, width = (part.decode() for part in descr.groups())
    shapes = {"list" if len(axes) > 1 else _DTYPES.get(letter, "record"): 0}
    if len(axes) == 1 and letter == "i" and width in _CODES and axes[0] <= _LABELS:
        # Version 1 counts the header in two bytes, later ones in four.
        begin = 10 + int.from_bytes(start[8:10], "little")
        if start[6] > 1:
            begin = 12 + int.from_bytes(start[8:12], "little")
        values = array(_CODES[width])
        content = start[begin:] + stream.read(axes[0] * int(width))
        values.frombytes(content[: axes[0] * int(width)])
        if (order == ">") != (sys.byteorder == "big") and width != "1":
            values.byteswap()
        negative = next((at for at, value in enumerate(values, 1) if value < 0 and value != _IGNORED), 0)
        if negative:
            shapes["negative"] = negative
    return shapes, axes[0] if axes else 0
