"""The beginning of a file that gzip compressed: never more of it than asked for, whatever it claims."""

from __future__ import annotations

import zlib
from pathlib import Path

_GZIP = 31  # zlib's word for the largest window within gzip's frame
_CHUNK = 64 * 1024
_PARTS = 1_000  # frames one after another, as parallel compressors write them; each may hold nothing


def beginning(path: Path, most: int) -> tuple[bytes, bool]:
    """(the first bytes, at most `most` of them and read from as many at most; whether there are others).

    Raises:
        ValueError: it is not of gzip's making, damaged, or ends early.
    """
    found, frame, parts = bytearray(), zlib.decompressobj(_GZIP), 1
    begun = True  # whether a frame has to be there
    with path.open("rb") as stream:
        while rest := stream.read(_CHUNK):
            if stream.tell() > most:
                return bytes(found), True
            while rest := rest if begun else rest.lstrip(b"\0"):  # what follows the last frame may be padding
                begun = True
                try:
                    found += frame.decompress(rest, most + 1 - len(found))
                except zlib.error as error:
                    raise ValueError(f"damaged: {error}") from error
                if len(found) > most or parts > _PARTS:
                    return bytes(found[:most]), True
                rest = frame.unused_data
                if frame.eof:
                    frame, parts, begun = zlib.decompressobj(_GZIP), parts + 1, False
    if begun:
        raise ValueError("it ends early")
    return bytes(found), False
