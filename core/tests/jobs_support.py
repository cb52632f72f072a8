"""Real jobs for tests: plans whose commands are small scripts, a state folder of their own, no leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tuneport.compiler.plan import plan_to_json
from tuneport.fleets.local import LocalFleet
from tuneport.jobs.control import Control
from tuneport.jobs.model import Record
from tuneport.jobs.store import Store
from tuneport.types import Command, FileSpec, LaunchPlan, Pool, RuntimeNeed, Value

SETTINGS: dict[str, Any] = {"stop_grace": 1.0, "linger": 0.5, "gpus": [], "max_cpu_jobs": 64}
TP = [sys.executable, "-m", "tuneport"]


def own_state(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """For a fixture: a state folder nobody else uses; whatever still runs for it afterwards is ended."""
    for name in list(os.environ):
        if name.startswith(("TUNEPORT_", "TUNEPLANE_", "FORGE_")) and "_TEST_" not in name:
            monkeypatch.delenv(name)
    state = folder / "state"
    monkeypatch.setenv("TUNEPORT_STATE_DIR", str(state))
    monkeypatch.setenv("TUNEPORT_CACHE_DIR", str(folder / "cache"))
    monkeypatch.setenv("HOME", str(folder))
    yield state
    for pid in marked(f"TUNEPORT_STATE_DIR={state}"):
        os.kill(pid, signal.SIGKILL)


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
    *commands: Command,
    gpus: int = 0,
    series: str = "gpu",
    nodes: int = 1,
    source: Mapping[str, str] | None = None,
    method: str = "custom/custom",
) -> LaunchPlan:
    pool = Pool("main", series, nodes, gpus) if gpus else Pool("main", "cpu", nodes, 1)
    return LaunchPlan(
        method=method,
        release="1",
        runtime=RuntimeNeed("custom-1", host=True),
        pools=(pool,),
        commands=commands,
        source=source or {},
    )


def control(settings: Mapping[str, Any] | None = None, say: Callable[[str], None] | None = None) -> Control:
    """One whose local fleet has `settings`, whatever a job was submitted with."""
    fleet = LocalFleet({**SETTINGS, **(settings or {})})
    return Control(load_fleet=lambda _kind, _settings: fleet, say=say or (lambda _: None))


def accepted(planned: LaunchPlan, **more: str) -> Record:
    """A job whose submitter died right after it was accepted."""
    given = {"experiment": "", "source": "", "fleet": "local", "fleet_kind": "local", **more}
    document = {**plan_to_json(planned)}
    if "digest" in given:
        document["digest"] = given.pop("digest")
    assert in_child(lambda: Store().add(document, fleet_settings={}, **given)) == 0
    return Store().jobs(limit=1)[0]


def tp(*args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TP, *args],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
        **more,
    )


def until(what: Callable[[], Any], *, seconds: float = 30.0) -> Any:
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
    """Living processes, other than this one, with `word` in their command line or environment."""
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


def in_child(call: Callable[[], Any]) -> int:
    """Run `call` in a fork of this process; its exit status, negative for a signal, 99 for an exception."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            call()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def scalar_summary(tag: str, value: float) -> Any:
    """A scalar as TensorFlow 2 writes it: a tensor whose metadata names the plugin."""
    import numpy
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.scalar.metadata import create_summary_metadata
    from tensorboard.util import tensor_util

    metadata = create_summary_metadata(display_name="", description="")
    tensor = tensor_util.make_tensor_proto(numpy.float32(value))
    return Summary(value=[Summary.Value(tag=tag, tensor=tensor, metadata=metadata)])
