"""What is plain to see of a data file: columns, their types and fields, the number of rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tuneport.types import Json

LINES = (".jsonl", ".ndjson")
KINDS = (".parquet", *LINES, ".csv", ".tsv")
SAMPLE = 64 * 1024 * 1024  # bytes up to which a file is read to its end
_PARSED = 1_000  # rows of JSON lines that are looked into
_LINE = 1 << 20  # bytes of a line that are looked at
_TYPES = {str: "string", bool: "bool", int: "int64", float: "double", list: "list", dict: "struct"}


def read(path: Path) -> dict[str, Json]:
    """`columns`, and as far as it can be told `column_types`, `column_fields` (column of records -> names of
    their fields), `rows`, `data_source_values`, `columns_blank` (columns and `column.field`s that hold
    null, "" or an empty list in every row that was looked at) and `shapes` (see `shape`; column -> shape ->
    the first row that has it, counted from 1, or 0 where the file says it for all); `broken`, the first line
    that is no record with what it is instead; nothing for kinds that nobody reads and damaged files."""
    import csv

    try:
        if path.suffix == ".parquet":
            from tuneport.experiment.parquet import table

            return table(path)
        if path.suffix in LINES:
            return _json_lines(path)
        if path.suffix in (".csv", ".tsv"):
            with path.open(newline="", encoding="utf-8") as stream:
                reader = csv.reader(stream, delimiter="\t" if path.suffix == ".tsv" else ",")
                columns = next(reader, [])
                if path.stat().st_size > SAMPLE:
                    return {"columns": columns}
                return {"columns": columns, "rows": sum(1 for _ in reader)}
    except (OSError, ValueError, RecursionError, csv.Error):
        return {}
    return {}


def _json_lines(path: Path) -> dict[str, Json]:
    with path.open("rb") as stream:
        first = stream.readline(_LINE)
        if len(first) == _LINE:
            return {"columns": []}  # a row too long to be looked into
        record, wrong = _record(first) if first.strip() else ({}, "")
        if wrong:
            return {"broken": (1, wrong)}
        facts: dict[str, Json] = {"columns": sorted(record)}
        facts["column_types"] = {
            name: _TYPES[type(value)] for name, value in record.items() if type(value) in _TYPES
        }
        if path.stat().st_size > SAMPLE:
            return facts
        sampled: list[Mapping[str, Json]] = [record] if first.strip() else []
        rows = len(sampled)
        for number, line in enumerate(stream, 2):
            if line.strip():
                rows += 1
                if rows <= _PARSED and "broken" not in facts:
                    record, wrong = _record(line)
                    if wrong:
                        facts["broken"] = (number, wrong)
                    else:
                        sampled.append(record)
        facts["rows"] = rows
        sources = [row["data_source"] for row in sampled if isinstance(row.get("data_source"), str)]
        if sources:  # of the first rows alone in a long file: one that is wrong there is wrong
            facts["data_source_values"] = list(dict.fromkeys(sources))
        facts["columns_blank"] = _blank(sampled)
        facts["shapes"] = _shapes(sampled)
        if rows == len(sampled):
            facts["column_fields"] = _fields(sampled)
        return facts


def _record(line: bytes) -> tuple[Mapping[str, Json], str]:
    """(a row, what the line is instead of one)."""
    try:
        found = json.loads(line)
    except RecursionError:
        return {}, "it is nested too deep"
    except ValueError as error:
        return {}, f"it is no JSON: {getattr(error, 'msg', 'not UTF-8')}"
    return (
        (found, "") if isinstance(found, dict) else ({}, f"it holds a {type(found).__name__}, not a record")
    )


def broken_line(path: Path) -> tuple[int, str]:
    """(the first line of a file of JSON lines that is no record, what it is instead), or (0, "")."""
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            wrong = _record(line)[1] if line.strip() else ""
            if wrong:
                return number, wrong
    return 0, ""


def _blank(records: list[Mapping[str, Json]]) -> list[str]:
    """Columns, and `column.field`s, that hold nothing in any of the records."""
    full: set[str] = set()
    names: dict[str, None] = {}
    for record in records:
        inner = {
            f"{name}.{field}": item
            for name, value in record.items()
            if isinstance(value, dict)
            for field, item in value.items()
        }
        for name, value in (*record.items(), *inner.items()):
            names[name] = None
            if value is not None and value not in ("", [], {}):
                full.add(name)
    return [name for name in names if name not in full]


def shape(value: Json) -> str:
    """What a value is to whoever learns from it: text, messages (a list of records with a role and content),
    bool, number, list or record; null, or empty for "" and a list without items."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, dict):
        return "record"
    if not value:
        return "empty"
    if isinstance(value, str):
        return "text"
    turns = all(isinstance(turn, dict) and {"role", "content"} <= turn.keys() for turn in value)
    return "messages" if turns else "list"


def _shapes(records: list[Mapping[str, Json]]) -> dict[str, Json]:
    """Column -> shape -> the first row that has it; `absent` where a row lacks a column that others have."""
    names = dict.fromkeys(name for record in records for name in record)
    found: dict[str, dict[str, int]] = {name: {} for name in names}
    for number, record in enumerate(records, 1):
        for name, shapes in found.items():
            shapes.setdefault(shape(record[name]) if name in record else "absent", number)
    return found


def _fields(records: list[Mapping[str, Json]]) -> dict[str, Json]:
    """Column -> the fields that its records have in any row."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for name, value in record.items():
            if isinstance(value, dict):
                found.setdefault(name, {}).update(dict.fromkeys(value))
    return {name: list(fields) for name, fields in found.items()}
