"""The Python API: load a project, validate, plan, submit, follow.

    import tuneport

    experiment = tuneport.open_project().experiment("my-sft")
    report = experiment.validate(model="…", train_data="train.jsonl", profile="cpu:2")
    job = experiment.submit(model="…", train_data="train.jsonl", profile="cpu:2")
    print(job.wait().state)

Requests are keyword arguments named like the request flags: framework_version, profile, resources, model,
train_data, validation_data, train_dataset, validation_dataset, set (a mapping of parameters), image,
fleet, facts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneport import workflow
from tuneport.errors import NotFound
from tuneport.experiment import create
from tuneport.experiment import project as project_module
from tuneport.experiment.request import Flags
from tuneport.registry import catalog
from tuneport.text import printable
from tuneport.types import Json, LaunchPlan, Location
from tuneport.workflow import Report

if TYPE_CHECKING:
    from tuneport.jobs.manager import Job


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

    def import_command(self, name: str, command: Sequence[str], **known: Any) -> Experiment:
        """Make an experiment of an existing command, as `tp import` does. `known` is that of `check`.

        Raises:
            Invalid: the name is taken, the command is broken or open, or no method says the same. NotFound:
                nothing here knows its program.
        """
        return Experiment(str(workflow.import_command(command, name, self.folder, **known).path))

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
        made = workflow.export_plan(self._given, flags(**request), location, format)
        return self.perform(*made, parent=location.owner)

    def evaluate(self, run_id: str = "", **request: Any) -> Job:
        """Submit the method's evaluation of the request's model, or of what a job wrote."""
        run = job(run_id).id if run_id else ""
        return self.perform(*workflow.evaluation_plan(self._given, flags(**request), run), parent=run)

    def perform(self, plan: LaunchPlan, report: Report, parent: str = "") -> Job:
        """Run exactly this plan on the fleet of the request behind it. `parent` is the job it is about."""
        from tuneport.jobs import manager

        fleet = workflow.fleet_of(report)
        return manager.submit(
            plan, source_dir=self.path, experiment=self.name, fleet_name=fleet, parent=parent
        )


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


def check(command: Sequence[str], **known: Any) -> Report:
    """Every finding about an existing command of a framework, given as its words. Runs nothing.

    `known` may hold framework, version, method, nodes, gpus_per_node, facts (a file) and env.

    Raises:
        Invalid: it is no command that can be checked. NotFound: nothing here knows its program.
    """
    return workflow.check(command, **known)


def jobs() -> list[Job]:
    """Every job of this user, newest first."""
    from tuneport.jobs import manager

    return manager.list_jobs()


def job(job_id: str) -> Job:
    """One job by its id or a unique beginning of it.

    Raises:
        NotFound: there is none, or several.
    """
    from tuneport.jobs import manager

    return manager.get(job_id)


def scores(of: Job) -> list[dict[str, Json]]:
    """The scores that an evaluation wrote: task, metric, value, stderr, n. Empty where it wrote none."""
    try:
        document = json.loads((of.output_dir() / "scores.json").read_text("utf-8"))
        found: list[dict[str, Json]] = document["scores"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return found


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
    """What a checkpoint's name means: a folder or file here, a job, or JOB/sub/folder in what a job wrote.

    Raises:
        NotFound: none of these.
    """
    if os.path.exists(text):  # as `Path` has it, no text is the working folder, and a long one an OSError
        return Location("path", str(Path(text).absolute()))
    head, _, inside = text.partition("/")
    shown = repr(printable(text)[:200])
    try:
        owner = job(head)
    except NotFound as error:
        if error.code == "job-ambiguous":
            raise
        message = f"{shown} is neither a folder or file here nor a job"
        raise NotFound(message, code="checkpoint-missing", hint="tp job ls") from error
    if ".." in inside.split("/"):
        message = f"{shown} leads out of what {owner.id} wrote"
        raise NotFound(message, code="checkpoint-missing", hint="a folder here is named by its own path")
    _demand_written(owner, inside)
    return Location("run", inside, owner.id)


def _demand_written(job: Job, inside: str) -> None:
    """Raises NotFound where the job is over, and what it wrote can be seen here and has no such part."""
    from tuneport.fleets.resolve import output_of

    if not inside or job.state not in ("SUCCEEDED", "FAILED", "STOPPED"):
        return
    try:
        written = output_of(job.id)
    except NotFound:
        return  # on another fleet: its own machine will say
    if not (written / inside).exists():
        there = ", ".join(sorted(path.name for path in written.iterdir())[:12])
        message = f"{job.id} is {job.state} and wrote no {printable(inside)[:200]!r}"
        hint = f"it wrote {printable(there)}" if there else "it wrote nothing"
        raise NotFound(message, code="checkpoint-missing", hint=hint)
