"""What is seen of a data file: of lines of JSON the first rows, of every kind no more than is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tuneport.experiment import tables


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
        },
        "rows": 3,
    }


def test_shapes_tell_text_from_messages_and_where_each_begins(tmp_path: Path) -> None:
    turn = {"role": "user", "content": "x"}
    rows = [{"a": "x", "b": [turn]}, {"a": [turn], "b": [{"from": "x"}]}, {"b": True}, {"a": "", "b": 1.5}]
    assert lines(tmp_path / "a.jsonl", rows)["shapes"] == {
        "a": {"text": 1, "messages": 2, "absent": 3, "empty": 4},
        "b": {"messages": 1, "list": 2, "bool": 3, "number": 4},
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
        ('{"a": "' + "x" * (1 << 20) + '"}\n', {"columns": []}),
    ],
)  # fmt: skip
def test_odd_lines(tmp_path: Path, text: str, found: dict[str, Any]) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    assert tables.read(tmp_path / "a.jsonl") == found


def test_kinds(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n")
    assert tables.read(tmp_path / "a.csv") == {"columns": ["a", "b"], "rows": 2}
    for name in ("a.txt", "gone.jsonl", "gone.parquet"):
        assert tables.read(tmp_path / name) == {}
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe\n")
    assert tables.read(tmp_path / "b.jsonl") == {"broken": (1, "it is no JSON: not UTF-8")}
