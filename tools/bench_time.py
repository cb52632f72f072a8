"""Times whole processes, alternating, by wall clock and by the CPU seconds of their children."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """One command, the folder it runs in, its environment and the exit code that proves it did its work."""

    name: str
    argv: Sequence[str]
    folder: Path
    environ: Mapping[str, str]
    exit_code: int = 0


@dataclass
class Times:
    """Milliseconds of each round."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def row(self) -> tuple[float, float, float, float]:
        """Wall median, wall minimum, CPU median, CPU minimum."""
        return statistics.median(self.wall), min(self.wall), statistics.median(self.cpu), min(self.cpu)


def once(case: Case) -> tuple[float, float]:
    """(wall, CPU) milliseconds of one run; its output goes nowhere.

    Raises:
        SystemExit: the command did not end as it should, so its time would mean nothing.
    """
    start = time.perf_counter()
    child = subprocess.Popen(
        case.argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=case.folder,
        env=dict(case.environ),
    )
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != case.exit_code:
        raise SystemExit(f"{case.name}: exit code {child.returncode}: {' '.join(case.argv)} in {case.folder}")
    return wall * 1000, (usage.ru_utime + usage.ru_stime) * 1000


def race(cases: Sequence[Case], rounds: int, warm_up: int = 2) -> dict[str, Times]:
    """Run all cases once per round, each round beginning with another one; the first rounds do not count."""
    found = {case.name: Times() for case in cases}
    for number in range(rounds + warm_up):
        shift = number % len(cases)
        for case in (*cases[shift:], *cases[:shift]):
            wall, cpu = once(case)
            if number >= warm_up:
                found[case.name].wall.append(wall)
                found[case.name].cpu.append(cpu)
    return found
