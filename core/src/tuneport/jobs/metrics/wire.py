"""Reads the protocol buffer wire format: fields by number, without any schema."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

Field: TypeAlias = tuple[int, int, int | bytes]
"""Number, wire type, and a whole number (type 0) or the raw bytes (types 1, 2 and 5)."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def fields(data: bytes) -> Iterator[Field]:
    """The fields in the order they stand.

    Raises:
        ValueError: the bytes are no message.
    """
    position, end = 0, len(data)
    while position < end:
        tag, position = varint(data, position)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("a field has the number 0")
        if kind == VARINT:
            value, position = varint(data, position)
            yield number, kind, value
            continue
        if kind == BYTES:
            size, position = varint(data, position)
        elif kind == FIXED64:
            size = 8
        elif kind == FIXED32:
            size = 4
        else:
            raise ValueError(f"wire type {kind}")
        if position + size > end:
            raise ValueError("a field is longer than its message")
        yield number, kind, data[position : position + size]
        position += size


def varint(data: bytes, position: int) -> tuple[int, int]:
    """A whole number and the position after it."""
    value = shift = 0
    while True:
        try:
            byte = data[position]
        except IndexError:
            raise ValueError("a number is cut off") from None
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def signed(value: int) -> int:
    """A 64-bit number of `varint` as the negative one it may stand for."""
    value &= 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >> 63 else value


def packed(data: bytes) -> list[int]:
    """The whole numbers of a packed repeated field."""
    found, position = [], 0
    while position < len(data):
        value, position = varint(data, position)
        found.append(value)
    return found


def double(data: bytes) -> float:
    value: float = struct.unpack("<d", data)[0]
    return value


def single(data: bytes) -> float:
    value: float = struct.unpack("<f", data)[0]
    return value
