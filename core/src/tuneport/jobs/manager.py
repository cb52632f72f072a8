"""Jobs as the command line and the Python API use them.

    job = submit(plan, source_dir=folder, experiment="sft")
    job = get("sft-k7m2qd")            # or a unique beginning of it
    for line in job.logs(follow=True): ...
    job.wait().state

Everything here works from any process of the user, at any time; several may do the same thing at once.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneport.errors import TuneportError
from tuneport.fleets.protocol import LogLine, State
from tuneport.jobs.control import Control
from tuneport.jobs.model import Record, Transition
from tuneport.settings import state_dir

if TYPE_CHECKING:
    from tuneport.experiment.fleets import Place
    from tuneport.jobs.metrics import Collected
    from tuneport.types import LaunchPlan

__all__ = ["Job", "Record", "get", "list_jobs", "recover", "render", "submit"]


def _stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


say: Callable[[str], None] = _stderr
"""Gets a line about anything unusual, or done unasked. Replace it to show them elsewhere."""

_local = threading.local()


class Job:
    """A job. `record` is what was known when this object was made; `status()` asks again."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.state}>"

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def state(self) -> State:
        return self.record.state

    @property
    def cause(self) -> str:
        return self.record.cause

    @property
    def exit_code(self) -> int | None:
        return self.record.last.exit_code

    def status(self) -> Job:
        """This job as it is now."""
        return Job(_control().get(self.id))

    def history(self, attempt: int | None = None) -> list[Transition]:
        """What happened to an attempt (the last by default), in order."""
        return _control().history(self.record, attempt)

    def plan(self) -> LaunchPlan:
        """The plan that was submitted."""
        return _control().plan(self.record)

    def wait(self, timeout: float | None = None) -> Job:
        """This job when it has ended, when contact is lost (UNKNOWN), or after `timeout` seconds."""
        return Job(_control().wait(self.id, timeout=timeout))

    def stop(self) -> Job:
        """This job when no process of it is left. Fine where it has ended.

        Raises:
            Unavailable: its fleet cannot be asked.
        """
        return Job(_control().stop(self.id))

    def retry(self) -> Job:
        """This job with one more attempt of the same plan and files. Where contact was lost, this first
        makes sure that nothing of the last attempt runs.

        Raises:
            Unavailable: it has not ended, or its fleet cannot be asked.
        """
        return Job(_control().retry(self.id))

    def evaluations(self) -> list[Job]:
        """The jobs that evaluate what this one wrote, the oldest first."""
        return [Job(record) for record in _control().children(self.record) if record.action == "eval"]

    def roles(self) -> list[str]:
        return _control().roles(self.record)

    def logs(
        self, *, role: str | None = None, follow: bool = False, attempt: int | None = None
    ) -> Iterator[LogLine]:
        """What the roles wrote, the lines of each in order. `follow` ends when the job does.

        Raises:
            NotFound: no such role or attempt.
        """
        return _control().logs(self.id, role=role, follow=follow, attempt=attempt)

    def output_dir(self, attempt: int | None = None) -> Path:
        """The folder where an attempt (the last by default) writes what it wants to keep.

        Raises:
            Unavailable: it is where this machine cannot see it.
        """
        return _control().output_dir(self.record, attempt)

    def metrics(
        self, aliases: Mapping[str, list[str]] | None = None, attempt: int | None = None
    ) -> Collected:
        """The job's curves. `aliases` maps canonical names to tags; by default the method's own."""
        from tuneport.jobs.metrics import collect

        if aliases is None:
            aliases = metric_names(self.record)[1]
        return collect(_control().metric_files(self.record, attempt), aliases)


def submit(
    plan: LaunchPlan,
    *,
    source_dir: Path | None = None,
    experiment: str = "",
    fleet_name: str = "local",
    parent: str = "",
) -> Job:
    """Run `plan` on the fleet that the site file, or an installed plugin, calls `fleet_name`.

    When this returns, the job is accepted: it runs exactly once, whatever happens to this process.
    `source_dir` is the experiment folder, whose files must be as the plan has them; `parent` is the job
    that this one evaluates or exports.

    Raises:
        Unavailable, Invalid, NotFound, Untrusted: the fleet refuses the plan; nothing was started.
    """
    from tuneport.experiment import fleets

    control = _control()
    recover()
    place = _place(fleet_name, source_dir)
    fleets.refuse_unfit(place, plan.pools)
    fleets.connect(place)  # says what is wrong with its settings, with file and line
    record = control.submit(
        plan,
        source_dir=source_dir,
        experiment=experiment,
        fleet_name=fleet_name,
        fleet_kind=place.kind,
        fleet_settings=place.settings,
        parent=parent,
    )
    return Job(record)


def render(
    plan: LaunchPlan, fleet_name: str = "local", source_dir: Path | None = None
) -> tuple[Mapping[str, Any], str]:
    """(what `submit` would hand to the fleet, for a key that no job has; the same for a person's eyes, empty
    where the fleet has no other form of it).

    Raises:
        NotFound: no installed plugin offers the fleet's kind. Invalid: its settings are wrong.
    """
    from tuneport.experiment import fleets

    fleet = fleets.connect(_place(fleet_name, source_dir))
    request = {**fleet.render(plan, "dry-run-1"), "source": str(source_dir) if source_dir else ""}
    show = getattr(fleet, "show", None)
    return request, show(request) if show else ""


def get(job_id: str) -> Job:
    """The job of that id, or of that unique beginning of an id, as it is now.

    Raises:
        NotFound: no such job, or several.
    """
    return Job(_control().get(job_id))


def list_jobs(limit: int | None = None) -> list[Job]:
    """The jobs of this user as they are now, the newest first."""
    return [Job(record) for record in _control().jobs(limit=limit)]


def overview(limit: int | None = None) -> list[Job]:
    """`recover`, then `list_jobs`, with one look at the fleets for both."""
    return [Job(record) for record in _control().overview(limit=limit)]


def recover() -> list[Job]:
    """Start what a process accepted and did not live to start. Says what it did; raises nothing that
    has to do with those jobs."""
    return [Job(record) for record in _control().recover()]


def complete(prefix: str) -> list[tuple[str, str]]:
    """Ids of jobs that begin so, each with its method. Never raises."""
    from tuneport.jobs.store import Store

    try:
        if not (state_dir() / "jobs.db").exists():
            return []
        return Store().ids(prefix)
    except TuneportError:
        return []


def metric_names(record: Record) -> tuple[list[str], dict[str, list[str]]]:
    """(primary metrics, canonical name -> tags) of the job's method; nothing where it is not installed."""
    from tuneport.registry.catalog import metric_aliases

    try:
        return metric_aliases(record.method, record.release)
    except TuneportError:
        return [], {}


def _place(fleet_name: str, source_dir: Path | None) -> Place:
    """The fleet as the project of the experiment, or else of the working directory, knows it."""
    from tuneport.experiment import fleets
    from tuneport.experiment.project import find_project

    return fleets.find(fleet_name, find_project(source_dir))


def _control() -> Control:
    """One per state folder, process and thread: a database connection belongs to all three."""
    where = (str(state_dir()), os.getpid())
    controls = getattr(_local, "controls", None)
    if controls is None:
        controls = _local.controls = {}
    control: Control | None = controls.get(where)
    if control is None:
        control = controls[where] = Control(say=lambda text: say(text))
        atexit.register(control.close)
    return control
