"""Brings the record of jobs and the fleets together: submit, look, wait, follow, stop, retry.

Every method first asks the fleets about unfinished jobs where that matters, and starts what an earlier
process accepted and did not live to start. Lost contact is shown as UNKNOWN and starts nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from tuneport.errors import NotFound, TuneportError, Unavailable
from tuneport.fleets.failure import NotStarted
from tuneport.fleets.procs import alive, elsewhere, ident_from_json, user_name
from tuneport.fleets.protocol import TERMINAL, Fleet, LogLine, State, Status
from tuneport.jobs.follow import merged
from tuneport.jobs.model import Attempt, Move, Record, Transition
from tuneport.jobs.store import Store

if TYPE_CHECKING:
    from tuneport.types import LaunchPlan

OVER: frozenset[State] = TERMINAL | {"UNKNOWN"}
"""States after which nothing more is to be waited for here."""

_PATIENCE = 60.0
"""Seconds that a living process has for starting what it accepted, before others do that."""

LoadFleet = Callable[[str, Mapping[str, Any]], Fleet]


class WithFolders(Protocol):
    """What a fleet that writes to folders this machine sees offers on top of `Fleet`."""

    def output_dir(self, handle: str) -> Path: ...

    def metric_files(self, handle: str) -> list[Path]: ...


class WithRefusal(Protocol):
    """What a fleet that can say beforehand why a plan cannot run there offers on top of `Fleet`."""

    def refuse(self, plan: LaunchPlan) -> None: ...


class Control:
    """`load_fleet(kind, settings)` makes a fleet; `say` gets a line about anything done unasked."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        load_fleet: LoadFleet | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._say = say
        self._store = store or Store(say=say)
        self._load_fleet = load_fleet or installed_fleet
        self._fleets: dict[tuple[str, str], Fleet] = {}

    def close(self) -> None:
        self._store.close()

    def submit(
        self,
        plan: LaunchPlan,
        *,
        source_dir: Path | None = None,
        experiment: str = "",
        fleet_name: str = "local",
        fleet_kind: str = "local",
        fleet_settings: Mapping[str, Any] | None = None,
        parent: str = "",
    ) -> Record:
        """Run `plan` on a fleet. When this returns, the job is accepted and will run exactly once.

        `source_dir` is the experiment folder, whose files must still be those the plan lists.

        Raises:
            Unavailable, Invalid, NotFound, Untrusted: the fleet refuses the plan; nothing was started.
        """
        from tuneport.compiler.plan import plan_to_json

        settings = dict(fleet_settings or {})
        fleet = self._fleet(fleet_kind, settings)
        if hasattr(fleet, "refuse"):
            cast(WithRefusal, fleet).refuse(plan)
        job = self._store.add(
            plan_to_json(plan),
            experiment=experiment,
            source=str(source_dir.absolute()) if source_dir else "",
            fleet=fleet_name,
            fleet_kind=fleet_kind,
            fleet_settings=settings,
            parent=parent,
        )
        return self._begin(job, job.last, "submit")

    def retry(self, job: str) -> Record:
        """Try the same plan again, from the files it was first run with, in folders of its own. Where
        contact was lost, this first makes sure that nothing of the last attempt runs.

        Raises:
            Unavailable: the job has not ended, or its fleet cannot be asked.
        """
        found = self.get(job)
        if found.state == "UNKNOWN":
            found = self.stop(found.id)
        attempt = self._store.add_attempt(found.id)
        return self._begin(self._store.job(found.id), attempt, "retry")

    def get(self, job: str) -> Record:
        """The job of that id or unique beginning, as it is now.

        Raises:
            NotFound: no such job, or several.
        """
        found = self._store.job(job)
        return self._refreshed([found])[0]

    def jobs(self, *, limit: int | None = None) -> list[Record]:
        """Jobs as they are now, the newest first. Each fleet is asked once."""
        return self._refreshed(self._store.jobs(limit=limit))

    def overview(self, *, limit: int | None = None) -> list[Record]:
        """`recover`, then `jobs`, with one look at the fleets for both."""
        now = {job.id: job for job in self._refreshed(self._store.unfinished())}
        for job in self._started(now.values()):
            now[job.id] = job
        return [now.get(job.id, job) for job in self._store.jobs(limit=limit)]

    def children(self, job: Record) -> list[Record]:
        """The jobs that evaluate or export what a job wrote, as they are now, the oldest first."""
        return self._refreshed(self._store.children(job.id))

    def history(self, job: Record, attempt: int | None = None) -> list[Transition]:
        """The steps of an attempt (the last by default)."""
        return self._store.history(job.attempt(attempt).key)

    def plan(self, job: Record) -> LaunchPlan:
        from tuneport.compiler.plan import plan_from_json

        return plan_from_json(self._store.plan(job.id))

    def recover(self) -> list[Record]:
        """Start what was accepted by a process that died before it could. Returns those jobs."""
        return self._started(self._refreshed(self._store.unfinished()))

    def _started(self, jobs: Iterable[Record]) -> list[Record]:
        """Those of the jobs that nobody lives to start, after starting them."""
        started = []
        for job in jobs:
            if self._deserted(job):
                try:
                    started.append(self._begin(job, job.last, "recovery"))
                    self._say(f"job {job.id} had been accepted and not started; started now")
                except TuneportError as error:
                    self._say(f"job {job.id} had been accepted and cannot be started: {error.message}")
        return started

    def wait(self, job: str, *, timeout: float | None = None) -> Record:
        """Return when the job has ended, or is UNKNOWN, or `timeout` seconds have passed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.05
        while True:
            found = self._nudged(self.get(job))
            if found.state in OVER or (deadline is not None and time.monotonic() >= deadline):
                return found
            time.sleep(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))
            pause = min(pause * 1.3, 1.0)

    def stop(self, job: str) -> Record:
        """End the job; when this returns no process of it is left. Fine where it had ended.

        Raises:
            Unavailable: the fleet cannot be asked, so nothing is known.
        """
        found = self.get(job)
        if found.state in TERMINAL:
            return found
        attempt = found.last
        fleet = self._fleet_of(found)
        fleet.cancel(_handle(fleet, attempt))
        found = self.get(found.id)
        if found.state not in TERMINAL:
            self._store.move(attempt.key, "STOPPED", f"stopped by {user_name()}", "stop", ended=time.time())
        return self._store.job(found.id)

    def roles(self, job: Record) -> list[str]:
        return [command["role"] for command in self._store.plan(job.id)["commands"]]

    def logs(
        self, job: str, *, role: str | None = None, follow: bool = False, attempt: int | None = None
    ) -> Iterator[LogLine]:
        """What the job's roles (all by default) wrote, in order within each role.

        With `follow`, goes on until the job has ended, and may begin before it starts.

        Raises:
            NotFound: no such role or attempt.
        """
        found = self.get(job)
        known = self.roles(found)
        if role is not None and role not in known:
            raise NotFound(
                f"job {found.id} has no role {role!r}",
                code="role-not-found",
                hint=f"roles: {', '.join(known)}",
            )
        tried = found.attempt(attempt)
        return self._lines(found, tried, [role] if role else known, follow)

    def output_dir(self, job: Record, attempt: int | None = None) -> Path:
        """Where the job writes what it wants to keep.

        Raises:
            Unavailable: its fleet keeps that where this machine cannot see it.
        """
        fleet = self._fleet_of(job)
        return _with_folders(fleet, job).output_dir(_handle(fleet, job.attempt(attempt)))

    def metric_files(self, job: Record, attempt: int | None = None) -> list[Path]:
        """Files and folders for `tuneport.jobs.metrics.collect`."""
        fleet = self._fleet_of(job)
        return _with_folders(fleet, job).metric_files(_handle(fleet, job.attempt(attempt)))

    def _lines(self, job: Record, attempt: Attempt, roles: list[str], follow: bool) -> Iterator[LogLine]:
        fleet = self._fleet_of(job)
        if follow:
            self._until_running(job, attempt)
        handle = _handle(fleet, self._store.job(job.id).attempt(attempt.number))
        streams = [fleet.logs(handle, role=role, since=0, follow=follow) for role in roles]
        if follow and len(streams) > 1:
            yield from merged(streams)
        else:
            for stream in streams:
                yield from stream

    def _until_running(self, job: Record, attempt: Attempt) -> None:
        """From then on nothing here is needed for the job to go on."""
        pause = 0.05
        while True:
            found = self.get(job.id)
            if found.attempt(attempt.number).state not in ("ACCEPTED", "QUEUED"):
                return
            if found.last.number == attempt.number:
                self._nudged(found)
            time.sleep(pause)
            pause = min(pause * 1.3, 1.0)

    def _nudged(self, job: Record) -> Record:
        """The job, started if whoever accepted it died before that."""
        return self._begin(job, job.last, "recovery") if self._deserted(job) else job

    def _deserted(self, job: Record) -> bool:
        """Whether the last attempt waits for somebody to start it. Only its own machine can tell."""
        if job.state not in ("ACCEPTED", "QUEUED") or not self._store.writable:
            return False
        origin = ident_from_json(job.last.origin)
        if origin is not None and elsewhere(origin):
            return False
        busy = origin is not None and origin.pid != os.getpid() and alive(origin)
        if job.state == "ACCEPTED" and busy and time.time() - job.last.created < _PATIENCE:
            return False
        try:
            return self._fleet_of(job).find(job.last.key) is None
        except TuneportError:
            return False  # not reachable: nothing may be started

    def _begin(self, job: Record, attempt: Attempt, actor: str) -> Record:
        """Hand an accepted attempt to its fleet; safe to repeat, at any time, by anyone."""
        fleet = self._fleet_of(job)
        try:
            request = {
                **fleet.render(self.plan(job), attempt.key),
                "source": job.source,
                "order": attempt.order,
            }
            handle = fleet.submit(request, attempt.key)
        except KeyboardInterrupt:
            self._say(f"job {job.id} is accepted and goes on; tp job stop {job.id} stops it")
            raise
        except NotStarted as error:
            self._store.move(attempt.key, "ACCEPTED", f"not started yet: {error.message}", actor)
            self._say(f"job {job.id} is accepted and not started yet: {error.message}")
            return self._store.job(job.id)
        except TuneportError as error:
            self._give_up(job, attempt, fleet, error.message, actor)
            raise
        except OSError as error:
            reason = f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
            self._give_up(job, attempt, fleet, reason, actor)
            raise Unavailable(
                f"job {job.id} cannot be started: {reason}",
                code="job-not-started",
                hint="free some space, or set TUNEPORT_STATE_DIR to a folder you can write",
            ) from error
        try:
            self._store.set_handle(attempt.key, handle)
        except Unavailable as error:  # it is started, and `find` knows the handle as well
            self._say(f"job {job.id} is started; that cannot be recorded now: {error.message}")
        return self._refreshed([self._store.job(job.id)])[0]

    def _give_up(self, job: Record, attempt: Attempt, fleet: Fleet, reason: str, actor: str) -> None:
        """The fleet refused: make sure that nothing starts later, and say so in the record."""
        try:
            if fleet.find(attempt.key) is not None:
                return  # it did start; the error came after
            fleet.cancel(attempt.key)
        except (TuneportError, OSError):
            self._say(f"job {job.id} may still be started; `tp job stop {job.id}` prevents that")
            return
        now = time.time()
        try:
            self._store.move(attempt.key, "FAILED", f"not started: {reason}", actor, ended=now)
        except Unavailable:
            self._say(f"job {job.id} was not started, and that cannot be recorded now")

    def _refreshed(self, jobs: list[Record]) -> list[Record]:
        """The jobs with the last attempt of each as its fleet sees it now, recorded where possible."""
        groups: dict[int, tuple[Fleet, list[Record]]] = {}
        for job in jobs:
            if job.state in TERMINAL:
                continue
            try:
                fleet = self._fleet_of(job)
            except TuneportError as error:
                self._say(f"job {job.id}: {error.message}")
                continue
            groups.setdefault(id(fleet), (fleet, []))[1].append(job)
        seen = [one for fleet, group in groups.values() for one in self._poll(fleet, group)]
        fresh = self._recorded(seen)
        return [fresh.get(job.id, job) for job in jobs]

    def _poll(self, fleet: Fleet, jobs: list[Record]) -> list[tuple[Record, Status, str]]:
        """The jobs that are not as they were, how they are, and who says so."""
        try:
            handles = [_handle(fleet, job.last) for job in jobs]
            found = fleet.poll(handles)
            told = [
                (job, found[handle]) for job, handle in zip(jobs, handles, strict=True) if handle in found
            ]
        except TuneportError as error:
            lost = Status("UNKNOWN", f"{fleet.name} cannot be asked: {error.message}")
            told = [(job, lost) for job in jobs]
        told = [(job, _still(job.last, status)) for job, status in told]
        return [(job, status, f"fleet {fleet.name}") for job, status in told if _news(job.last, status)]

    def _recorded(self, seen: list[tuple[Record, Status, str]]) -> dict[str, Record]:
        """The jobs as they are now, by id; what a look found is recorded at once."""
        if not seen:
            return {}
        try:
            self._store.moves(
                [move for job, status, actor in seen for move in _moves(job.last, status, actor)]
            )
            return self._store.records([job.id for job, _, _ in seen])
        except Unavailable:  # a full disk must not hide how the jobs are
            return {job.id: _shown(job, status) for job, status, _ in seen}

    def _fleet_of(self, job: Record) -> Fleet:
        return self._fleet(job.fleet_kind, job.fleet_settings)

    def _fleet(self, kind: str, settings: Mapping[str, Any]) -> Fleet:
        key = (kind, repr(sorted(settings.items())))
        if key not in self._fleets:
            self._fleets[key] = self._load_fleet(kind, settings)
        return self._fleets[key]


def _still(attempt: Attempt, seen: Status) -> Status:
    """What was seen; contact is lost with an attempt that ran and of which its fleet has nothing."""
    if (seen.state, attempt.state) != ("ACCEPTED", "RUNNING"):
        return seen
    return Status("UNKNOWN", "it ran, and its fleet has nothing of it any more")


def _news(attempt: Attempt, seen: Status) -> bool:
    return seen.state != attempt.state or (seen.cause != attempt.cause and seen.state != "ACCEPTED")


def _moves(attempt: Attempt, seen: Status, actor: str) -> Iterator[Move]:
    """Of an attempt that ended between two looks also that it ran."""
    if seen.started is not None and seen.state in TERMINAL and attempt.state in ("ACCEPTED", "QUEUED"):
        yield Move(attempt.key, "RUNNING", "started", actor, at=seen.started, started=seen.started)
    at = seen.ended or (seen.started if seen.state == "RUNNING" else None)
    known = seen.exit_code, seen.started, seen.ended
    yield Move(attempt.key, seen.state, seen.cause, actor, at, *known)


def _shown(job: Record, seen: Status) -> Record:
    """A job as it was seen where that cannot be recorded."""
    now = job.last._replace(
        state=seen.state,
        cause=seen.cause,
        exit_code=seen.exit_code,
        started=seen.started,
        ended=seen.ended,
    )
    return job._replace(attempts=(*job.attempts[:-1], now))


def _handle(fleet: Fleet, attempt: Attempt) -> str:
    """What the fleet calls the attempt, also where the process that knew died before recording it."""
    return attempt.handle or fleet.find(attempt.key) or attempt.key


def _with_folders(fleet: Fleet, job: Record) -> WithFolders:
    if not hasattr(fleet, "output_dir"):
        raise Unavailable(f"fleet {job.fleet} keeps its files elsewhere", code="fleet-remote-files")
    return cast(WithFolders, fleet)


def installed_fleet(kind: str, settings: Mapping[str, Any]) -> Fleet:
    from tuneport.registry.plugins import load_fleet

    fleet: Fleet = load_fleet(kind, settings)
    return fleet
