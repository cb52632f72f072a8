"""CRC-32C (Castagnoli) in plain Python, two bytes at a time, and the mask that TFRecord files put on it."""

from __future__ import annotations

import array
import sys
from functools import cache

_POLYNOMIAL = 0x82F63B78


@cache
def _table() -> list[int]:
    """What two further bytes do to a checksum, for all their values."""
    single = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        single.append(value)
    first = [single[value] for value in range(256)]
    return [first[step & 0xFF] ^ (step >> 8) for step in (_pair(value, first) for value in range(65536))]


def _pair(value: int, single: list[int]) -> int:
    return single[value & 0xFF] ^ (value >> 8)


def crc32c(data: bytes) -> int:
    table, crc = _table(), 0xFFFFFFFF
    even = len(data) & ~1
    words = array.array("H", data[:even])
    if sys.byteorder == "big":
        words.byteswap()
    for word in words:
        crc = table[(crc ^ word) & 0xFFFF] ^ (crc >> 16)
    if even < len(data):
        rest = (crc ^ data[-1]) & 0xFF
        for _ in range(8):
            rest = (rest >> 1) ^ (_POLYNOMIAL if rest & 1 else 0)
        crc = rest ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    """The checksum as it stands in the file: turned by 15 bits, plus a constant."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
