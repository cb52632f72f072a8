"""The log of a role: of all its pods, by lines, from where it was left."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tuneport.errors import Unavailable
from tuneport.fleets.protocol import LogLine

from tuneport_fleet_kubernetes.api import Api, Missing
from tuneport_fleet_kubernetes.names import NODES

INDEX = "batch.kubernetes.io/job-completion-index"
_SLACK = 2_000_000_000
"""Nanoseconds read again before the last line, which is looked for there: the API counts in whole seconds."""
_COUNT, _WIDTH = 12, 76
"""Bits that count lines of one nanosecond, and bits of one pod's place in an offset."""
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ?")


@dataclass(frozen=True, slots=True)
class Line:
    """`place` grows within a pod: its time in nanoseconds, and its number among those of that time."""

    place: int
    text: str


def lines(
    pods: Callable[[], Sequence[Mapping[str, Any]]],
    read: Callable[[Mapping[str, Any], int], bytes],
    over: Callable[[], bool],
    role: str,
    since: int,
) -> Iterator[LogLine]:
    """The lines of a role until `over()`. Where several nodes have the role each line says which.

    An offset holds the place in the log of each pod, so that no line is lost or repeated whoever goes on. A
    cluster that cannot be reached meanwhile is asked again.

    Args:
        pods: the role's. read: the log of one, from a time in nanoseconds on, each line with its time.
    """
    places = _unpacked(since)
    pause = 0.3
    while True:
        found = False
        try:
            last = over()
            for pod in pods():
                index = int((pod["metadata"].get("annotations") or {}).get(INDEX) or 0)
                many = int((pod["metadata"].get("labels") or {}).get(NODES) or 1) > 1
                before = places.get(index, 0)
                try:
                    raw = read(pod, max(0, (before >> _COUNT) - _SLACK))
                except Missing:
                    continue
                for line in _after(_parsed(raw, whole=last), before):
                    places[index] = line.place
                    found = True
                    yield LogLine(role, f"{index}: {line.text}" if many else line.text, _packed(places))
        except Unavailable:
            if not _waits(over):
                raise
            time.sleep(min(pause * 2, 5.0))
            pause *= 1.5
            continue
        if last:
            return
        pause = 0.3 if found else min(pause * 1.4, 3.0)
        time.sleep(pause)


def _waits(over: Callable[[], bool]) -> bool:
    """Whether the log is followed: only then does `over` have to ask the cluster, or say no."""
    try:
        return not over()
    except Unavailable:
        return True


def _parsed(raw: bytes, *, whole: bool) -> list[Line]:
    """The lines with their places; a last one without an end only if nothing can follow (`whole`)."""
    parts = raw.split(b"\n")
    rest = parts.pop()
    if rest and whole:
        parts.append(rest)
    found: list[Line] = []
    moment, count = 0, 0
    for part in parts:
        stamp = _STAMP.match(part)
        now = _nanoseconds(stamp) if stamp else moment
        count = count + 1 if now == moment else 1
        moment = now
        text = part[stamp.end() :] if stamp else part
        found.append(Line(moment << _COUNT | min(count, (1 << _COUNT) - 1), text.decode(errors="replace")))
    return found


def _after(lines: list[Line], place: int) -> list[Line]:
    """Those that follow the line at `place`; if it is gone, those that are later."""
    for number, line in enumerate(lines):
        if line.place == place:
            return lines[number + 1 :]
    return [line for line in lines if line.place > place]


def _nanoseconds(stamp: re.Match[bytes]) -> int:
    zone = stamp[3].decode().replace("Z", "+00:00")
    seconds = int(datetime.fromisoformat(stamp[1].decode() + zone).timestamp())
    return seconds * 1_000_000_000 + int((stamp[2] or b"0").ljust(9, b"0"))


def _packed(places: Mapping[int, int]) -> int:
    return sum(place << index * _WIDTH for index, place in places.items())


def _unpacked(offset: int) -> dict[int, int]:
    places: dict[int, int] = {}
    index = 0
    while offset:
        places[index] = offset & ((1 << _WIDTH) - 1)
        offset >>= _WIDTH
        index += 1
    return places


def read(api: Api, namespace: str) -> Callable[[Mapping[str, Any], int], bytes]:
    """For `lines`: asks the API for the log of a pod whose container has begun."""

    def log(pod: Mapping[str, Any], since: int) -> bytes:
        states = (pod.get("status") or {}).get("containerStatuses") or ()
        known = [state.get("state") or {} for state in states]
        if not any("running" in state or "terminated" in state for state in known):
            return b""
        more = {}
        if since:
            more["sinceTime"] = datetime.fromtimestamp(since // 1_000_000_000, UTC).strftime(
                "%Y-%m-%dT%H:%M:%SZ"
            )
        name = pod["metadata"]["name"]
        container = str((pod.get("spec") or {}).get("containers", [{}])[0].get("name", ""))
        return api.text(
            f"/api/v1/namespaces/{namespace}/pods/{name}/log",
            timestamps="true",
            **({"container": container} if container else {}),
            **more,
        )

    return log
