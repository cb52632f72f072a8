"""Scalars in TensorBoard event files, old form (`simple_value`) and new (a tensor of one element)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tuneport.jobs.metrics import wire
from tuneport.jobs.metrics.crc import masked

_LONGEST = 1 << 20
"""A longer record holds images, graphs or histograms; it is passed over unread."""
_NUMBERS = {  # TensorProto dtype -> struct format of one element in tensor_content
    1: "f",
    2: "d",
    3: "i",
    4: "B",
    5: "h",
    6: "b",
    9: "q",
    10: "?",
    17: "H",
    19: "e",
    22: "I",
    23: "Q",
}
_BFLOAT16 = 14


class Scalar(NamedTuple):
    tag: str
    step: int
    time: float
    value: float


def scalars(path: Path, problem: Callable[[str], None]) -> Iterator[Scalar]:
    """Every scalar of an event file in order. A record cut off at the end is one still being written; a
    damaged one is told to `problem` and left out."""
    plugins: dict[str, str] = {}
    for position, data in _records(path, problem):
        try:
            found = list(_event(data, plugins))
        except (ValueError, struct.error) as error:
            problem(f"{path.name}: the record at byte {position} is no event: {error}")
            continue
        yield from found


def _records(path: Path, problem: Callable[[str], None]) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        position = 0
        while len(head := file.read(12)) == 12:
            size, check = struct.unpack("<QI", head)
            if masked(head[:8]) != check:
                # Where the next one begins is not known any more.
                problem(f"{path.name}: damaged at byte {position}; the rest of the file was not read")
                return
            if size > _LONGEST:
                file.seek(size + 4, 1)
            else:
                body = file.read(size + 4)
                if len(body) < size + 4:
                    return
                if masked(body[:size]) == struct.unpack("<I", body[size:])[0]:
                    yield position, body[:size]
                else:
                    problem(f"{path.name}: the record at byte {position} is damaged and was left out")
            position += size + 16


def _event(data: bytes, plugins: dict[str, str]) -> Iterator[Scalar]:
    step, time, summaries = 0, 0.0, []
    for number, kind, value in wire.fields(data):
        if number == 1 and kind == wire.FIXED64 and isinstance(value, bytes):
            time = wire.double(value)
        elif number == 2 and isinstance(value, int):
            step = wire.signed(value)
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, kind, value in wire.fields(summary):
            if number == 1 and kind == wire.BYTES and isinstance(value, bytes):
                found = _value(value, plugins)
                if found is not None:
                    yield Scalar(found[0], step, time, found[1])


def _value(data: bytes, plugins: dict[str, str]) -> tuple[str, float] | None:
    tag, simple, tensor = "", None, None
    plugin: str | None = None
    for number, kind, value in wire.fields(data):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            tag = value.decode(errors="replace")
        elif number == 2 and kind == wire.FIXED32:
            simple = wire.single(value)
        elif number == 8:
            tensor = value
        elif number == 9:
            plugin = _plugin(value)
    if plugin is not None:
        plugins[tag] = plugin  # said once per tag and file
    if simple is not None:
        return tag, simple
    if tensor is None or plugins.get(tag, "scalars") not in ("scalars", ""):
        return None
    number_in_tensor = _only_element(tensor)
    return None if number_in_tensor is None else (tag, number_in_tensor)


def _plugin(metadata: bytes) -> str:
    for number, _, value in wire.fields(metadata):
        if number == 1 and isinstance(value, bytes):
            for inner, _, name in wire.fields(value):
                if inner == 1 and isinstance(name, bytes):
                    return name.decode(errors="replace")
    return ""


def _only_element(tensor: bytes) -> float | None:
    """The number in a tensor of one element; None for any other tensor."""
    kind, size, content = 0, 1, b""
    listed: list[float] = []
    for number, wire_type, value in wire.fields(tensor):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2 and isinstance(value, bytes):
            size = _elements(value)
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number in (5, 6):
            listed.extend(_floats(value, "f" if number == 5 else "d"))
        elif number in (7, 10, 11, 13, 16, 17):
            whole = wire.packed(value) if isinstance(value, bytes) and wire_type == wire.BYTES else [value]
            listed.extend(_whole(item, number, kind) for item in whole if isinstance(item, int))
    if size != 1:
        return None
    if content:
        if kind == _BFLOAT16 and len(content) == 2:
            return wire.single(b"\0\0" + content)
        form = _NUMBERS.get(kind)
        return float(struct.unpack(f"<{form}", content)[0]) if form else None
    if listed:
        return listed[0]
    # A zero may be left out altogether.
    return 0.0 if kind in _NUMBERS or kind == _BFLOAT16 else None


def _elements(shape: bytes) -> int:
    count = 1
    for number, _, dimension in wire.fields(shape):
        if number == 2 and isinstance(dimension, bytes):
            sizes = [
                value for inner, _, value in wire.fields(dimension) if inner == 1 and isinstance(value, int)
            ]
            count *= wire.signed(sizes[0]) if sizes else 0
    return count


def _floats(value: int | bytes, form: str) -> list[float]:
    if isinstance(value, int):
        raise ValueError("a number where floats belong")
    return list(struct.unpack(f"<{len(value) // struct.calcsize(form)}{form}", value))


def _whole(value: int, field: int, kind: int) -> float:
    if field == 13:  # 16-bit floats travel as whole numbers
        raw = (value & 0xFFFF).to_bytes(2, "little")
        half: float = wire.single(b"\0\0" + raw) if kind == _BFLOAT16 else struct.unpack("<e", raw)[0]
        return half
    return float(value if field in (16, 17) else wire.signed(value))
