"""What the rows of a table hold: columns, the kind of each value, and where each kind begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it costs a process that reads rows and does nothing else more than all the rest
    from tuneport.types import Json

COLUMNS = 2_000  # columns and fields beyond which no table is meant
ENOUGH = 16 << 20  # bytes, about, of rows after which no more are looked into
_NUMBER = 16  # bytes that a number is counted as, for what it costs
_ITEMS = 64  # items of a list that are looked into
_LENGTHS = 16  # lengths of lists that are told apart
_TYPES = {str: "string", bool: "bool", int: "int64", float: "double", list: "list", dict: "struct"}
_SPOKEN = ("role", "content", "name")


def of_records(records: Sequence[Mapping[str, Json]], whole: bool) -> dict[str, Json]:
    """What `tables.read` tells of a table from its first rows, which may be all; not how many there are."""
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
    return {**found, "columns_blank": _blank(records), **_shapes(records)}


def _whole(records: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """What only all rows together tell."""
    constant = {}
    for name in records[0] if len(records) > 1 else ():
        values = {(type(row.get(name)), repr(row.get(name))) for row in records}
        if len(values) == 1 and type(records[0][name]) in (bool, int, float):
            constant[name] = records[0][name]
    found: dict[str, Json] = {"column_fields": _fields(records)}
    return {**found, "constant": constant} if constant else found


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


def _fields(records: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """Column -> the fields that its records have in any row."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for name, value in record.items():
            if isinstance(value, dict):
                found.setdefault(name, {}).update(dict.fromkeys(value))
    return {name: list(fields) for name, fields in found.items()}


def weight(value: Json) -> int:
    """About how many bytes a value has."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(map(weight, value.values()))
    if not isinstance(value, list | tuple) or not value:
        return _NUMBER
    return _NUMBER * len(value) if isinstance(value[0], int | float) else sum(map(weight, value))


def shape(value: Json) -> str:
    """What a value is to whoever learns from it: text, messages (a list of records with a role and content,
    or calls of tools in its place), contents (messages of which one says neither text nor parts), bool,
    number, list or record; null, or empty for "" and a list without items."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, dict | bytes):
        return "record"
    if not isinstance(value, str | list | tuple):  # a time, or a number of another kind
        return "number"
    if not value:
        return "empty"
    if isinstance(value, str):
        return "text"
    turns = all(
        isinstance(turn, dict) and "role" in turn and not turn.keys().isdisjoint(("content", "tool_calls"))
        for turn in value
    )
    if not turns:
        return "list"
    return "messages" if all(map(_says, value)) else "contents"


def _says(turn: Mapping[str, Json]) -> bool:
    """Whether a message is text or parts, said by somebody; or nothing, where it holds something else."""
    content = turn.get("content")
    if not isinstance(turn["role"], str):
        return False
    if content is None:
        return any(value not in (None, [], "") for name, value in turn.items() if name not in _SPOKEN)
    if isinstance(content, list):
        return all(isinstance(part, dict | str) for part in content)
    return isinstance(content, str)


def _shapes(records: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """`shapes`: column, `column.field` of records, `column[]` of lists that are no messages and
    `column[].field` of lists of records -> shape -> the first row that has it; `absent` where a row lacks a
    column that others have, or a record its field.
    Where there are lists of records: `counts`, column -> number of items -> its first row, and `ties`,
    `column[].field` -> the first row where it is the same in all of several items."""
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
    if len(found) > COLUMNS:
        return {"shapes": {}}
    counts: dict[str, dict[int, int]] = {}
    ties: dict[str, int] = {}
    for number, record in enumerate(records, 1):
        for name in columns:
            kind = shape(record[name]) if name in record else "absent"
            found[name].setdefault(kind, number)
            if kind != "list":
                continue
            items = found.setdefault(f"{name}[]", {})
            for item in record[name][:_ITEMS]:
                items.setdefault(shape(item), number)
            if not all(isinstance(item, dict) for item in record[name][:_ITEMS]):
                continue
            lengths = counts.setdefault(name, {})
            if len(lengths) < _LENGTHS:
                lengths.setdefault(len(record[name]), number)
            for field, values in _by_field(record[name][:_ITEMS]):
                inside = found.setdefault(f"{name}[].{field}", {})
                if len(values) < min(len(record[name]), _ITEMS):
                    inside.setdefault("absent", number)
                for value in values:
                    inside.setdefault(shape(value), number)
                if len(values) > 1 and all(value == values[0] for value in values):
                    ties.setdefault(f"{name}[].{field}", number)
            if len(found) > COLUMNS:
                return {"shapes": {}}
        for (name, field), dotted in inner.items():
            value = record.get(name)
            if isinstance(value, dict):
                found[dotted].setdefault(shape(value[field]) if field in value else "absent", number)
    more: dict[str, Json] = {"counts": counts, "ties": ties} if counts else {}
    return {"shapes": found, **more}


def _by_field(items: Sequence[Mapping[str, Json]]) -> Iterator[tuple[str, list[Json]]]:
    """Each field of some records with the values that it has."""
    for field in dict.fromkeys(field for item in items for field in item):
        yield field, [item[field] for item in items if field in item]
