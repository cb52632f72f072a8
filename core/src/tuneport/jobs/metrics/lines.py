"""Numbers in the JSON lines of `tuneport.report`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tuneport.jobs.metrics.events import Scalar


def scalars(path: Path, problem: Callable[[str], None]) -> Iterator[Scalar]:
    """Every number that was logged, in order. An unfinished last line is one still being written."""
    rounds: dict[str, int] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                found = list(_record(record, rounds))
            except (ValueError, TypeError, KeyError, AttributeError):
                problem(f"{path.name}: line {number} is damaged and was left out")
                continue
            yield from found


def _record(record: dict[str, Any], rounds: dict[str, int]) -> Iterator[Scalar]:
    time = float(record["time"])
    values = record["values"]
    if record["kind"] == "log":
        step = int(record["step"])
        for name, value in values.items():
            if isinstance(value, int | float):
                yield Scalar(str(name), step, time, float(value))
    elif record["kind"] == "validation_metric" and isinstance(values.get("value"), int | float):
        name = f"validation/{str(values['key']).removeprefix('validation/')}"
        rounds[name] = rounds.get(name, 0) + 1
        yield Scalar(name, rounds[name], time, float(values["value"]))
