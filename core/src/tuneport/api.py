"""The Python API: load a project, validate, plan, submit, follow.

    import tuneport

    experiment = tuneport.open_project().experiment("my-sft")
    report = experiment.validate(model="…", train_data="train.jsonl", profile="cpu:2")
    job = experiment.submit(model="…", train_data="train.jsonl", profile="cpu:2")
    job.wait()

Requests are keyword arguments named like the request flags: framework_version, profile, resources, model,
train_data, validation_data, train_dataset, validation_dataset, set (a mapping of parameters), image,
fleet, facts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneport import workflow
from tuneport.errors import NotFound
from tuneport.experiment import create
from tuneport.experiment import project as project_module
from tuneport.experiment.request import Flags
from tuneport.fleets.protocol import LogLine, State
from tuneport.registry import catalog
from tuneport.types import Json, LaunchPlan, Location
from tuneport.workflow import Report

if TYPE_CHECKING:
    from tuneport.jobs import model
    from tuneport.jobs.manager import Manager


class Project:
    """A project folder."""

    def __init__(self, folder: project_module.Folder) -> None:
        self.folder = folder

    @property
    def root(self) -> Path:
        return self.folder.root

    def new(self, name: str, method: str, framework_version: str = "") -> Experiment:
        """Create an experiment, as `tp new` does.

        Raises:
            Invalid: the name is taken or impossible. NotFound: no such method or release.
        """
        path, _ = create.new_experiment(self.folder, name, method, framework_version)
        return Experiment(str(path))

    def experiments(self) -> list[Experiment]:
        return [Experiment(str(self.folder.experiments / name)) for name in project_module.names(self.folder)]

    def experiment(self, name: str) -> Experiment:
        """The experiment called `name`.

        Raises:
            NotFound: there is none.
        """
        path = self.folder.experiments / name
        if not path.is_dir():
            where = self.folder.experiments
            raise NotFound(f"no experiment named {name!r} in {where}", code="experiment-missing")
        return Experiment(str(path))


class Experiment:
    """One experiment folder, by its name in the project here or by its path."""

    def __init__(self, name: str) -> None:
        self._given = name
        self.path, _ = project_module.locate(name)
        self.name = self.path.name

    def validate(self, **request: Any) -> Report:
        """Every finding about the experiment with this request. Runs nothing and needs no network."""
        return workflow.validate(self._given, flags(**request))

    def plan(self, **request: Any) -> LaunchPlan:
        """The exact launch.

        Raises:
            Invalid: with the findings, where any of them is an error.
        """
        return workflow.plan(self._given, flags(**request))[0]

    def submit(self, **request: Any) -> Job:
        """Plan and run on the request's fleet.

        Raises:
            Invalid: the plan has errors. Unavailable: the runtime or the hardware is not here.
        """
        return self.perform(*workflow.plan(self._given, flags(**request)))

    def export(self, checkpoint: str, format: str = "", **request: Any) -> Job:  # noqa: A002 - as the flag
        """Submit the conversion of a checkpoint: a folder, a job's id, or JOB/sub/folder.

        Raises:
            NotFound: neither a folder nor a job. Invalid: the method does not export to `format`.
        """
        location = checkpoint_location(checkpoint)
        return self.perform(*workflow.export_plan(self._given, flags(**request), location, format))

    def evaluate(self, run_id: str = "", **request: Any) -> Job:
        """Submit the method's evaluation of the request's model, or of what a job wrote."""
        run = manager().get(run_id).id if run_id else ""
        return self.perform(*workflow.evaluation_plan(self._given, flags(**request), run))

    def perform(self, plan: LaunchPlan, report: Report) -> Job:
        """Run exactly this plan on the fleet of the request behind it."""
        name, kind, settings = workflow.fleet_of(report)
        found = manager().submit(
            plan,
            source_dir=self.path,
            experiment=self.name,
            fleet_name=name,
            fleet_kind=kind,
            fleet_settings=settings,
        )
        return Job(found)


class Job:
    """One submission. Its properties are what was known when it was last looked at; `refresh` looks again."""

    def __init__(self, found: model.Job) -> None:
        self._found = found

    @property
    def id(self) -> str:
        return self._found.id

    @property
    def state(self) -> State:
        return self._found.state

    @property
    def cause(self) -> str:
        """Why it is in that state, in one sentence; empty where there is nothing to say."""
        return self._found.cause

    def refresh(self) -> Job:
        self._found = manager().get(self.id)
        return self

    def wait(self, timeout: float | None = None) -> Job:
        """Return when it has ended, is UNKNOWN, or `timeout` seconds have passed."""
        self._found = manager().wait(self.id, timeout=timeout)
        return self

    def logs(self, role: str | None = None, follow: bool = False) -> Iterator[LogLine]:
        """What it wrote, in order within each role; with `follow` until it has ended."""
        return manager().logs(self.id, role=role, follow=follow)

    def stop(self) -> Job:
        """End it; when this returns, no process of it is left."""
        self._found = manager().stop(self.id)
        return self

    def retry(self) -> Job:
        """The same plan again, as a new attempt."""
        self._found = manager().retry(self.id)
        return self

    @cached_property
    def output_dir(self) -> Path:
        """Where it writes what it wants to keep."""
        return manager().output_dir(self._found)

    def scores(self) -> list[dict[str, Json]]:
        """The scores that an evaluation wrote: task, metric, value, stderr, n."""
        try:
            document = json.loads((self.output_dir / "scores.json").read_text("utf-8"))
            found: list[dict[str, Json]] = document["scores"]
        except (OSError, ValueError, KeyError, TypeError):
            return []
        return found


def open_project(path: str | Path | None = None) -> Project:
    """The project at `path` (default: the working directory) or above it.

    Raises:
        NotFound: there is none.
    """
    found = project_module.find_project(Path(path) if path is not None else None)
    if found is None:
        raise NotFound("no tuneport.yaml here or in a folder above", code="project-missing", hint="tp init")
    return Project(found)


def methods(framework: str = "") -> list[str]:
    """The ids of every method, or of one framework's."""
    return [row[0] for row in catalog.methods(framework)]


def jobs() -> list[Job]:
    """Every job of this user, newest first."""
    return [Job(found) for found in manager().jobs()]


def job(job_id: str) -> Job:
    """One job by its id or a unique beginning of it.

    Raises:
        NotFound: there is none, or several.
    """
    return Job(manager().get(job_id))


def manager() -> Manager:
    """The job manager over this user's store."""
    from tuneport.jobs.manager import Manager

    return Manager()


def flags(**request: Any) -> Flags:
    """Request flags from keyword arguments.

    Raises:
        TypeError: a name is no request flag.
    """
    sets = request.pop("set", {})
    texts = [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in sets.items()
    ]
    given = {name: "" if value is None else str(value) for name, value in request.items()}
    return Flags(sets=tuple(texts), **given)


def checkpoint_location(text: str) -> Location:
    """What a checkpoint's name means: a folder here, a job, or JOB/sub/folder inside what a job wrote.

    Raises:
        NotFound: none of these.
    """
    if Path(text).is_dir():
        return Location("path", str(Path(text).absolute()))
    head, _, inside = text.partition("/")
    try:
        return Location("run", inside, manager().get(head).id)
    except NotFound as error:
        raise NotFound(
            f"{text} is neither a folder here nor a job", code="checkpoint-missing", hint="tp job ls"
        ) from error
