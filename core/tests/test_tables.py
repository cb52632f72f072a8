"""What is seen of a data file: of lines of JSON the first rows, of every kind no more than is there."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tuneport.experiment import compressed, rows, tables


def lines(path: Path, rows: list[Any]) -> dict[str, Any]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return tables.read(path)


def test_columns_fields_and_sources_of_json_lines(tmp_path: Path) -> None:
    rows = [
        {"data_source": "a", "reward_model": {"style": "rule"}, "n": 1, "tags": ["x"]},
        {"data_source": "b", "reward_model": {"ground_truth": "1"}, "n": 2, "tags": []},
        {"data_source": "a", "reward_model": None, "n": 3, "tags": None},
    ]
    assert lines(tmp_path / "a.jsonl", rows) == {
        "columns": ["data_source", "n", "reward_model", "tags"],
        "column_types": {"data_source": "string", "reward_model": "struct", "n": "int64", "tags": "list"},
        "column_fields": {"reward_model": ["style", "ground_truth"]},
        "data_source_values": ["a", "b"],
        "columns_blank": [],
        "shapes": {
            "data_source": {"text": 1},
            "reward_model": {"record": 1, "null": 3},
            "n": {"number": 1},
            "tags": {"list": 1, "empty": 2, "null": 3},
            "tags[]": {"text": 1},
            "reward_model.style": {"text": 1, "absent": 2},
            "reward_model.ground_truth": {"absent": 1, "text": 2},
        },
        "rows": 3,
    }


def test_shapes_tell_text_from_messages_and_where_each_begins(tmp_path: Path) -> None:
    turn = {"role": "user", "content": "x"}
    rows = [{"a": "x", "b": [turn]}, {"a": [turn], "b": [{"from": "x"}]}, {"b": True}, {"a": "", "b": 1.5}]
    assert lines(tmp_path / "a.jsonl", rows)["shapes"] == {
        "a": {"text": 1, "messages": 2, "absent": 3, "empty": 4},
        "b": {"messages": 1, "list": 2, "bool": 3, "number": 4},
        "b[]": {"record": 2},
        "b[].from": {"text": 2},
    }


def test_columns_that_hold_nothing(tmp_path: Path) -> None:
    rows = [
        {"a": None, "b": [], "c": {"x": "", "y": 0}, "d": ""},
        {"a": None, "b": [], "c": {"x": ""}, "d": "1"},
    ]
    assert lines(tmp_path / "a.jsonl", rows)["columns_blank"] == ["a", "b", "c.x"]


def test_the_first_broken_line_is_found(tmp_path: Path) -> None:
    for text, line in [
        ('{}\n\n{"a"\n', 3),
        ("{}\n[1]\n", 2),
        ('{"a": "\u2028"}\n', 0),
        ("", 0),
        ("[" * 100_000, 1),
    ]:
        (tmp_path / "a.jsonl").write_text(text, "utf-8")
        assert tables.broken_line(tmp_path / "a.jsonl")[0] == line
    (tmp_path / "a.jsonl").write_bytes(b"{}\n\xff\xfe\n")
    assert tables.broken_line(tmp_path / "a.jsonl")[0] == 2


def test_of_a_long_file_only_what_is_certain(tmp_path: Path) -> None:
    """A field may first appear behind the rows that are looked into; a source that was seen is there."""
    rows = [{"data_source": "a", "reward_model": {"style": "rule"}} for _ in range(3000)]
    found = lines(tmp_path / "a.jsonl", [*rows, {"data_source": "b", "reward_model": {"ground_truth": "1"}}])
    assert found["rows"] == 3001
    assert found["data_source_values"] == ["a"]
    assert "column_fields" not in found
    assert found["unseen"] == "the first 1,000 of its 3,001 rows were judged"


def test_of_a_file_that_is_not_read_to_its_end_the_first_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "SAMPLE", 1000)
    monkeypatch.setattr(tables, "_PARSED", 10)
    found = lines(tmp_path / "a.jsonl", [{"a": "x"}] * 200 + [{"a": 1}])
    assert "rows" not in found and found["shapes"] == {"a": {"text": 1}}
    assert found["unseen"] == "the first 10 of its rows were judged"
    (tmp_path / "a.csv").write_text("a,n\n" + "x,1\n" * 400)
    found = tables.read(tmp_path / "a.csv")
    assert "rows" not in found and found["unseen"] == "the first 10 of its rows were judged"
    assert found["shapes"] == {"a": {"text": 1}, "n": {}}  # all numbers so far is not yet a column of numbers


def test_lists_of_records_are_counted_and_told_apart(tmp_path: Path) -> None:
    records = [
        {"c": [{"r": 0}, {"r": 1}]},
        {"c": [{"r": 2}, {"r": 2}, {"r": 2}]},
        {"c": [{"r": 0}, {"s": 1}]},
    ]
    found = lines(tmp_path / "a.jsonl", records)
    assert found["counts"] == {"c": {2: 1, 3: 2}} and found["ties"] == {"c[].r": 2}
    assert found["shapes"]["c[].r"] == {"number": 1, "absent": 3}


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("x", "messages"),
        (None, "contents"),
        (1, "contents"),
        ([{"type": "text"}], "messages"),
        ([1], "contents"),
    ],
)
def test_what_a_message_says_is_text_or_parts(content: Any, kind: str) -> None:
    assert rows.shape([{"role": "user", "content": content}]) == kind
    assert rows.shape([{"role": "user", "content": None, "tool_calls": [{}]}]) == "messages"
    assert rows.shape([{"role": 1, "content": "x"}]) == "contents"


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        (b'{"a": 1, "a": 2}', 'it says "a" twice'),
        (b'{"a": [{"b": 1, "b": 2}]}', 'it says "b" twice'),
        (b'{"a": "\\ud800"}', "it holds half of a surrogate pair, which is no character"),
        (b'{"\\udc00": 1}', "it holds half of a surrogate pair, which is no character"),
        (b'{"a": "\\ud83d\\ude00"}', ""),
        (b'{"a": ' + b"9" * 5000 + b"}", ""),
        (b'{"a": "\xff"}', "it is not UTF-8"),
    ],
)
def test_rows_that_readers_of_json_refuse(tmp_path: Path, line: bytes, wrong: str) -> None:
    """As pyarrow.json.read_json takes and refuses them; long integers are large numbers there."""
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n' + line + b"\n")
    assert tables.read(tmp_path / "a.jsonl").get("broken", (2, "")) == (2, wrong)
    if b"\xff" not in line:
        (tmp_path / "a.json").write_bytes(b'[{"a": 1},\n' + line + b"]")
        assert tables.read(tmp_path / "a.json").get("broken", (2, "")) == (2, wrong)


def test_more_fields_than_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,b\n"1\n2",x\n1,2,3\n1\n')
    found = tables.read(tmp_path / "a.csv")
    assert found["broken"] == (4, "it has 3 fields, and the first line names 2 columns")
    (tmp_path / "a.csv").write_text("a,b\n1\n")
    assert tables.read(tmp_path / "a.csv")["shapes"] == {"a": {"number": 1}, "b": {"null": 1}}


NOTHING = {"columns": [], "column_types": {}, "column_fields": {}, "columns_blank": [], "shapes": {}}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {**NOTHING, "rows": 0}),
        ("[1]\n", {"broken": (1, "it holds a list, not a record")}),
        (
            '{"a": 1}\n\n{broken\n[2]\n',
            {
                "columns": ["a"], "column_types": {"a": "int64"}, "rows": 3,
                "columns_blank": [], "shapes": {"a": {"number": 1}},
                "broken": (3, "it is no JSON: Expecting property name enclosed in double quotes"),
            },
        ),
        ('{"a"', {"broken": (1, "it is no JSON: Expecting ':' delimiter")}),
        ("[" * 100_000, {"broken": (1, "it is nested too deep")}),
        (
            '{"a": "' + "x" * (1 << 20) + '"}\n',
            {
                "columns": [],
                "unseen": "its first row is longer than 1 MiB, so none was looked into",
            },
        ),
    ],
)  # fmt: skip
def test_odd_lines(tmp_path: Path, text: str, found: dict[str, Any]) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    assert tables.read(tmp_path / "a.jsonl") == found


def test_kinds(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n\n3,4\n")
    shapes = {"a": {"number": 1}, "b": {"number": 1}}
    assert tables.read(tmp_path / "a.csv") == {"columns": ["a", "b"], "rows": 2, "shapes": shapes}
    for name in ("a.txt", "gone.jsonl", "gone.parquet", "gone.json", "gone.npz"):
        assert tables.read(tmp_path / name) == {}
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe\n")
    assert tables.read(tmp_path / "b.jsonl") == {"broken": (1, "it is not UTF-8")}


def test_values_between_separators_are_what_a_reader_makes_of_them(tmp_path: Path) -> None:
    """Numbers and truth values where a whole column is, and null for what stands for nothing."""
    (tmp_path / "a.tsv").write_text("n\tb\tt\ts\n1\tTrue\tx\t1\n2.5\tfalse\tNA\t\n\t\t\ty\n")
    assert tables.read(tmp_path / "a.tsv")["shapes"] == {
        "n": {"number": 1, "null": 3},
        "b": {"bool": 1, "null": 3},
        "t": {"text": 1, "null": 2},
        "s": {"text": 1, "null": 2},
    }


def test_a_document_of_records_is_read_as_lines_of_them_are(tmp_path: Path) -> None:
    rows = [{"a": "x", "n": 1}, {"a": "y", "n": 1}]
    expected = lines(tmp_path / "a.jsonl", rows)
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=1))
    assert tables.read(tmp_path / "a.json") == expected and expected["constant"] == {"n": 1}
    (tmp_path / "a.json").write_text((tmp_path / "a.jsonl").read_text())
    assert tables.read(tmp_path / "a.json") == expected


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            '{"data": [\n{"a": 1}]}',
            {
                "columns": [],
                "unseen": "it is no list of records and no lines of them, so its rows were not looked into",
            },
        ),
        ('[{"a": 1}, 2]', {"broken": (2, "it holds a number, not a record")}),
        ("[{", {}),
        ("[" * 100_000, {}),
        ("", {**NOTHING, "rows": 0}),
        ("[]", {**NOTHING, "rows": 0}),
        ("no", {}),
    ],
)
def test_odd_documents(tmp_path: Path, text: str, found: dict[str, Any]) -> None:
    (tmp_path / "a.json").write_text(text)
    assert tables.read(tmp_path / "a.json") == found


def saved(path: Path, rows: list[dict[str, Any]], **state: Any) -> Path:
    """What `datasets` writes: a stream of Arrow in parts, and two files about it."""
    table = pa.Table.from_pylist(rows)
    path.mkdir(parents=True)
    part = str(path / "data-00000-of-00001.arrow")
    with pa.OSFile(part, "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=2)
    info = {"features": {name: {"dtype": "string", "_type": "Value"} for name in table.column_names}}
    (path / "dataset_info.json").write_text(json.dumps(info))
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], **state}
    (path / "state.json").write_text(json.dumps(state))
    return path


def test_the_rows_of_a_saved_folder(tmp_path: Path) -> None:
    turn = [{"role": "user", "content": "x"}]
    rows = [{"p": turn, "l": True}, {"p": turn, "l": None}, {"p": [], "l": True}]
    found = tables.read(saved(tmp_path / "one", rows))
    assert found["rows"] == 3 and found["columns"] == ["p", "l"] and found["format"] == "saved"
    assert found["shapes"] == {"p": {"messages": 1, "empty": 3}, "l": {"bool": 1, "null": 2}}
    saved(tmp_path / "many/train", rows)
    (tmp_path / "many/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert tables.read(tmp_path / "many") == found
    (tmp_path / "many/dataset_dict.json").write_text('{"splits": ["test"]}')
    lacks = "it has no split `train`, so its rows were not looked into"
    assert tables.read(tmp_path / "many") == {"columns": [], "unseen": lacks}
    chosen = saved(tmp_path / "chosen", rows, _indices_data_files=[{"filename": "indices.arrow"}])
    unseen = "it is a choice of rows that was saved with indices, so its rows were not looked into"
    assert tables.read(chosen) == {"columns": ["p", "l"], "format": "saved", "unseen": unseen}
    long = tables.read(saved(tmp_path / "long", [{"t": str(n)} for n in range(1001)]))
    assert "rows" not in long and long["shapes"] == {"t": {"text": 1}}
    assert long["unseen"] == "the first 1,000 of its rows were judged"


@pytest.mark.parametrize("what", ["cut", "empty", "gone", "state", "outside", "no features"])
def test_damaged_folders_tell_nothing(tmp_path: Path, what: str) -> None:
    path = saved(tmp_path / "d", [{"t": "x"}])
    part = path / "data-00000-of-00001.arrow"
    if what == "cut":
        part.write_bytes(part.read_bytes()[:200])
    elif what == "empty":
        part.write_bytes(b"")
    elif what == "gone":
        part.unlink()
    elif what == "state":
        (path / "state.json").write_text("[" * 100_000)
    elif what == "outside":
        part.rename(tmp_path / part.name)
        (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": f"../{part.name}"}]}))
    else:
        (path / "dataset_info.json").write_text("{}")
    assert tables.read(path) == {}


def test_rows_that_share_no_column_are_looked_at_in_passing(tmp_path: Path) -> None:
    rows = [{f"{row}-{column}": 1 for column in range(60)} for row in range(50)]
    assert lines(tmp_path / "a.jsonl", rows)["shapes"] == {}


def test_a_folder_of_something_else_tells_nothing(tmp_path: Path) -> None:
    assert tables.read(tmp_path) == {}


def test_arrays(tmp_path: Path) -> None:
    images, labels = np.zeros((5, 8, 8), "float32"), np.arange(5)
    np.savez(tmp_path / "a.npz", images=images, labels=labels)
    assert tables.read(tmp_path / "a.npz") == {
        "columns": ["images", "labels"],
        "shapes": {"images": {"list": 0}, "labels": {"number": 0}},
        "rows": 5,
    }
    np.savez_compressed(tmp_path / "b.npz", images=images, labels=np.array(["a", "b"]))
    found = tables.read(tmp_path / "b.npz")
    assert found["shapes"] == {"images": {"list": 0}, "labels": {"text": 0}} and "rows" not in found
    assert found["lengths"] == {"images": 5, "labels": 2}
    for dtype in ("int8", "<i2", ">i4", "int64"):
        np.savez(tmp_path / "a.npz", images=images, labels=np.array([0, -100, 3, -1, 2], dtype))
        assert tables.read(tmp_path / "a.npz")["shapes"]["labels"] == {"number": 0, "negative": 4}
    (tmp_path / "c.npz").write_bytes(b"PK")
    assert tables.read(tmp_path / "c.npz") == {}


def test_json_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(b"\xef\xbb\xbf" + b'[{"text": "a"}]')
    assert tables.read(path)["rows"] == 1


CONTENT = {
    ".jsonl": b'{"a": "x", "n": 1}\n{"a": null, "n": 2}\n',
    ".json": b'[{"a": "x"}, {"a": 1}]',
    ".csv": b"a,b\n1,x\n,y\n",
}


@pytest.mark.parametrize("ending", CONTENT)
def test_compressed_files_tell_what_others_do(tmp_path: Path, ending: str) -> None:
    plain, packed = tmp_path / f"a{ending}", tmp_path / f"a{ending}.gz"
    plain.write_bytes(CONTENT[ending])
    expected = tables.read(plain)
    assert expected["rows"] == 2
    # Also in parts, as parallel compressors write them, and padded.
    halves = CONTENT[ending][:11], CONTENT[ending][11:]
    for content in (gzip.compress(CONTENT[ending]), b"".join(map(gzip.compress, halves)) + bytes(100)):
        packed.write_bytes(content)
        assert tables.read(packed) == expected
    for damaged in (content[:-108], content[:30], content[:5] + b"x" + content[6:30], CONTENT[ending], b""):
        packed.write_bytes(damaged)
        assert tables.read(packed) == {}


def test_of_a_long_compressed_file_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_DOCUMENT", 1 << 20)
    row = b'{"t": "' + b"x" * 10_000 + b'"}\n'
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(row * 200, 1))
    found = tables.read(tmp_path / "a.jsonl.gz")
    assert found["unseen"] == "the first 104 of its rows were judged" and "rows" not in found
    assert found["shapes"] == {"t": {"text": 1}}
    # It may end in quotes, behind a line that looks like a row without its last column.
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b't,n\n"' + (b"x" * 9_900 + b'\ny",a\n"') * 200, 1))
    found = tables.read(tmp_path / "a.csv.gz")
    assert found["shapes"] == {"t": {"text": 1}, "n": {"text": 1}}
    assert found["unseen"] == "the first 104 of its rows were judged" and "rows" not in found
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b"[" + row * 200, 1))
    assert "it is larger than 1 MiB" in tables.read(tmp_path / "a.json.gz")["unseen"]


def test_what_inflates_without_end_costs_no_more(tmp_path: Path) -> None:
    """A GiB of one line, and parts that hold nothing: what is asked for is all that is made of them."""
    for content in (gzip.compress(bytes(1 << 24), 1) * 64, gzip.compress(b"") * 500_000):
        (tmp_path / "a.gz").write_bytes(content)
        found, more = compressed.beginning(tmp_path / "a.gz", 1 << 20)
        assert len(found) <= 1 << 20 and more
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"x" * (1 << 24), 1) * 2)
    assert tables.read(tmp_path / "a.jsonl.gz") == {
        "columns": [],
        "unseen": "its first row is longer than 1 MiB, so none was looked into",
    }


@pytest.mark.parametrize(
    ("column", "shapes"),
    [
        (pa.array([1, None], pa.timestamp("ns")), {"number": 1, "null": 2}),
        (pa.array([Decimal("1.5"), None]), {"number": 1, "null": 2}),
        (pa.array([b"x", b""]), {"record": 1}),
        (pa.array([10**12, 1], pa.timestamp("s")), None),
        (pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())), None),
        (pa.array(["a", "b"], pa.string_view()), None),
    ],
)
def test_values_of_every_type_in_a_saved_folder(tmp_path: Path, column: Any, shapes: Any) -> None:
    table = pa.table({"c": column})
    path = saved(tmp_path / "d", [{"c": "x"}])
    part = str(path / "data-00000-of-00001.arrow")
    with pa.OSFile(part, "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    found = tables.read(path)
    assert found["columns"] == ["c"]
    if shapes is None:
        assert "of a type that is not read here" in found["unseen"]
    else:
        assert found["shapes"] == {"c": shapes} and found["rows"] == 2


def test_of_long_rows_fewer_are_looked_into(tmp_path: Path) -> None:
    found = tables.read(saved(tmp_path / "d", [{"t": "x" * 100_000}] * 200))
    assert found["unseen"] == "the first 168 of its rows were judged" and "rows" not in found


def test_a_cell_of_a_csv_may_be_as_long_as_loaders_take_it(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text(f"prompt,answer\n{'x' * 200_000},1\n", "utf-8")
    found = tables.read(path)
    assert (found["columns"], found["rows"], found["shapes"]["prompt"]) == (
        ["prompt", "answer"],
        1,
        {"text": 1},
    )
