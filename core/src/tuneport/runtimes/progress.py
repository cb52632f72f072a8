"""Turns an installer's output into one short, moving line."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque

_DOWNLOAD = re.compile(r"\s*Downloading (\S+)(?: \(([^)]*)\))?")
_COLLECT = re.compile(r"\s*(?:Collecting|Processing) (\S+)")
_UNPACK = re.compile(r"Installing collected packages: (.*)")
_EVERY = 15.0  # seconds between lines where nothing can be redrawn


class Progress:
    """Feed it lines with `line` and time with `tick`; it writes to stderr."""

    def __init__(self) -> None:
        self.started = self.spoken = time.monotonic()
        self.packages: set[str] = set()
        self.tail: deque[str] = deque(maxlen=15)
        self.doing = "starting"
        self.said = ""
        self.live = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def line(self, text: str) -> None:
        """One line of the installer's output."""
        text = text.rstrip()
        if not text:
            return
        self.tail.append(text)
        if found := _COLLECT.match(text):
            self.packages.add(re.split(r"[=<>!~\[ ;@]", found[1])[0].lower())
            self.doing = f"resolving {found[1]}"
        elif found := _DOWNLOAD.match(text):
            name = found[1].rsplit("/", 1)[-1]
            self.doing = f"downloading {name}" + (f" ({found[2]})" if found[2] else "")
        elif found := _UNPACK.match(text):
            names = found[1].split(", ")
            self.packages.update(name.lower() for name in names)
            self.doing = f"unpacking {len(names)} packages"
        self.tick()

    def step(self, doing: str) -> None:
        """A new stage, worth a line of its own."""
        self.doing = doing
        self._show(force=True)

    def tick(self) -> None:
        """Called at least once a second."""
        self._show(force=False)

    def close(self) -> None:
        """Leave the terminal on a fresh line."""
        if self.live and self.said:
            self._write("\r\x1b[K")
            self.said = ""

    def _show(self, *, force: bool) -> None:
        count = f", {len(self.packages)} packages" if self.packages else ""
        text = f"  {self.elapsed:4.0f} s{count}: {self.doing}"
        if self.live:
            text = text[: _width() - 1]
            if text != self.said:
                self._write(f"\r\x1b[K{text}")
                self.said = text
        elif force or time.monotonic() - self.spoken >= _EVERY:
            self.spoken = time.monotonic()
            self._write(text + "\n")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80
