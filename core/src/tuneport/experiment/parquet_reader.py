"""The process that reads the first rows of Parquet files, with little memory and time to spend.

It is one of its own because pyarrow is C++ that reads what anybody wrote, and may need too much or end; and
it imports next to nothing else, since a command waits for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from tuneport.experiment import rows

_FIRST = 1_000  # rows that are looked into
_BATCH = 50
_MEMORY = 3 << 30  # bytes of addresses, of which the libraries take a half GiB
_CPU = 3  # seconds
_BUFFER = 64 * 1024  # bytes that are read ahead of a column, instead of all of it


def _first(path: str) -> tuple[list[dict[str, Any]], bool]:
    """The first rows of a file, and whether there are no others."""
    from pyarrow import parquet

    found: list[dict[str, Any]] = []
    room = rows.ENOUGH
    odd: set[str] = set()
    with parquet.ParquetFile(path, buffer_size=_BUFFER) as file:
        batches = file.iter_batches(batch_size=_BATCH, use_threads=False)
        ended = True
        for batch in batches:
            if len(found) >= _FIRST or room < 0:
                ended = False
                break
            columns = dict(_columns(batch, odd))
            new = [{name: column[at] for name, column in columns.items()} for at in range(batch.num_rows)]
            room -= sum(map(rows.weight, new))
            found += new
    return [{name: row[name] for name in row if name not in odd} for row in found], ended


def _columns(batch: Any, odd: set[str]) -> Iterator[tuple[str, list[Any]]]:
    """Name and values of each column; one with values that Python has no words for becomes `odd`."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            yield name, column.to_pylist()
        except (ValueError, OverflowError, ImportError):  # such as nanoseconds, or the year 10000
            odd.add(name)


def main(paths: Sequence[str]) -> None:
    """Print a line of JSON for each file: what `rows.of_records` tells of its first rows, how many were
    `judged`, and whether these are all (`ended`); or why it is `damaged`."""
    import resource

    for what, most in ((resource.RLIMIT_AS, _MEMORY), (resource.RLIMIT_CPU, _CPU), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(what)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (least, least))
    sys.modules["numpy"] = None  # type: ignore[assignment]  # pyarrow needs none, and loads in half the time
    from pyarrow import ArrowInvalid

    for path in paths:
        try:
            records, ended = _first(path)
            seen = {**rows.of_records(records, ended), "judged": len(records), "ended": ended}
        except (ArrowInvalid, OSError) as error:
            seen = {"damaged": str(error)}
        sys.stdout.write(f"{json.dumps(seen)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
