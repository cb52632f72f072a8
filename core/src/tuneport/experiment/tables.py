"""What is plain to see of a data file: columns, their types and fields, the number of rows."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from tuneport.experiment.rows import of_records
from tuneport.types import Json

LINES = (".jsonl", ".ndjson")
_PLAIN = (*LINES, ".json", ".csv", ".tsv")  # also compressed, as .jsonl.gz
KINDS = (".parquet", *_PLAIN, ".npz")
SAMPLE = 64 * 1024 * 1024  # bytes up to which a file is read to its end
_PARSED = 1_000  # rows that are looked into
_LINE = 1 << 20  # bytes of a line that are looked at
_DOCUMENT = 16 * 1024 * 1024  # bytes up to which a JSON document is parsed, and a .gz file inflated
_DIGITS = 4_000  # digits up to which an integer is read as one
_KINDS = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list"}
_KINDS |= {type(None): "null"}
# What a CSV reader that infers types (pandas') takes for no value.
_MISSING = {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"}
_MISSING |= {"N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}


def kind(path: Path) -> str:
    """The ending that tells what a file holds: `.jsonl`, also of `rows.jsonl.gz`."""
    endings = path.suffixes[-2:]
    return endings[0] if endings[1:] == [".gz"] and endings[0] in _PLAIN else path.suffix


def read(path: Path) -> dict[str, Json]:
    """`columns`, and as far as it can be told `column_types`, `column_fields` (column of records -> names of
    their fields), `rows`, `data_source_values`, `columns_blank` (columns and `column.field`s that hold
    null, "" or an empty list in every row that was looked at), `shapes` (see `rows.shape`; column,
    `column.field` of records and `column[].field` of lists of records -> shape -> the first row that has it,
    counted from 1, 0 where the file says it for all, or -1 for some), `counts` and `ties` (see `rows`) and
    `constant` (column of true and false or of numbers -> the one value that all rows hold); `unseen`, a
    sentence where not all rows were looked into, and `wants`, what to install so that some are; `broken`,
    the first line that is no record with what it is instead; nothing for kinds that nobody reads and for
    damaged files.

    A folder is read where `datasets` saved it (`save_to_disk`); of several splits, train."""
    import csv

    try:
        if path.is_dir():
            from tuneport.experiment.saved import folder

            return folder(path)
        if path.suffix == ".parquet":
            from tuneport.experiment import parquet, parquet_rows

            return parquet_rows.with_rows(path, parquet.table(path))
        ending = kind(path)
        if ending in _PLAIN:
            stream, long = _opened(path)
            with stream:
                if ending in LINES:
                    return _json_lines(stream, long)
                if ending == ".json":
                    return _json_document(stream, long)
                text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
                return _separated(text, "\t" if ending == ".tsv" else ",", long, path.suffix == ".gz")
        if path.suffix == ".npz":
            from tuneport.experiment.saved import arrays

            return arrays(path)
    except (OSError, ValueError, RecursionError, csv.Error):
        return {}
    return {}


def read_ahead(paths: Iterable[Path]) -> None:
    """Make `read` of several files cost less than as many readings."""
    parquets = [path for path in dict.fromkeys(paths) if path.suffix == ".parquet" and os.path.isfile(path)]
    if len(parquets) > 1:
        from tuneport.experiment import parquet_rows

        with contextlib.suppress(OSError):  # `read` will say so
            parquet_rows.read_ahead(parquets)


def _opened(path: Path) -> tuple[IO[bytes], bool]:
    """A file, and whether it is too long to be read to its end; of a compressed one the beginning."""
    if path.suffix != ".gz":
        return path.open("rb"), path.stat().st_size > SAMPLE
    from tuneport.experiment import compressed

    content, more = compressed.beginning(path, _DOCUMENT)
    if more:  # to the last line that is whole, where there is one
        content = content[: content.rfind(b"\n") + 1] or content
    return io.BytesIO(content), more


def _json_document(stream: IO[bytes], long: bool) -> dict[str, Json]:
    """A list of records, as loaders of JSON take it; lines of JSON may be called .json as well."""
    start = stream.read(_LINE).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    stream.seek(0)
    if start == b"{":
        facts = _json_lines(stream, long)
        # A document over several lines looks like broken lines, and loaders differ in what they make of it.
        unseen = "it is no list of records and no lines of them, so its rows were not looked into"
        return {"columns": [], "unseen": unseen} if "broken" in facts else facts
    if start != b"[":
        return {} if start else {**of_records([], whole=True), "rows": 0}
    text = stream.read(_DOCUMENT + 1)
    if long or len(text) > _DOCUMENT:
        unseen = f"it is larger than {_DOCUMENT >> 20} MiB, so its rows were not looked into"
        return {"columns": [], "unseen": f"{unseen}; lines of JSON (.jsonl) would be"}
    found = _parsed(text.decode("utf-8-sig"))
    for number, row in enumerate(found, 1):
        wrong = _odd(row)
        if wrong:
            return {"broken": (number, wrong)}
    facts = {**of_records(found[:_PARSED], len(found) <= _PARSED), "rows": len(found)}
    return facts if len(found) <= _PARSED else {**facts, "unseen": _first(_PARSED, len(found))}


def _separated(stream: IO[str], delimiter: str, long: bool, cut: bool) -> dict[str, Json]:
    """`cut`: a long one may end within a row."""
    import csv

    seen: list[list[str]] = []
    rows = 0
    csv.field_size_limit(_DOCUMENT)  # loaders have no limit of 128 KiB
    reader = csv.reader(stream, delimiter=delimiter)
    columns = next(reader, [])
    facts: dict[str, Json] = {"columns": columns}
    for row in reader:
        if not row:  # a blank line is none
            continue
        if long and rows == _PARSED:
            break
        rows += 1
        if rows > _PARSED or "broken" in facts:
            continue
        if len(row) > len(columns):
            wrong = f"it has {len(row)} fields, and the first line names {len(columns)} columns"
            facts["broken"] = (reader.line_num, wrong)
        else:
            seen.append(row)
    else:
        if long and cut:
            seen = seen[:-1]
    whole = not long and rows == len(seen)
    facts["shapes"] = {
        name: _inferred([row[at] if at < len(row) else "" for row in seen], whole)
        for at, name in enumerate(columns)
    }
    if not long:
        facts["rows"] = rows
    if not whole and "broken" not in facts:
        facts["unseen"] = _first(len(seen), 0 if long else rows)
    return facts


def _inferred(values: list[str], whole: bool) -> dict[str, int]:
    """The shapes of a column of text, as a reader that infers its type would have them: numbers, or true and
    false, where every value is. Where only the first ones are seen, nobody knows, and nothing is said."""
    given = [value for value in values if value not in _MISSING]
    kind = "text"
    if given and all(value.lower() in ("true", "false") for value in given):
        kind = "bool"
    elif given and all(map(_number, given)):
        kind = "number"
    shapes: dict[str, int] = {}
    for number, value in enumerate(values, 1):
        shapes.setdefault("null" if value in _MISSING else kind, number)
    return shapes if whole or kind == "text" else {name: at for name, at in shapes.items() if name == "null"}


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _json_lines(stream: IO[bytes], long: bool) -> dict[str, Json]:
    sampled: list[Mapping[str, Json]] = []
    rows = taken = 0
    broken: tuple[int, str] | None = None
    looking = True
    for number in itertools.count(1):
        line = stream.readline(_LINE if long else -1)
        taken += len(line)
        if not line or (long and (rows == _PARSED or taken > SAMPLE)):
            break
        if not line.strip():
            continue
        rows += 1
        if not looking or rows > _PARSED:
            continue
        if len(line) >= _LINE:
            looking = False
            if long:
                break
            continue
        record, wrong = _record(line)
        if wrong:
            broken, looking = (number, wrong), False
        else:
            sampled.append(record)
    if broken is not None and not sampled:
        return {"broken": broken}
    if rows and not sampled:
        return {
            "columns": [],
            "unseen": f"its first row is longer than {_LINE >> 20} MiB, so none was looked into",
        }
    whole = not long and rows == len(sampled)
    facts = of_records(sampled, whole)
    if not long:
        facts["rows"] = rows
    if broken is not None:
        facts["broken"] = broken
    elif not whole:
        facts["unseen"] = _first(len(sampled), 0 if long else rows)
    return facts


def _first(judged: int, rows: int) -> str:
    """How many rows were looked into, of how many where that is known."""
    return f"the first {judged:,} of its {f'{rows:,} ' if rows else ''}rows were judged"


class _Twice(dict[str, Json]):
    """A record, itself or inside, with one name more than once."""

    name = ""


def _pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    name = ""
    if len(found) < len(pairs):
        names = [one for one, _ in pairs]
        name = next(one for at, one in enumerate(names) if one in names[:at])
    else:
        inside = (one for value in found.values() for one in (value if type(value) is list else (value,)))
        name = next((one.name for one in inside if type(one) is _Twice), "")
    if not name:
        return found
    twice = _Twice(found)
    twice.name = name
    return twice


def _integer(text: str) -> float | int:
    """Python takes integers of a few thousand digits; readers of rows take longer ones for large numbers."""
    return int(text) if len(text) < _DIGITS else sys.float_info.max


def _parsed(text: str | bytes) -> Json:
    return json.loads(text, object_pairs_hook=_pairs, parse_int=_integer)


def _odd(row: Json) -> str:
    """What is wrong with a row that was parsed."""
    if type(row) is _Twice:
        return f"it says {json.dumps(row.name)} twice"
    if not isinstance(row, dict):
        return f"it holds {_KINDS.get(type(row), 'a value')}, not a record"
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "it holds half of a surrogate pair, which is no character"
    return ""


def _record(line: bytes) -> tuple[Mapping[str, Json], str]:
    """(a row, what the line is instead of one)."""
    try:
        found = _parsed(line)
    except RecursionError:
        return {}, "it is nested too deep"
    except json.JSONDecodeError as error:
        return {}, f"it is no JSON: {error.msg}"
    except UnicodeDecodeError:
        return {}, "it is not UTF-8"
    wrong = _odd(found)
    return ({}, wrong) if wrong else (found, "")


def broken_line(path: Path) -> tuple[int, str]:
    """(the first line of a file of JSON lines that is no record, what it is instead), or (0, "")."""
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            wrong = _record(line)[1] if line.strip() else ""
            if wrong:
                return number, wrong
    return 0, ""
