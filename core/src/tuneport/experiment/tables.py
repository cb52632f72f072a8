"""What is plain to see of a data file: columns, their types and fields, the number of rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tuneport.types import Json

LINES = (".jsonl", ".ndjson")
KINDS = (".parquet", *LINES, ".json", ".csv", ".tsv", ".npz")
SAMPLE = 64 * 1024 * 1024  # bytes up to which a file is read to its end
_PARSED = 1_000  # rows that are looked into
_LINE = 1 << 20  # bytes of a line that are looked at
_COLUMNS = 2_000  # columns and fields beyond which no table is meant
_DOCUMENT = 16 * 1024 * 1024  # bytes up to which a JSON document is parsed
_TYPES = {str: "string", bool: "bool", int: "int64", float: "double", list: "list", dict: "struct"}
# What a CSV reader that infers types (pandas') takes for no value.
_MISSING = {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"}
_MISSING |= {"N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}


def read(path: Path) -> dict[str, Json]:
    """`columns`, and as far as it can be told `column_types`, `column_fields` (column of records -> names of
    their fields), `rows`, `data_source_values`, `columns_blank` (columns and `column.field`s that hold
    null, "" or an empty list in every row that was looked at), `shapes` (see `shape`; column, and
    `column.field` of records -> shape -> the first row that has it, counted from 1, 0 where the file says it
    for all, or -1 for some) and `constant` (column of true and false or of numbers -> the one value that all
    rows hold); `broken`, the first line that is no record with what it is instead; nothing for kinds that
    nobody reads and damaged files.

    A folder is read where `datasets` saved it (`save_to_disk`); of several splits, train."""
    import csv

    try:
        if path.is_dir():
            from tuneport.experiment.saved import folder

            return folder(path)
        if path.suffix == ".parquet":
            from tuneport.experiment.parquet import table

            return table(path)
        if path.suffix in LINES:
            return _json_lines(path)
        if path.suffix == ".json":
            return _json_document(path)
        if path.suffix in (".csv", ".tsv"):
            return _separated(path, "\t" if path.suffix == ".tsv" else ",")
        if path.suffix == ".npz":
            from tuneport.experiment.saved import arrays

            return arrays(path)
    except (OSError, ValueError, RecursionError, csv.Error):
        return {}
    return {}


def _json_document(path: Path) -> dict[str, Json]:
    """A list of records, as loaders of JSON take it; lines of JSON may be called .json as well."""
    with path.open("rb") as stream:
        start = stream.read(_LINE).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start == b"{":
        facts = _json_lines(path)
        # A document over several lines looks like broken lines, and loaders differ in what they make of it.
        return {"columns": []} if "broken" in facts else facts
    if start != b"[":
        return {} if start else {**of_records([], whole=True), "rows": 0}
    if path.stat().st_size > _DOCUMENT:
        return {"columns": []}
    found = json.loads(path.read_text("utf-8-sig"))
    wrong = next((n for n, row in enumerate(found, 1) if not isinstance(row, dict)), 0)
    if wrong:
        return {"broken": (wrong, f"it holds a {type(found[wrong - 1]).__name__}, not a record")}
    return {**of_records(found[:_PARSED], len(found) <= _PARSED), "rows": len(found)}


def of_records(records: Sequence[Mapping[str, Json]], whole: bool) -> dict[str, Json]:
    """What `read` tells of a table from its first rows, which may be all; not how many there are."""
    facts: dict[str, Json] = {"columns": sorted({name for record in records for name in record})}
    first = records[0] if records else {}
    facts["column_types"] = {
        name: _TYPES[type(value)] for name, value in first.items() if type(value) in _TYPES
    }
    return {**facts, **_seen(records), **(_whole(records) if whole else {})}


def _seen(records: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """What some rows tell; also of a longer table, a source that was seen is there."""
    sources = [row["data_source"] for row in records if isinstance(row.get("data_source"), str)]
    found: dict[str, Json] = {"data_source_values": list(dict.fromkeys(sources))} if sources else {}
    return {**found, "columns_blank": _blank(records), "shapes": _shapes(records)}


def _whole(records: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """What only all rows together tell."""
    constant = {}
    for name in records[0] if len(records) > 1 else ():
        values = {(type(row.get(name)), repr(row.get(name))) for row in records}
        if len(values) == 1 and type(records[0][name]) in (bool, int, float):
            constant[name] = records[0][name]
    found: dict[str, Json] = {"column_fields": _fields(records)}
    return {**found, "constant": constant} if constant else found


def _separated(path: Path, delimiter: str) -> dict[str, Json]:
    import csv

    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.reader(stream, delimiter=delimiter)
        columns = next(reader, [])
        if path.stat().st_size > SAMPLE:
            return {"columns": columns}
        facts: dict[str, Json] = {"columns": columns}
        seen = []
        rows = 0
        for row in reader:
            if row:  # a blank line is none
                rows += 1
                if rows <= _PARSED:
                    seen.append(row)
        shapes = {
            name: _inferred([row[at] if at < len(row) else "" for row in seen], rows == len(seen))
            for at, name in enumerate(columns)
        }
        return {**facts, "rows": rows, "shapes": shapes}


def _inferred(values: list[str], whole: bool) -> dict[str, int]:
    """The shapes of a column of text, as a reader that infers its type would have them: numbers, or true and
    false, where every value is."""
    given = [value for value in values if value not in _MISSING]
    kind = "text"
    if whole and given:
        if all(value.lower() in ("true", "false") for value in given):
            kind = "bool"
        elif all(map(_number, given)):
            kind = "number"
    shapes: dict[str, int] = {}
    for number, value in enumerate(values, 1):
        shapes.setdefault("null" if value in _MISSING else kind, number)
    return shapes


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


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
        facts |= _seen(sampled)
        if rows == len(sampled):
            facts |= _whole(sampled)
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


def _blank(records: Sequence[Mapping[str, Json]]) -> list[str]:
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
    """What a value is to whoever learns from it: text, messages (a list of records with a role and content,
    or calls of tools in its place), bool, number, list or record; null, or empty for "" and a list without
    items."""
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
    turns = all(
        isinstance(turn, dict) and "role" in turn and not turn.keys().isdisjoint(("content", "tool_calls"))
        for turn in value
    )
    return "messages" if turns else "list"


def _shapes(records: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """Column, and field of a column of records -> shape -> the first row that has it; `absent` where a row
    lacks a column that others have, or a record its field."""
    found: dict[str, dict[str, int]] = {name: {} for record in records for name in record}
    inner = {
        (name, field): f"{name}.{field}"
        for record in records
        for name, value in record.items()
        if isinstance(value, dict)
        for field in value
    }
    columns = list(found)
    found |= {dotted: {} for dotted in inner.values() if dotted not in found}
    if len(found) > _COLUMNS:
        return {}
    for number, record in enumerate(records, 1):
        for name in columns:
            found[name].setdefault(shape(record[name]) if name in record else "absent", number)
        for (name, field), dotted in inner.items():
            value = record.get(name)
            if isinstance(value, dict):
                found[dotted].setdefault(shape(value[field]) if field in value else "absent", number)
    return found


def _fields(records: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """Column -> the fields that its records have in any row."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for name, value in record.items():
            if isinstance(value, dict):
                found.setdefault(name, {}).update(dict.fromkeys(value))
    return {name: list(fields) for name, fields in found.items()}
