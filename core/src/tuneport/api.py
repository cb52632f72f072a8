"""The Python API: load a project, validate, plan, submit, follow. The command line is a thin layer on it.

import tuneport

experiment = tuneport.open_project().experiment("my-sft")
report = experiment.validate(model="…", train_data="train.jsonl", profile="cpu:2")
job = experiment.submit(model="…", train_data="train.jsonl", profile="cpu:2")
job.wait()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneport.compiler.compile import Compiled, Inputs, compile_request
from tuneport.errors import Invalid, NotFound
from tuneport.experiment import create
from tuneport.experiment import facts as facts_module
from tuneport.experiment import lock as lock_module
from tuneport.experiment import project as project_module
from tuneport.experiment.findings import failed, finding_to_json, ordered
from tuneport.experiment.request import Asked, Flags, merge
from tuneport.registry import catalog
from tuneport.registry.plugins import Hooks
from tuneport.types import Finding, Json, LaunchPlan, Location

if TYPE_CHECKING:
    from tuneport.jobs.manager import Job


@dataclass(frozen=True, slots=True)
class Report:
    """What `validate` found. `ok` is False where any finding is an error."""

    findings: tuple[Finding, ...]
    facts: Mapping[str, Json]
    compiled: Compiled | None

    @property
    def ok(self) -> bool:
        return not failed(self.findings)

    def to_json(self) -> dict[str, Json]:
        return {
            "ok": self.ok,
            "findings": [finding_to_json(f) for f in self.findings],
            "facts": dict(self.facts),
        }


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
            raise NotFound(
                f"no experiment named {name!r} in {self.folder.experiments}", code="experiment-missing"
            )
        return Experiment(str(path))


class Experiment:
    """One experiment folder. Requests are given as keyword arguments named like the request flags:
    framework_version, profile, resources, model, train_data, validation_data, train_dataset,
    validation_dataset, set (a mapping of parameters), image, fleet, facts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.path, _ = project_module.locate(name)
        self.name = self.path.name

    def validate(self, **request: Any) -> Report:
        """Every finding about the experiment with this request. Runs nothing and needs no network."""
        return validate(self._name, flags(**request))

    def plan(self, **request: Any) -> LaunchPlan:
        """The exact launch.

        Raises:
            Invalid: with the findings, where any of them is an error.
        """
        return plan(self._name, flags(**request))[0]

    def submit(self, **request: Any) -> Job:
        """Plan and run on the request's fleet.

        Raises:
            Invalid: the plan has errors. Unavailable: the runtime or the hardware is not here.
        """
        return submit(self._name, flags(**request))


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
    from tuneport.jobs import manager

    return list(manager.list_jobs())


def job(job_id: str) -> Job:
    """One job by id or unique prefix of it."""
    from tuneport.jobs import manager

    return manager.get(job_id)


def flags(**request: Any) -> Flags:
    """Request flags from keyword arguments.

    Raises:
        TypeError: a name is no request flag.
    """
    sets = request.pop("set", {})
    texts = (
        [f"{name}={_set_text(value)}" for name, value in sets.items()]
        if isinstance(sets, Mapping)
        else list(sets)
    )
    return Flags(
        sets=tuple(texts), **{name: "" if value is None else str(value) for name, value in request.items()}
    )


def _set_text(value: Json) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value)


def validate(name: str, given: Flags) -> Report:
    """All findings for the experiment `name` with these request flags."""
    written = project_module.read(name)
    findings = list(written.findings)
    if written.lock is None:
        return Report(tuple(ordered(findings)), {"undecided": []}, None)
    findings += lock_module.check(written.lock, written.path / lock_module.NAME, given.framework_version)
    if any(finding.code.startswith("lock-") for finding in findings):
        # Without a trusted lock the method is anybody's guess: judging against a wrong one would mislead.
        return Report(tuple(ordered(findings)), {"undecided": []}, None)
    compiled, facts = _compile(written, given, findings)
    shown = {**facts, "undecided": list(compiled.undecided), "method": compiled.context.method.id}
    return Report(compiled.findings, shown, compiled)


def _compile(
    written: project_module.Written, given: Flags, findings: Sequence[Finding]
) -> tuple[Compiled, Mapping[str, Json]]:
    assert written.lock is not None
    method_id, version = written.lock["recipe"]["name"], written.lock["framework"]["version"]
    method = catalog.method(method_id, version)
    release = catalog.release(method.framework, version, method.spec.get("entry", ""))
    asked = merge(written, given, method)
    files, file_findings = facts_module.source_files(written.path)
    declared = facts_module.read_declared(Path(given.facts)) if given.facts else {}
    asked = _declared_topology(asked, declared)
    scripts = [method.spec["surface"]["script"]] if "surface" in method.spec else []
    facts, seen = facts_module.gather(asked.request, written.path, declared, scripts)
    inputs = Inputs(
        method=method,
        release=release,
        config=written.config,
        request=asked.request,
        topology=asked.topology,
        facts=facts,
        files=files,
        rules=catalog.rules(method.framework, version, method.spec.get("rules", [])),
        param_origins=asked.param_origins,
    )
    hooks = Hooks(method.framework, _policies(written))
    earlier = (*findings, *asked.findings, *file_findings, *seen)
    return compile_request(inputs, hooks, earlier), facts


def _declared_topology(asked: Asked, declared: Mapping[str, Json]) -> Asked:
    """Hardware of the facts file, where the request names none."""
    from dataclasses import replace

    from tuneport.types import Pool, Topology

    shape = declared.get("topology")
    if asked.topology.pools or not shape:
        return asked
    pool = Pool("main", "gpu", shape.get("nodes", 1), shape.get("gpus_per_node", 8))
    return replace(asked, topology=Topology((pool,), {}))


def _policies(written: project_module.Written) -> list[str]:
    from tuneport.experiment.site import load_site

    project = written.project.spec.get("policies", ()) if written.project else ()
    return list(dict.fromkeys([*load_site().get("policies", ()), *project]))


def plan(name: str, given: Flags) -> tuple[LaunchPlan, Report]:
    """The launch plan and the (error-free) report behind it.

    Raises:
        Invalid: with every finding, where the request has errors or names no hardware.
    """
    report = validate(name, given)
    compiled = report.compiled
    if compiled is not None and report.ok and compiled.plan is None:
        missing = Finding(
            "profile-missing", "error", "no hardware was named", "give --profile h200:8 or cpu:2", "--profile"
        )
        raise Invalid("there is nothing to plan for", code="profile-missing", findings=[missing])
    if compiled is None or compiled.plan is None:
        count = sum(finding.severity == "error" for finding in report.findings)
        raise Invalid(f"{count} error{'s' * (count != 1)}: no plan", code="invalid", findings=report.findings)
    return compiled.plan, report


def submit(name: str, given: Flags) -> Job:
    """Plan and run on the fleet that the request names."""
    launch_plan, report = plan(name, given)
    return submit_plan(launch_plan, name, report)


def submit_plan(launch_plan: LaunchPlan, name: str, report: Report) -> Job:
    """Run exactly this plan."""
    from tuneport.jobs import manager

    assert report.compiled is not None
    path, _ = project_module.locate(name)
    return manager.submit(
        launch_plan, source_dir=path, experiment=path.name, fleet_name=report.compiled.context.request.fleet
    )


def fleet_name(report: Report) -> str:
    """The fleet that a planned request names."""
    assert report.compiled is not None
    return report.compiled.context.request.fleet


def checkpoint_location(text: str) -> Location:
    """What `--checkpoint` names: a job (`JOB` or `JOB/sub/folder`) or a folder here.

    Raises:
        NotFound: neither a job nor a folder.
    """
    if Path(text).is_dir():
        return Location("path", str(Path(text).absolute()))
    head, _, rest = text.partition("/")
    from tuneport.jobs import manager

    try:
        found = manager.get(head)
    except NotFound as error:
        raise NotFound(
            f"{text} is neither a folder here nor a job", code="checkpoint-missing", hint="tp job ls"
        ) from error
    return Location("run", rest, found.id)


def export(name: str, given: Flags, checkpoint: str, format: str = "") -> Job:  # noqa: A002
    """Submit the conversion of a checkpoint.

    Raises:
        Invalid: the method exports nothing, or not to `format`.
    """
    from tuneport.jobs import manager

    compiled, written = _lifecycle(name, given)
    formats = compiled.context.method.spec.get("lifecycle", {}).get("export", {}).get("formats", [])
    chosen = format or next(iter(formats), "")
    if chosen not in formats:
        raise Invalid(
            f"{compiled.context.method.id} does not export to {chosen or 'anything'!r}",
            code="export-format",
            hint=f"its formats: {', '.join(formats) or 'none'}",
        )
    hooks = Hooks(compiled.context.method.framework, _policies(written))
    launch = hooks.export(compiled.context, checkpoint_location(checkpoint), chosen)
    fleet = compiled.context.request.fleet
    return manager.submit(launch, source_dir=written.path, experiment=written.name, fleet_name=fleet)


def evaluate(name: str, given: Flags, run_id: str = "") -> Job:
    """Submit the method's evaluation of a model or of what a job wrote."""
    from tuneport.compiler.lifecycle import eval_plan
    from tuneport.jobs import manager

    compiled, written = _lifecycle(name, given)
    run = manager.get(run_id).id if run_id else ""
    launch = eval_plan(compiled.context, run)
    fleet = compiled.context.request.fleet
    return manager.submit(
        launch, source_dir=written.path, experiment=written.name, fleet_name=fleet, parent=run
    )


def scores(job: Job) -> dict[str, Json]:
    """The scores document that an evaluation wrote; empty where it wrote none."""
    import json

    try:
        document = json.loads((job.output_dir() / "scores.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _lifecycle(name: str, given: Flags) -> tuple[Compiled, project_module.Written]:
    """The compiled experiment for export and eval: the same checks as a submission."""
    _, report = plan(name, given)
    assert report.compiled is not None
    return report.compiled, project_module.read(name)
