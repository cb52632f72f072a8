"""What every fleet must pass on its real engine: subclass `FleetTests`, and say how the engine can be lost.

The commands of these jobs run on this machine, whatever the engine, and see the test's folder under its path.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tuneport.errors import Unavailable
from tuneport.fleets import disk
from tuneport.fleets.failure import NotStarted
from tuneport.fleets.protocol import TERMINAL, Fleet, LogLine
from tuneport.jobs.control import Control
from tuneport.jobs.model import Record
from tuneport.types import Command, LaunchPlan, Pool, RuntimeNeed


class FleetTests:
    """A subclass has a fixture `fleet`, and overrides the methods below where its engine can be lost.
    `seconds` bounds each wait."""

    kind: ClassVar[str]
    runtime: ClassVar[RuntimeNeed] = RuntimeNeed("custom-1", host=True)
    seconds: ClassVar[float] = 60

    def away(self, fleet: Any) -> contextlib.AbstractContextManager[None] | None:
        """Within it the engine cannot be reached by `fleet`; None where that cannot happen."""

    def reply_lost(self, fleet: Any) -> contextlib.AbstractContextManager[None] | None:
        """Within it the engine takes what is submitted, and its reply is lost."""

    def known(self, fleet: Any, key: str) -> int | None:
        """How many jobs the engine itself has for a key; None where nobody can say."""

    def seam(self, fleet: Any) -> tuple[Any, str, Callable[..., Any]] | None:
        """Where all calls to the engine go through: an object, the name of its method, and what makes of a
        call's arguments the answer of something that is no engine (None: it would not have answered so)."""

    faults: ClassVar[int] = int(os.environ.get("TUNEPORT_TEST_FAULTS", "60"))

    @pytest.fixture
    def control(self, fleet: Fleet) -> Iterator[Control]:
        made = Control(load_fleet=lambda _kind, _settings: fleet)
        yield made
        made.close()

    def test_a_submission_sent_twice_is_one_job(self, control: Control, fleet: Fleet, tmp_path: Path) -> None:
        job = self._submit(control, f"echo ran >>{tmp_path}/ran; sleep 1")
        key = job.last.key
        request = {**fleet.render(control.plan(job), key), "source": "", "order": job.last.order}
        first = fleet.submit(request, key)
        assert fleet.submit(request, key) == first == fleet.find(key)
        done = control.wait(job.id, timeout=self.seconds)
        assert done.state == "SUCCEEDED", done.cause
        assert fleet.submit(request, key) == first, "also after it has ended"
        assert (tmp_path / "ran").read_text() == "ran\n"
        assert self.known(fleet, key) in (None, 1)

    def test_a_reply_that_was_lost_starts_nothing_twice(
        self, control: Control, fleet: Fleet, tmp_path: Path
    ) -> None:
        lost = self.reply_lost(fleet)
        if lost is None:
            pytest.skip("nothing is between this fleet and its engine")
        with lost:
            job = self._submit(control, f"echo ran >>{tmp_path}/ran")
        assert control.recover() == [], "it is found by its key"
        done = control.wait(job.id, timeout=self.seconds)
        assert done.state == "SUCCEEDED", done.cause
        assert (tmp_path / "ran").read_text() == "ran\n"
        assert self.known(fleet, job.last.key) in (None, 1)

    def test_many_are_asked_about_at_once(self, control: Control, fleet: Fleet) -> None:
        jobs = [self._submit(control, "sleep 2"), self._submit(control, "exit 7")]
        handles = [control.get(job.id).last.handle or job.last.key for job in jobs]
        stranger = "stranger-a1b2c3-1"
        deadline = time.monotonic() + self.seconds
        while True:
            found = fleet.poll([*handles, stranger])
            assert set(found) == {*handles, stranger}
            assert found[stranger].state in ("ACCEPTED", "UNKNOWN"), "nobody submitted that"
            if all(found[handle].state in TERMINAL for handle in handles):
                break
            assert time.monotonic() < deadline, found
            time.sleep(0.3)
        good, bad = (found[handle] for handle in handles)
        assert (good.state, good.exit_code, bad.state, bad.exit_code) == ("SUCCEEDED", 0, "FAILED", 7)
        assert good.started and good.ended and good.ended >= good.started
        assert fleet.poll(handles) == {handle: found[handle] for handle in handles}, "what ended is final"

    def test_a_log_has_every_line_once_and_in_order(self, control: Control, fleet: Fleet) -> None:
        """Also for those who go on where another stopped, while it is written or the engine is away."""
        text = (
            "i=0; while [ $i -lt 400 ]; do echo line $i é; i=$((i+1)); [ $((i%100)) -gt 0 ] || sleep 1; done"
        )
        job = self._submit(control, text)
        first = control.logs(job.id, follow=True)
        got = [next(first) for _ in range(150)]
        handle = control.get(job.id).last.handle or job.last.key
        rest = fleet.logs(handle, role="trainer", since=got[-1].offset, follow=True)
        follower = threading.Thread(target=lambda: got.extend(rest), daemon=True)
        with self.away(fleet) or contextlib.nullcontext():
            follower.start()
            time.sleep(1)
        follower.join(self.seconds)
        wanted = [f"line {number} é" for number in range(400)]
        assert _own(got) == wanted
        whole = list(fleet.logs(handle, role="trainer", since=0, follow=False))
        assert _own(whole) == wanted
        again = list(fleet.logs(handle, role="trainer", since=whole[200].offset, follow=False))
        assert [line.text for line in again] == [line.text for line in whole[201:]]

    def test_stop_leaves_nothing_and_what_ended_stays_so(self, control: Control, fleet: Fleet) -> None:
        job = self._submit(control, 'echo up; sh -c "sleep 1000; : $TUNEPORT_JOB_ID" & wait')
        follow = control.logs(job.id, follow=True)
        while next(follow).text != "up":
            continue
        assert control.stop(job.id).state == "STOPPED" and control.stop(job.id).state == "STOPPED"
        assert not _running(f"sleep 1000; : {job.id}")
        handle = control.get(job.id).last.handle or job.last.key
        fleet.cancel(handle)
        assert fleet.poll([handle])[handle].state == "STOPPED"
        request = {**fleet.render(control.plan(job), job.last.key), "source": "", "order": job.last.order}
        fleet.submit(request, job.last.key)
        assert fleet.poll([handle])[handle].state == "STOPPED", "what was stopped never starts"
        again = control.retry(job.id)
        assert again.last.number == 2
        _until(lambda: control.get(job.id).state == "RUNNING", self.seconds)
        assert control.stop(job.id).state == "STOPPED" and not _running(f"sleep 1000; : {job.id}")
        good = self._submit(control, "true")
        assert control.wait(good.id, timeout=self.seconds).state == "SUCCEEDED"
        handle = control.get(good.id).last.handle or good.last.key
        fleet.cancel(handle)
        assert fleet.poll([handle])[handle].state == "SUCCEEDED", "what succeeded cannot be stopped"

    def test_lost_contact_is_unknown_and_ends_nothing(
        self, control: Control, fleet: Fleet, tmp_path: Path
    ) -> None:
        if self.away(fleet) is None:
            pytest.skip("this fleet is always here")
        job = self._submit(control, f"echo ran >>{tmp_path}/ran; sleep 3")
        _until(lambda: control.get(job.id).state == "RUNNING", self.seconds)
        away = self.away(fleet)
        assert away is not None
        with away:
            assert control.get(job.id).state == "UNKNOWN"
            with pytest.raises(Unavailable):
                control.stop(job.id)
            later = self._submit(control, f"echo later >>{tmp_path}/later")
            assert later.state in ("ACCEPTED", "UNKNOWN")
            assert control.recover() == [], "nothing is started while nobody can say what runs"
        _until(lambda: control.get(job.id).state == "SUCCEEDED", self.seconds)
        _until(
            lambda: control.recover() is not None and control.get(later.id).state == "SUCCEEDED", self.seconds
        )
        assert (tmp_path / "ran").read_text() == "ran\n" and (tmp_path / "later").read_text() == "later\n"

    def test_whatever_fails_around_the_engine_each_job_runs_once(
        self, control: Control, fleet: Fleet, tmp_path: Path
    ) -> None:
        """The engine is away, busy, slow, breaks off after it did what it was told, or talks nonsense; the
        disk here is full; the clock jumps: nothing is lost, nothing runs twice, nothing healthy is ended."""
        seam = self.seam(fleet)
        if seam is None:
            pytest.skip("nothing is between this fleet and its engine")
        jobs = []
        with Faults(*seam) as faults:
            for _ in range(6):
                jobs.append(self._submit(control, f"echo ran >>{tmp_path}/ran-$TUNEPORT_JOB_ID").id)
            while faults.count < self.faults:
                control.recover()
                with contextlib.suppress(Unavailable):
                    fleet.poll([f"{job}-1" for job in jobs])
        _until(lambda: self._all_well(control), 3 * self.seconds)
        assert len(set(jobs)) == len(jobs) == len(control.jobs())
        for job in jobs:
            assert (tmp_path / f"ran-{job}").read_text() == "ran\n"

    @staticmethod
    def _all_well(control: Control) -> bool:
        control.recover()
        bad = [job for job in control.jobs() if job.state in ("FAILED", "STOPPED")]
        assert not bad, [(job.id, job.cause) for job in bad]
        return all(job.state == "SUCCEEDED" for job in control.jobs())

    def _submit(self, control: Control, text: str) -> Record:
        return control.submit(
            self.plan(Command("trainer", ("sh", "-c", text))), fleet_name="f", fleet_kind=self.kind
        )

    def plan(self, *commands: Command, pools: Sequence[Pool] = (Pool("main", "cpu", 1, 1),)) -> LaunchPlan:
        return LaunchPlan(
            method="custom/custom",
            release="custom 1",
            runtime=self.runtime,
            pools=tuple(pools),
            commands=commands,
        )


def _own(lines: Sequence[LogLine]) -> list[str]:
    """What the job wrote; an engine may write something of its own before."""
    return [line.text for line in lines if line.text.startswith("line ")]


class Faults:
    """Within it half of the calls to an engine go wrong, and some of the records written here. `count` says
    how many did."""

    def __init__(self, owner: Any, name: str, nonsense: Callable[..., Any], seed: int = 1) -> None:
        self.count = 0
        self._owner, self._name, self._nonsense = owner, name, nonsense
        self._real = getattr(owner, name)
        self._publish, self._time = disk.publish_json, time.time
        self._chance = random.Random(seed)  # noqa: S311 - repeatable

    def __enter__(self) -> Faults:
        setattr(self._owner, self._name, self._call)
        disk.publish_json = self._full
        return self

    def __exit__(self, *_: object) -> None:
        setattr(self._owner, self._name, self._real)
        disk.publish_json, time.time = self._publish, self._time

    def _call(self, *args: Any, **more: Any) -> Any:
        kind = self._chance.randrange(12)
        self.count += kind < 6
        if kind == 0:
            raise Unavailable("the connection was refused", code="fleet-unreachable")
        if kind == 1:
            raise NotStarted("it is busy (429)", code="fleet-unreachable")
        if kind == 2:
            time.sleep(0.2)
        if kind == 3:
            jump = self._chance.choice((-86_400.0, 0.0, 86_400.0))
            time.time = lambda: self._time() + jump
        answer = self._real(*args, **more)
        if kind == 4:
            raise Unavailable("the connection broke", code="fleet-unreachable")
        if kind == 5:
            said = self._nonsense(*args)
            return answer if said is None else said
        return answer

    def _full(self, *args: Any, **more: Any) -> None:
        if self._chance.randrange(6) == 0:
            self.count += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        self._publish(*args, **more)


@contextlib.contextmanager
def lost_after(owner: Any, name: str, only: Callable[..., bool] = lambda *_: True) -> Iterator[None]:
    """Within it a method of a fleet's client does its work, and then nobody hears of it. `only` chooses the
    calls, by their positional arguments."""
    real = getattr(owner, name)

    def lost(*args: Any, **more: Any) -> Any:
        answer = real(*args, **more)
        if not only(*args):
            return answer
        raise NotStarted("the connection broke", code="fleet-unreachable")

    setattr(owner, name, lost)
    try:
        yield
    finally:
        setattr(owner, name, real)


def _until(what: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.3)


def _running(text: str) -> bool:
    """Whether a process of this machine has the text in its command line."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text.encode() in file.read_bytes():
                return True
    return False
