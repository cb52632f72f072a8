"""The footer of a Parquet file: columns, their types, the number of rows. Pages are never read.

The footer is one structure in Thrift's compact protocol; what is not needed is skipped. Everything is
bounded by the footer's own length, so a damaged file costs no more than a sound one, and one that has more
to say than any sound file is given up.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuneport.types import Json

MAGIC = b"PAR1"
MAX_FOOTER = 16 << 20
_BYTES = 1_500_000  # that are looked at one by one, as those of text are not: some 20,000 chunks of columns
_PHYSICAL = ("bool", "int32", "int64", "int96", "float", "double", "binary", "binary")
_UTF8 = 0


def table(path: Path) -> dict[str, Json]:
    """`columns`, `column_types`, `column_fields` (of records), `rows`, `columns_blank` and `shapes`;
    `data_source_values` where statistics pin them down. Of a footer without end only that it was `unseen`.

    Raises:
        ValueError: not a Parquet file, or its footer is damaged.
    """
    with path.open("rb") as stream:
        stream.seek(0, 2)
        size = stream.tell()
        if size < 12:
            raise ValueError("too short for Parquet")
        stream.seek(size - 8)
        tail = stream.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != MAGIC or not 0 < length <= min(size - 12, MAX_FOOTER):
            raise ValueError("no Parquet footer")
        stream.seek(size - 8 - length)
        footer = stream.read(length)
    try:
        fields = _Reader(footer).struct()
        return _facts(fields)
    except _WithoutEnd:
        return {
            "columns": [],
            "unseen": "its footer is too long, so its rows were not looked into",
        }
    except (LookupError, TypeError, AttributeError, RecursionError, OverflowError, ValueError) as error:
        raise ValueError(f"damaged Parquet footer: {error}") from error


def _facts(fields: dict[int, Any]) -> dict[str, Json]:
    # FileMetaData: 2 schema, 3 rows, 4 row groups. SchemaElement: 1 type, 4 name, 5 children,
    # 6 converted type, 10 logical type.
    schema: list[dict[int, Any]] = fields[2]
    types: dict[str, Json] = {}
    inside: dict[str, Json] = {}
    shapes: dict[str, Json] = {}
    position = 1
    for _ in range(schema[0].get(5, 0)):
        element = schema[position]
        name = _name(element)
        types[name] = _type(element)
        if types[name] == "struct":
            below = {_name(schema[child]): child for child in _children(schema, position)}
            inside[name] = list(below)
            shapes |= {
                f"{name}.{field}": {_shape(_type(schema[at]), schema, at): 0} for field, at in below.items()
            }
        shapes[name] = {_shape(types[name], schema, position): 0}
        if shapes[name] == {"list": 0}:
            shapes |= _items(name, schema, position)
        position = _after(schema, position)
    if type(fields[3]) is not int or fields[3] < 0:
        raise ValueError("no number of rows")
    facts: dict[str, Json] = {"columns": list(types), "column_types": types, "rows": fields[3]}
    facts["column_fields"] = inside
    facts["shapes"] = shapes
    blank = _blank(fields.get(4, []), schema, types, inside)
    facts["columns_blank"] = list(blank)
    shapes |= {name: {how: 0} for name, how in blank.items()}
    for name in _with_nulls(fields.get(4, [])) - blank.keys():
        shapes[name]["null"] = -1  # some row
    if fields[3]:
        facts["unseen"] = (
            f"only the types of its columns were judged, not the values of its {fields[3]:,} rows"
        )
    values = _constant(fields.get(4, []), "data_source")
    if values is not None:
        facts["data_source_values"] = values
    return facts


def _name(element: dict[int, Any]) -> str:
    name: str = element[4].decode("utf-8", "replace")
    return name


def _children(schema: list[dict[int, Any]], position: int) -> Iterator[int]:
    """The indexes of the elements right below one."""
    child = position + 1
    for _ in range(schema[position].get(5, 0)):
        yield child
        child = _after(schema, child)


def _type(element: dict[int, Any]) -> str:
    if element.get(5, 0):
        converted = element.get(6)
        logical = element.get(10) or {}
        if converted == 3 or 3 in logical:
            return "list"
        return "map" if converted in (1, 2) or 2 in logical else "struct"
    if element.get(3) == 2:  # repeated: a list without the usual wrapping
        return "list"
    logical = element.get(10) or {}
    if element.get(6) == _UTF8 or 1 in logical:
        return "string"
    return _PHYSICAL[element[1]]


def _item(schema: list[dict[int, Any]], position: int) -> int:
    """Where the item of a list is in the schema: below its usual wrapping, where it has one."""
    at = position
    for _ in range(2):
        below = list(_children(schema, at))
        if len(below) != 1:
            break
        at = below[0]
    return at


def _items(name: str, schema: list[dict[int, Any]], position: int) -> dict[str, Json]:
    """`column[]` and `column[].field` -> the kind of the items of a list, and of their fields."""
    at = _item(schema, position)
    if at == position or schema[at].get(3) == 2:  # a wrapping of a form that is not known
        return {}
    kind = _shape(_type(schema[at]), schema, at)
    found: dict[str, Json] = {f"{name}[]": {kind: 0}}
    if kind == "record":
        for one in _children(schema, at):
            found[f"{name}[].{_name(schema[one])}"] = {_shape(_type(schema[one]), schema, one): 0}
    return found


def _shape(kind: str, schema: list[dict[int, Any]], position: int) -> str:
    """What all values of a column are, in the words of `tables.shape`."""
    if kind in ("list", "map", "struct", "bool", "binary", "string"):
        below = {_name(schema[at]): at for at in _children(schema, _item(schema, position))}
        plain = {"string": "text", "map": "list", "struct": "record", "binary": "record"}
        if kind != "list" or not {"role", "content"} <= below.keys():
            return plain.get(kind, kind)
        said = [schema[below[name]] for name in ("role", "content")]
        return "contents" if any(_counts(element) for element in said) else "messages"
    return "number"


def _counts(element: dict[int, Any]) -> bool:
    """Whether an element holds numbers or truth values; not one that holds nulls alone."""
    plain = not element.get(5, 0) and 11 not in (element.get(10) or {})
    return plain and _type(element) not in ("string", "binary", "list")


def _after(schema: list[dict[int, Any]], position: int) -> int:
    """The index behind a schema element and everything below it."""
    waiting = 1
    while waiting:
        waiting += schema[position].get(5, 0) - 1
        position += 1
    return position


def _constant(groups: list[dict[int, Any]], column: str) -> list[str] | None:
    """The values of a text column where each row group holds a single one, as its statistics show."""
    # RowGroup: 1 column chunks. ColumnChunk: 3 metadata. ColumnMetaData: 3 path, 12 statistics.
    # Statistics: 5 largest, 6 smallest value; 7 and 8 say whether these are exact.
    found: list[str] = []
    for group in groups:
        chunks = [chunk.get(3, {}) for chunk in group[1]]
        named = [chunk for chunk in chunks if chunk.get(3) == [column.encode()]]
        statistics = named[0].get(12, {}) if named else {}
        largest, smallest = statistics.get(5), statistics.get(6)
        exact = statistics.get(7, True) and statistics.get(8, True)
        if not isinstance(largest, bytes) or largest != smallest or not exact or len(largest) >= 64:
            return None
        value = largest.decode("utf-8", "replace")
        if value not in found:
            found.append(value)
    return found or None


def _blank(
    groups: list[dict[int, Any]],
    schema: list[dict[int, Any]],
    types: dict[str, Json],
    inside: dict[str, Json],
) -> dict[str, str]:
    """Columns that are no records, and `column.field`s of those that are, which hold nothing in any row, as
    statistics show -> null or empty: a record's own absence cannot be told from that of its fields, nor null
    from a list without items."""
    # ColumnMetaData: 5 number of values, an empty list counting as one. Statistics: 3 number of nulls.
    # LogicalType: 11 is the type of a column of nulls alone. Chunks come in the order of the schema's leaves.
    nulls = [11 in (element.get(10) or {}) for element in schema[1:] if not element.get(5, 0)]
    full: set[str] = set()
    seen: dict[str, str] = {}
    for group in groups:
        for part, null in zip(group[1], nulls, strict=False):
            chunk = part.get(3, {})
            path = [step.decode("utf-8", "replace") for step in chunk.get(3, [])]
            if not path:  # encrypted
                return {}
            name = ".".join(path[:2]) if path[0] in inside else path[0]
            statistics = chunk.get(12, {})
            missing = null or statistics.get(3) == chunk.get(5)
            empty = types[path[0]] != "list" and statistics.get(5) == statistics.get(6) == b""
            if not missing and not empty:
                full.add(name)
            listed = types[path[0]] == "list" or len(path) > (2 if path[0] in inside else 1)
            seen.setdefault(name, "empty" if empty or listed else "null")
    return {name: how for name, how in seen.items() if name not in full}


def _with_nulls(groups: list[dict[int, Any]]) -> set[str]:
    """Columns of plain values of which statistics count some nulls."""
    found = set()
    for group in groups:
        for part in group[1]:
            chunk = part.get(3, {})
            missing = chunk.get(12, {}).get(3, 0)
            if len(chunk.get(3, [])) == 1 and isinstance(missing, int) and missing > 0:
                found.add(chunk[3][0].decode("utf-8", "replace"))
    return found


class _WithoutEnd(Exception):
    """A footer has more to say than is listened to."""


class _Reader:
    """Thrift's compact protocol: a structure becomes field number -> value."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at, self._left = data, 0, _BYTES

    def struct(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while True:
            head = self._byte()
            if head == 0:
                return fields
            kind, step = head & 15, head >> 4
            number = number + step if step else self._signed()
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind)

    def _value(self, kind: int) -> Any:
        if kind in (1, 2):  # inside a list a truth value is a byte of its own
            return self._byte() == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 7:
            return self._take(8)
        if kind == 8:
            return self._take(self._varint())
        if kind in (9, 10):
            head = self._byte()
            count = head >> 4
            if count == 15:
                count = self._varint()
            return [self._item(head & 15) for _ in range(self._bounded(count))]
        if kind == 11:
            return self._map()
        if kind == 12:
            return self.struct()
        raise ValueError(f"unknown type {kind} in the footer")

    def _item(self, kind: int) -> Any:
        return self.struct() if kind == 12 else self._value(kind)

    def _map(self) -> dict[Any, Any]:
        count = self._bounded(self._varint())
        if not count:
            return {}
        kinds = self._byte()
        pairs = [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(count)]
        return {key: value for key, value in pairs if isinstance(key, bytes | int)}

    def _byte(self) -> int:
        value = self._data[self._at]
        self._at += 1
        self._left -= 1
        if self._left < 0:
            raise _WithoutEnd
        return value

    def _take(self, count: int) -> bytes:
        if count > len(self._data) - self._at:
            raise ValueError("the footer ends early")
        self._at += count
        return self._data[self._at - count : self._at]

    def _bounded(self, count: int) -> int:
        if count > len(self._data) - self._at:
            raise ValueError("the footer ends early")
        return count

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number in the footer is too long")

    def _signed(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
