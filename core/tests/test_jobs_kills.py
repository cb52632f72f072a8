"""kill -9 anywhere: no accepted job is lost, none starts twice, the record stays readable and says why.

A job counts as accepted from the commit of its row on, which is earlier than anybody is told its id.
Every job writes its key to a file outside when it starts; that file is the judge.

TUNEPORT_TEST_KILLS says how many processes are killed in all (300 by default).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tuneport.fleets import faults
from tuneport.fleets.layout import Folder
from tuneport.fleets.protocol import TERMINAL
from tuneport.jobs.model import Record
from tuneport.jobs.states import RANK
from tuneport.types import FileSpec, LaunchPlan

sys.path.insert(0, str(Path(__file__).parent))
from jobs_support import alive, control, in_child, lines, marked, own_state, plan, shell, until

pytestmark = pytest.mark.kills
KILLS = int(os.environ.get("TUNEPORT_TEST_KILLS", "300"))
KILLED = -signal.SIGKILL
done = Counter[str]()
"""Kills so far, by flow."""
points_hit: set[str] = set()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TUNEPORT_TEST_FAULT_LOG", str(tmp_path / "faults"))
    for found in own_state(tmp_path, monkeypatch):
        monkeypatch.setenv("TUNEPORT_TEST_FAULT_LOG", str(tmp_path / "faults"))
        yield found
    faults.arm("")
    points_hit.update(line.split()[1] for line in lines(tmp_path / "faults"))


@pytest.fixture
def starts(tmp_path: Path) -> Path:
    return tmp_path / "starts"


def short_job(starts: Path, *, seconds: float = 0.0, files: bool = False) -> LaunchPlan:
    nap = f"sleep {seconds}" if seconds else "true"
    spec = {"a/config.json": FileSpec("json", {"a": 1})} if files else {}
    return plan(shell(f'echo "$TUNEPORT_JOB_KEY" >> {starts}; {nap}', files=spec))


def submit_in_child(planned: LaunchPlan, fault: str, settings: dict[str, object] | None = None) -> int:
    """Submit from a process of its own with `fault` armed there and in what it starts."""

    def go() -> None:
        os.environ["TUNEPORT_TEST_FAULT"] = fault
        faults.arm(fault)
        control(settings).submit(planned)

    return in_child(go)


def newest(known: set[str]) -> Record | None:
    """The job that was accepted since, if any."""
    fresh = [job for job in control().jobs(limit=5) if job.id not in known]
    assert len(fresh) <= 1
    return fresh[0] if fresh else None


def settled(job: Record, starts: Path, *, least: int = 1) -> Record:
    """Recover and wait; then what must be true of any job, whatever was killed."""
    jobs = control()
    jobs.recover()
    found = jobs.wait(job.id, timeout=30)
    assert found.state in TERMINAL or found.state == "UNKNOWN", found
    assert found.cause
    started = lines(starts).count(found.last.key)
    assert least <= started <= 1, (started, found)
    reached = 0
    for step in jobs.history(found):
        assert step.cause
        assert step.actor
        assert step.time > 0
        assert RANK.get(step.after, reached) >= reached
        reached = RANK.get(step.after, reached)
    return found


def each_point(role: str, flow: str, once: Callable[[str], bool]) -> int:
    """`once(fault)` with a kill at the first, second, … point of a role, until none is reached.
    `once` returns whether something was killed. Returns how many there were."""
    for number in itertools.count(1):
        if not once(f"{role}:{number}"):
            return number - 1
        done[flow] += 1
    raise AssertionError("unreachable")


def test_the_submitting_process_dies_at_every_point(starts: Path) -> None:
    known: set[str] = set()
    lost = 0

    def once(fault: str) -> bool:
        nonlocal lost
        code = submit_in_child(short_job(starts), fault)
        job = newest(known)
        if job is None:
            assert code == KILLED
            lost += 1
            return True
        known.add(job.id)
        assert settled(job, starts).state == "SUCCEEDED"
        return code == KILLED

    points = each_point("cli", "submit", once)
    assert points >= 30
    assert 1 <= lost <= 12  # only those before the commit: the schema and the intent
    assert all(count == 1 for count in Counter(lines(starts)).values())


def test_the_supervisor_dies_at_every_point(starts: Path) -> None:
    known: set[str] = set()
    states: Counter[str] = Counter()

    def once(fault: str) -> bool:
        before = len(lines(Path(os.environ["TUNEPORT_TEST_FAULT_LOG"])))
        submit_in_child(short_job(starts, files=True), fault)
        job = newest(known)
        assert job is not None
        known.add(job.id)
        until(lambda: len(lines(Path(os.environ["TUNEPORT_TEST_FAULT_LOG"]))) > before or over(job))
        states[settled(job, starts).state] += 1
        return len(lines(Path(os.environ["TUNEPORT_TEST_FAULT_LOG"]))) > before

    assert each_point("supervisor", "supervise", once) >= 25
    # Before the start it is started again; after it nobody can know how it ended.
    assert states["SUCCEEDED"] > 10
    assert states["UNKNOWN"] > 3
    assert set(states) == {"SUCCEEDED", "UNKNOWN"}


def over(job: Record) -> bool:
    return control().get(job.id).state in TERMINAL


def test_the_command_dies_at_every_point_before_it_is_one(starts: Path) -> None:
    known: set[str] = set()

    def once(fault: str) -> bool:
        submit_in_child(short_job(starts), fault)
        job = newest(known)
        assert job is not None
        known.add(job.id)
        found = settled(job, starts, least=0)
        if found.state == "SUCCEEDED":
            return False
        assert found.state == "FAILED"
        assert "killed by SIGKILL" in found.cause
        assert lines(starts).count(found.last.key) == 0
        return True

    assert each_point("role", "role", once) >= 4


def test_retry_dies_at_every_point(starts: Path) -> None:
    first = control().submit(short_job(starts))
    settled(first, starts)

    def once(fault: str) -> bool:
        attempts = len(control().get(first.id).attempts)

        def go() -> None:
            faults.arm(fault)
            control().retry(first.id)

        code = in_child(go)
        job = control().get(first.id)
        if len(job.attempts) > attempts:
            assert settled(job, starts).state == "SUCCEEDED"
        else:
            assert code == KILLED
        return code == KILLED

    assert each_point("cli", "retry", once) >= 20


@pytest.mark.parametrize("supervised", [True, False])
def test_stop_dies_at_every_point(starts: Path, supervised: bool) -> None:
    def once(fault: str) -> bool:
        job = control().submit(short_job(starts, seconds=600))
        folder = Folder.of(job.last.key)
        until(lambda: job.last.key in lines(starts))
        if not supervised:
            os.kill(folder.supervised_by().pid, signal.SIGKILL)

        def go() -> None:
            faults.arm(fault)
            control().stop(job.id)

        code = in_child(go)
        assert control().stop(job.id).state == "STOPPED"
        assert marked(f"TUNEPORT_JOB_KEY={job.last.key}") == []
        settled(job, starts)
        return code == KILLED

    assert each_point("cli", "stop", once) >= 3


def test_stop_of_a_job_nobody_started_dies_at_every_point(starts: Path) -> None:
    """Whoever asked for the stop died; the job must not start afterwards."""
    before_spawn = _before("supervisor-spawn")
    known = {job.id for job in control().jobs()}
    asked = 0

    def once(fault: str) -> bool:
        nonlocal asked
        submit_in_child(short_job(starts), before_spawn)
        job = newest(known)
        assert job is not None
        known.add(job.id)

        def go() -> None:
            faults.arm(fault)
            control().stop(job.id)

        code = in_child(go)
        wanted = Folder.of(job.last.key).stop.exists()
        found = settled(job, starts, least=0)
        assert found.state == ("STOPPED" if wanted else "SUCCEEDED")
        assert lines(starts).count(job.last.key) == (0 if wanted else 1)
        asked += wanted
        return code == KILLED

    assert each_point("cli", "stop", once) >= 3
    assert asked


def _before(name: str) -> str:
    """The fault that kills a submission on a used state folder the first time it reaches `name`."""
    log = Path(os.environ["TUNEPORT_TEST_FAULT_LOG"])
    trial = log.with_name("trial")
    os.environ["TUNEPORT_TEST_FAULT_LOG"] = str(trial)
    trial.unlink(missing_ok=True)

    def go() -> None:
        faults.arm("cli:log")
        control().submit(plan(shell("true")))

    control()  # makes the schema
    assert in_child(go) == 0
    os.environ["TUNEPORT_TEST_FAULT_LOG"] = str(log)
    reached = [line.split()[1] for line in lines(trial)]
    return f"cli:{reached.index(name) + 1}"


def test_a_waiting_supervisor_dies_at_every_point(starts: Path) -> None:
    """Behind a running job, and with the ticket of a job that died in the queue before it."""
    settings = {"max_jobs": 1}
    known: set[str] = set()

    def once(fault: str) -> bool:
        log = Path(os.environ["TUNEPORT_TEST_FAULT_LOG"])
        blocker = control(settings).submit(short_job(starts, seconds=600))
        until(lambda: blocker.last.key in lines(starts))
        before = len(lines(log))
        submit_in_child(short_job(starts), fault, settings)
        known.add(blocker.id)
        job = newest(known)
        assert job is not None
        known.add(job.id)
        if len(lines(log)) == before:
            until(lambda: len(lines(log)) > before or "waits for" in control(settings).get(job.id).cause)
        # The blocker and its supervisor vanish, so that its lease has to be swept.
        os.kill(Folder.of(blocker.last.key).supervised_by().pid, signal.SIGKILL)
        for pid in marked(f"TUNEPORT_JOB_KEY={blocker.last.key}"):
            os.kill(pid, signal.SIGKILL)
        until(
            lambda: len(lines(log)) > before or control(settings).get(job.id).state in (*TERMINAL, "UNKNOWN")
        )
        settled(job, starts)
        assert control().get(blocker.id).state == "UNKNOWN"
        return len(lines(log)) > before

    assert each_point("supervisor", "queue", once) >= 25


def test_processes_die_at_random(state: Path, starts: Path) -> None:
    """Whatever is alive at some moment, and those who then come to recover."""
    seed = int(os.environ.get("TUNEPORT_TEST_SEED", time.time_ns() % 1_000_000))
    print(f"TUNEPORT_TEST_SEED={seed}")
    chance = random.Random(seed)
    known: set[str] = set()
    goal = max(KILLS - sum(done.values()), 40)
    killed = 0
    while killed < goal:
        planned = short_job(starts, seconds=chance.choice((0, 0.1)))
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                control().submit(planned)
            os._exit(0)
        target = chance.choice(("cli", "supervisor", "trainer", "all"))
        if target in ("supervisor", "trainer"):
            mark = "TUNEPORT_SUPERVISOR=" if target == "supervisor" else "TUNEPORT_JOB_KEY="
            deadline = time.monotonic() + 0.5
            while not _ours(mark, state) and time.monotonic() < deadline:
                time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.12))
        victims = [child] if target in ("cli", "all") and alive(child) else []
        if target in ("supervisor", "all"):
            victims += _ours("TUNEPORT_SUPERVISOR=", state)
        if target in ("trainer", "all"):
            victims += _ours("TUNEPORT_JOB_KEY=", state)
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed += len(victims)
        if chance.random() < 0.3:
            killed += _two_recover(chance)
        os.waitpid(child, 0)
        job = newest(known)
        if job is None:
            assert target in ("cli", "all")
            continue
        known.add(job.id)
        found = settled(job, starts, least=1 if target == "cli" else 0)
        if target == "cli":
            assert found.state == "SUCCEEDED", found
        elif target == "supervisor" and lines(starts).count(found.last.key) == 0:
            # A fork of the supervisor died with it, after it had claimed the start and before it was `sh`.
            assert found.state == "UNKNOWN", found
            assert Folder.of(found.last.key).started(), found
    done["random"] += killed
    assert sum(done.values()) >= min(KILLS, goal)
    assert all(count == 1 for count in Counter(lines(starts)).values())
    with contextlib.closing(sqlite3.connect(state / "jobs.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    until(lambda: not _ours("TUNEPORT_SUPERVISOR=", state) and not _ours("TUNEPORT_JOB_KEY=", state))
    print(dict(done), len(known))


def _ours(mark: str, state: Path) -> list[int]:
    here = set(marked(f"TUNEPORT_STATE_DIR={state}"))
    return [pid for pid in marked(mark) if pid in here]


def _two_recover(chance: random.Random) -> int:
    """Two recoverers at once, one of which may be killed in the middle."""
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                control().recover()
            os._exit(0)
        children.append(child)
    killed = 0
    if chance.random() < 0.5:
        time.sleep(chance.uniform(0, 0.15))
        if alive(children[0]):
            os.kill(children[0], signal.SIGKILL)
            killed = 1
    for child in children:
        os.waitpid(child, 0)
    return killed


def test_every_listed_point_was_a_place_of_death() -> None:
    listed = {name for names in faults.POINTS.values() for name in names}
    assert points_hit == listed
