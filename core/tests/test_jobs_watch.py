"""Watching jobs for long, and many of them: what that takes and what it asks."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tuneport.compiler.plan import plan_to_json
from tuneport.fleets import procs
from tuneport.fleets.layout import Folder
from tuneport.fleets.local import LocalFleet
from tuneport.fleets.procs import myself
from tuneport.fleets.protocol import Status
from tuneport.jobs import control
from tuneport.jobs.control import Control
from tuneport.jobs.model import Record
from tuneport.jobs.store import Store

sys.path.insert(0, str(Path(__file__).parent))
from jobs_support import own_state, plan, shell

ACTIVE = 300


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from own_state(tmp_path, monkeypatch)


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Engine:
    """A fleet all of whose jobs run; `asked` holds how many each call was about."""

    name = "steady"

    def __init__(self) -> None:
        self.asked: dict[int, int] = {}

    def poll(self, handles: Sequence[str]) -> Mapping[str, Status]:
        self.asked[len(handles)] = self.asked.get(len(handles), 0) + 1
        return {handle: Status("RUNNING", f"on node {len(handle)}", started=1.0) for handle in handles}

    def find(self, key: str) -> str | None:
        return key


def stored(count: int) -> tuple[Store, list[str]]:
    """A store of running jobs, each of a fleet of kind `steady`."""
    store = Store()
    store._connection.execute("PRAGMA synchronous = OFF")  # nobody crashes here
    document = plan_to_json(plan(shell("true")))
    given = {"experiment": "", "source": "", "fleet": "f", "fleet_kind": "steady"}
    jobs = [store.add(document, fleet_settings={"a": 1}, **given) for _ in range(count)]
    for job in jobs:
        store.set_handle(job.last.key, job.last.key)
    return store, [job.id for job in jobs]


def blocks() -> int:
    """Pieces of memory that Python holds: every object has one at least."""
    gc.collect()
    return sys.getallocatedblocks()


def test_an_hour_of_watching_hundreds_of_jobs_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    store, jobs = stored(ACTIVE)
    clock, engine = Clock(), Engine()
    monkeypatch.setattr(control, "time", clock)
    watcher = Control(store, load_fleet=lambda _kind, _settings: engine)  # type: ignore[arg-type,return-value]
    assert {job.state for job in watcher.overview()} == {"RUNNING"}
    watcher.wait(jobs[0], timeout=60)
    watcher.overview(limit=50)
    before, began = blocks(), clock.now
    for _ in range(12):
        assert watcher.wait(jobs[0], timeout=300).state == "RUNNING"
        assert len(watcher.overview(limit=50)) == 50
    taken = blocks() - before
    watcher.close()
    assert clock.now - began == pytest.approx(3600)
    assert engine.asked[1] > 3600, "as often as once a second"
    assert taken < 1000, "one object kept of each look would be 3,600"


def test_an_overview_asks_each_fleet_once_and_starts_what_nobody_lives_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, jobs = stored(60)
    engine = Engine()
    watcher = Control(store, load_fleet=lambda _kind, _settings: engine)  # type: ignore[arg-type,return-value]
    begun: list[str] = []

    def begin(_self: Control, job: Record, _attempt: object, _actor: str) -> Record:
        begun.append(job.id)
        return job._replace(release="x")

    listed = watcher.overview(limit=50)
    assert engine.asked == {60: 1}
    assert [job.id for job in listed] == jobs[:-51:-1], "the newest first"
    assert {store.job(job).state for job in jobs} == {"RUNNING"}, "also of those that are not listed"
    monkeypatch.setattr(Control, "_deserted", lambda _self, job: job.id in jobs[-3:])
    monkeypatch.setattr(Control, "_begin", begin)
    assert [job.release for job in watcher.overview(limit=5)] == ["x", "x", "x", "1", "1"]
    assert begun == jobs[-3:]
    watcher.close()


def test_what_one_look_finds_is_one_wait_for_the_disk() -> None:
    store, _ = stored(60)
    said: list[str] = []
    store._connection.set_trace_callback(said.append)
    watcher = Control(store, load_fleet=lambda _kind, _settings: Engine())  # type: ignore[arg-type,return-value]
    assert {job.state for job in watcher.overview()} == {"RUNNING"}
    assert (said.count("BEGIN IMMEDIATE"), said.count("COMMIT")) == (1, 1)
    said.clear()
    watcher.overview()
    assert "BEGIN IMMEDIATE" not in said, "nothing is written where nothing is new"
    watcher.close()


def test_a_look_that_cannot_be_recorded_shows_all_that_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    store, jobs = stored(3)
    ended = Status("FAILED", "exit 1", exit_code=1, started=1.0, ended=2.0)
    monkeypatch.setattr(Engine, "poll", lambda _self, handles: dict.fromkeys(handles, ended))
    watcher = Control(store, load_fleet=lambda _kind, _settings: Engine())  # type: ignore[arg-type,return-value]
    monkeypatch.setattr(store, "writable", False)
    assert [(job.state, job.last.exit_code) for job in watcher.overview()] == [("FAILED", 1)] * 3
    assert {store.job(job).state for job in jobs} == {"ACCEPTED"}, "none of it is half recorded"
    monkeypatch.setattr(store, "writable", True)
    watcher.overview()
    steps = [step.after for step in watcher.history(store.job(jobs[0]))]
    assert steps == ["ACCEPTED", "RUNNING", "FAILED"]
    watcher.close()


def test_a_look_at_hundreds_of_local_jobs_is_files_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ident = myself().to_json()
    keys = [f"sft-{number:04}-1" for number in range(500)]
    for key in keys:
        folder = Folder.of(key)
        folder.path.mkdir(parents=True)
        folder.supervisor.write_text(json.dumps(ident))
        folder.begun("trainer").write_text(json.dumps({**ident, "time": 1.0}))
    monkeypatch.setattr(subprocess.Popen, "__init__", lambda *_, **__: pytest.fail("a process was started"))
    monkeypatch.setattr(procs, "everyone", lambda: pytest.fail("every process was looked at"))
    found = LocalFleet({}).poll(keys)
    assert list(found) == keys
    assert set(found.values()) == {Status("RUNNING", "started", started=1.0)}


def test_who_looks_at_local_jobs_loads_nothing_that_starts_one() -> None:
    store = Store()
    given = {"experiment": "", "source": "", "fleet": "local", "fleet_kind": "local", "fleet_settings": {}}
    job = store.add(plan_to_json(plan(shell("true"))), **given)
    store.move(job.last.key, "RUNNING", "", "test")
    store.close()
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tuneport", "job", "ls", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [one["id"] for one in json.loads(done.stdout)["jobs"]] == [job.id]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import")]
    loaded = {line.rpartition("|")[2].strip() for line in lines}
    assert {"click", "tuneport.fleets.leases"} <= loaded  # of what the fleet itself imports
    heavy = {"tuneport.types", "tuneport.compiler", "tuneport.experiment", "tuneport.fleets.stage"}
    assert not loaded & (heavy | {"pluggy", "yaml", "hashlib", "socket", "subprocess"})
