"""Several streams of lines as one, each line when it comes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence

from tuneport.fleets.protocol import LogLine


def merged(streams: Sequence[Iterator[LogLine]]) -> Iterator[LogLine]:
    """The lines of all streams; those of one keep their order. An error in one is raised here."""
    lines: queue.Queue[LogLine | Exception | None] = queue.Queue(maxsize=1000)

    def pump(stream: Iterator[LogLine]) -> None:
        try:
            for line in stream:
                lines.put(line)
            lines.put(None)
        except Exception as error:
            lines.put(error)

    for stream in streams:
        threading.Thread(target=pump, args=(stream,), daemon=True).start()
    left = len(streams)
    while left:
        line = lines.get()
        if isinstance(line, Exception):
            raise line
        if line is None:
            left -= 1
        else:
            yield line
