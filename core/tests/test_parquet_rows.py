"""The first rows of Parquet files, as pyarrow reads them in a process of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from tuneport.experiment import parquet_rows, tables


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEPORT_CACHE_DIR", str(tmp_path / "cache"))


def written(path: Path, table: pa.Table, **options: Any) -> Path:
    pq.write_table(table, path, **options)
    return path


def never(*_: Any) -> Any:
    raise AssertionError("no process was to be started")


def test_rows_tell_what_those_of_json_lines_do(tmp_path: Path) -> None:
    turn = [{"role": "user", "content": "q"}]
    rows = [
        {"prompt": turn, "n": 1, "same": True, "data_source": "a", "r": {"truth": "1"}},
        {"prompt": turn, "n": None, "same": True, "data_source": "b", "r": {"truth": ""}},
        {"prompt": [], "n": 3, "same": True, "data_source": "a", "r": {"truth": None}},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = tables.read(written(tmp_path / "a.parquet", pa.Table.from_pylist(rows)))
    lines = tables.read(tmp_path / "a.jsonl")
    for name in ("shapes", "columns_blank", "data_source_values", "constant", "rows"):
        assert found[name] == lines[name], name
    assert found["shapes"]["n"] == {"number": 1, "null": 2} and "unseen" not in found


def test_of_a_long_file_the_footer_tells_of_the_rest(tmp_path: Path) -> None:
    late, gap = [None] * 1000 + [1, 2], ["x"] * 1001 + [None]
    table = pa.table({"late": late, "gap": gap, "text": ["y"] * 1002})
    found = tables.read(written(tmp_path / "a.parquet", table, row_group_size=300))
    assert found["unseen"] == "the first 1,000 of its 1,002 rows were judged" and found["rows"] == 1002
    assert found["shapes"] == {
        "late": {"null": 1, "number": 0},
        "gap": {"text": 1, "null": -1},
        "text": {"text": 1},
    }
    assert found["columns_blank"] == []


def test_columns_that_python_has_no_words_for_keep_their_type(tmp_path: Path) -> None:
    far = pa.array([1 << 48, 1], pa.timestamp("s"))
    table = pa.table({"far": far, "bytes": [b"x", b""], "text": ["a", "b"]})
    assert tables.read(written(tmp_path / "a.parquet", table))["shapes"] == {
        "far": {"number": 0},
        "bytes": {"record": 1},
        "text": {"text": 1},
    }


def test_a_file_is_read_once_for_as_long_as_it_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"t": ["a", "b"]})
    files = [written(tmp_path / name, table) for name in ("a.parquet", "b.parquet")]
    tables.read_ahead(files)
    with monkeypatch.context() as patch:
        patch.setattr(parquet_rows, "_read", never)
        assert [tables.read(file)["shapes"] for file in files] == [{"t": {"text": 1}}] * 2
        tables.read_ahead(files)
    written(files[0], pa.table({"t": ["a", None]}))
    assert tables.read(files[0])["shapes"] == {"t": {"text": 1, "null": 2}}


def test_without_the_library_the_footer_is_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "find_spec", lambda name: None)
    monkeypatch.setattr(parquet_rows, "_read", never)
    found = tables.read(written(tmp_path / "a.parquet", pa.table({"t": ["a"]})))
    assert found["wants"] == "tuneport-core[parquet]" and found["shapes"] == {"t": {"text": 0}}
    assert found["unseen"].startswith("only the types of its columns were judged")


def test_damaged_rows_and_a_footer_that_lies_tell_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", pa.table({"t": [f"row {n}" for n in range(300)]}))
    good = path.read_bytes()
    path.write_bytes(good[:4] + os.urandom(400) + good[404:])
    assert tables.read(path) == {}
    # FileMetaData's number of rows, 300, as Thrift writes it; 301 of them are not there.
    footer = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
    at = good.index(bytes([0x16, 0xD8, 0x04]), footer)
    path.write_bytes(good[:at] + bytes([0x16, 0xDA, 0x04]) + good[at + 3 :])
    assert tables.read(path) == {}
    path.write_bytes(good)
    assert tables.read(path)["rows"] == 300


@pytest.mark.parametrize("limit", ["_WALL", "memory"])
def test_what_needs_too_much_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    path = written(tmp_path / "a.parquet", pa.table({"t": ["a"]}))
    if limit == "_WALL":
        monkeypatch.setattr(parquet_rows, "_WALL", 0.01)
    else:  # a process that ends before it says anything
        monkeypatch.setattr(parquet_rows.sys, "executable", "/bin/false")
    found = tables.read(path)
    assert found["shapes"] == {"t": {"text": 0}} and "wants" not in found
    assert found["unseen"].startswith("only the types of its columns were judged")
