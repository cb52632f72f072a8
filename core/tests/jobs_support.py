"""Real jobs for tests: plans whose commands are small shell or Python scripts, and a state folder."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuneport.fleets.local import LocalFleet
from tuneport.jobs.control import Control
from tuneport.types import Command, FileSpec, LaunchPlan, Pool, RuntimeNeed, Value

SETTINGS: dict[str, Any] = {"stop_grace": 1.0, "linger": 0.5, "gpus": [], "max_cpu_jobs": 64}


def command(
    *argv: Value,
    role: str = "trainer",
    env: Mapping[str, Value] | None = None,
    files: Mapping[str, FileSpec] | None = None,
    pool: str = "main",
) -> Command:
    return Command(role=role, argv=argv, env=env or {}, files=files or {}, pool=pool)


def shell(text: str, role: str = "trainer", **more: Any) -> Command:
    return command("sh", "-c", text, role=role, **more)


def python(text: str, role: str = "trainer", **more: Any) -> Command:
    return command(sys.executable, "-S", "-c", text, role=role, **more)


def plan(
    *commands: Command, gpus: int = 0, source: Mapping[str, str] | None = None, method: str = "custom/custom"
) -> LaunchPlan:
    pool = Pool("main", "gpu", 1, gpus) if gpus else Pool("main", "cpu", 1, 1)
    return LaunchPlan(
        method=method,
        release="1",
        runtime=RuntimeNeed("custom-1", host=True),
        pools=(pool,),
        commands=commands,
        source=source or {},
    )


def manager(settings: Mapping[str, Any] | None = None, say: Callable[[str], None] | None = None) -> Control:
    """One whose local fleet has `settings`, whatever a job was submitted with."""
    fleet = LocalFleet({**SETTINGS, **(settings or {})})
    return Control(load_fleet=lambda kind, _settings: fleet, say=say or (lambda _: None))


def until(what: Callable[[], Any], *, seconds: float = 20.0) -> Any:
    """The first true value of `what()`."""
    deadline = time.monotonic() + seconds
    while True:
        value = what()
        if value:
            return value
        assert time.monotonic() < deadline, f"it did not come true within {seconds} s"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    from tuneport.fleets.procs import read_stat

    stat = read_stat(pid)
    return stat is not None and stat.state not in "ZX"


def marked(word: str) -> list[int]:
    """Living processes with `word` in their command line or environment."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid() and alive(int(name)):
            try:
                base = Path("/proc", name)
                text = base.joinpath("cmdline").read_bytes() + base.joinpath("environ").read_bytes()
            except OSError:
                continue
            if word.encode() in text:
                found.append(int(name))
    return found


def lines(path: Path) -> Sequence[str]:
    return path.read_text().splitlines() if path.exists() else []
