"""What the verbs do: request flags in, plain results out. The command line and the Python API share it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tuneport.compiler.adapter import native_value
from tuneport.compiler.compile import Compiled, Inputs, compile_request
from tuneport.compiler.layers import flatten
from tuneport.errors import Invalid, NotFound, TuneportError
from tuneport.experiment import documents
from tuneport.experiment import facts as facts_module
from tuneport.experiment import lock as lock_module
from tuneport.experiment import project as project_module
from tuneport.experiment.findings import failed, finding_to_json, ordered
from tuneport.experiment.request import Asked, Flags, merge
from tuneport.experiment.site import load_site
from tuneport.experiment.yamlread import Document
from tuneport.registry import catalog
from tuneport.registry.plugins import Hooks
from tuneport.text import guess_anew
from tuneport.types import (
    Finding,
    Json,
    LaunchPlan,
    Location,
    Method,
    Origin,
    Pool,
    Release,
    Request,
    Topology,
)

if TYPE_CHECKING:
    from tuneport.porting.port import Ported


class Report(NamedTuple):
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


def validate(name: str, given: Flags) -> Report:
    """All findings for the experiment `name` with these request flags."""
    guess_anew()
    written = project_module.read(name)
    findings = list(written.findings)
    if written.lock is None:
        return Report(tuple(ordered(findings)), {"undecided": []}, None)
    findings += lock_module.check(written.lock, written.path / lock_module.NAME, given.framework_version)
    if any(finding.code.startswith("lock-") for finding in findings):
        # Without a trusted lock the method is anybody's guess: judging against a wrong one would mislead.
        return Report(tuple(ordered(findings)), {"undecided": []}, None)
    compiled, facts = _compile(written, given, findings)
    if not written.config.data and failed(written.config.findings):
        # Nobody knows what its author set, so what was judged are the defaults: of that only the request's
        # own errors are true.
        said = [f for f in compiled.findings if f in findings or (f.severity == "error" and not f.source)]
        compiled = compiled._replace(findings=tuple(said))
    shown = {**facts, "undecided": list(compiled.undecided), "method": compiled.context.method.id}
    return Report(compiled.findings, shown, compiled)


def judge(written: project_module.Written, given: Flags) -> Compiled:
    """The compilation of an experiment that need not be on disk as it is given; its lock is believed."""
    return _compile(written, given, ())[0]


def _compile(
    written: project_module.Written, given: Flags, findings: Sequence[Finding]
) -> tuple[Compiled, Mapping[str, Json]]:
    assert written.lock is not None
    method_id, version = written.lock["recipe"]["name"], written.lock["framework"]["version"]
    method = catalog.method(method_id, version)
    asked = merge(written, given, method)
    config, asked, based = _based(written.config, method, version, asked)
    release, choice_findings = choose(method, version, asked.request, config.data)
    files, file_findings = facts_module.source_files(written.path)
    declared = facts_module.read_declared(Path(given.facts)) if given.facts else {}
    asked = _declared_topology(asked, declared)
    scripts = [method.spec["surface"]["script"]] if "surface" in method.spec else []
    facts, seen = facts_module.gather(asked.request, written.path, declared, scripts)
    facts |= facts_module.other_models(
        method, asked.request.params, written.config.data, written.path, declared
    )
    facts["documents"], broken = documents.read(
        method, asked.request.params, written.config.data, written.path
    )
    inputs = Inputs(
        method=method,
        release=release,
        config=config,
        request=asked.request,
        topology=asked.topology,
        facts=facts,
        files=files,
        rules=catalog.rules(
            method.framework, version, method.spec.get("rules", []), method.spec.get("gates", ())
        ),
        param_origins=asked.param_origins,
        appended=_appended(written),
        today=time.strftime("%Y-%m-%d", time.gmtime()),
    )
    hooks = Hooks(method.framework, _policies(written))
    earlier = (*findings, *asked.findings, *based, *choice_findings, *file_findings, *seen, *broken)
    return compile_request(inputs, hooks, earlier), facts


def _based(
    config: Document, method: Method, version: str, asked: Asked
) -> tuple[Document, Asked, list[Finding]]:
    """(config.yaml over the user's files that it builds on, the request with the release's files below them,
    findings), where the release's configuration is such a chain of files; else what was given."""
    native = asked.request.native
    entry = native.get("entry") or method.spec.get("entry", "")
    if not catalog.outline(method.framework, version)["entries"].get(entry, {}).get("chain"):
        return config, asked, []
    from tuneport.experiment.overlays import unroll

    found = unroll(config, catalog.surface(method.framework, version)["files"])
    more: dict[str, Json] = {}
    if found.base:
        more["config"] = ",".join(found.base)
    if found.deleted:
        more["delete"] = [*native.get("delete", ()), *found.deleted]
    return (
        found.document,
        asked._replace(request=asked.request._replace(native={**native, **more})),
        found.findings,
    )


def choose(
    method: Method, version: str, request: Request, config: Json
) -> tuple[Release, tuple[Finding, ...]]:
    """The release with the surface that the request's group choices compose. A choice that the release
    would refuse is a finding, and then there is no surface to judge other keys by."""
    wanted: dict[str, Json] = {**method.spec.get("identity", {}), **method.spec.get("defaults", {})}
    for name, param in method.params.items():
        if name in request.params or param.has_default:
            value = native_value(param, request.params.get(name, param.default))
            wanted |= dict.fromkeys(param.keys, value)
    if isinstance(config, dict):
        written = {".".join(path): value for path, value in flatten(config, {})}
        wanted = {**wanted, **{key: value for key, value in written.items() if key not in wanted}}
    wanted |= request.native.get("groups", {})
    if "config" in request.native:
        wanted["--config"] = request.native["config"]
    entry = request.native.get("entry") or method.spec.get("entry", "")
    try:
        return catalog.release(method.framework, version, entry, wanted), ()
    except Invalid as error:
        if not error.findings:
            raise
        # What other keys do depends on the files they meet: nothing fair can be said of them.
        bare = catalog.release(method.framework, version)
        return bare, tuple(error.findings)


def _appended(written: project_module.Written) -> dict[str, tuple[Json, Origin]]:
    """`native.append` of job.yaml with the line of each key."""
    job = written.job
    added = job.data.get("native", {}).get("append", {})
    layer, place = "native.append", ("native", "append")
    return {key: (value, Origin(layer, job.file, job.line((*place, key)))) for key, value in added.items()}


def _declared_topology(asked: Asked, declared: Mapping[str, Json]) -> Asked:
    """Hardware of the facts file, where the request names none."""
    shape = declared.get("topology")
    if asked.topology.pools or not shape:
        return asked
    pool = Pool("main", "gpu", shape.get("nodes", 1), shape.get("gpus_per_node", 8))
    return asked._replace(topology=Topology((pool,), {}))


def _policies(written: project_module.Written) -> list[str]:
    project = written.project.spec.get("policies", ()) if written.project else ()
    return list(dict.fromkeys([*load_site().get("policies", ()), *project]))


def check(
    words: Sequence[str],
    *,
    framework: str = "",
    version: str = "",
    method: str = "",
    nodes: int = 0,
    gpus_per_node: int = 0,
    facts: str = "",
    env: Mapping[str, str] | None = None,
) -> Report:
    """All findings for an existing command, given as its words; no project is needed. A shell script, or a
    piece of shell as one word, is read for the commands of frameworks that it starts.

    Raises:
        Invalid: it is no command that can be checked. NotFound: nothing here knows its program.
    """
    from tuneport import linter

    declared = facts_module.read_declared(Path(facts)) if facts else {}
    asked = linter.Asked(framework, version, method, nodes, gpus_per_node, declared, env or {})
    checked, findings = linter.check_every(words, asked)
    commands = [
        {
            "undecided": list(one.undecided),
            "method": one.method,
            "entry": one.entry,
            "release": f"{one.framework} {one.release}".strip(),
            "file": one.run.file,
            "line": one.run.line,
        }
        for one in checked
    ]
    found = [finding for one in checked for finding in one.findings]
    shown = {**commands[0], "commands": commands}
    return Report(tuple(ordered(dict.fromkeys([*found, *findings]))), shown, None)


class Imported(NamedTuple):
    """An experiment made of a command. `flags` are the request flags that go with it; `left` are the keys and
    variables that it does not write, each with the reason; `findings` are those of `tp validate` with these
    flags, and what was said of the command's script."""

    path: Path
    method: str
    release: str
    flags: Mapping[str, str]
    left: Sequence[tuple[str, str]]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with the experiment itself, whatever its request lacks."""
        return not failed([finding for finding in self.findings if not finding.key.startswith("--")])


def import_command(
    words: Sequence[str],
    name: str,
    here: project_module.Folder | None = None,
    *,
    framework: str = "",
    version: str = "",
    method: str = "",
    nodes: int = 0,
    gpus_per_node: int = 0,
    facts: str = "",
    env: Mapping[str, str] | None = None,
) -> Imported:
    """Make experiments/NAME of an existing command, given as for `check`.

    Raises:
        Invalid: the name is taken or impossible, the command is broken or open, or no method says the same.
        NotFound: there is no project, or nothing here knows the program.
    """
    from tuneport import importer, linter
    from tuneport.experiment import create

    here = here or project_module.need_project()
    target = create.new_folder(here, name)
    declared = facts_module.read_declared(Path(facts)) if facts else {}
    asked = linter.Asked(framework, version, method, nodes, gpus_per_node, declared, env or {})
    made, findings = importer.draft(words, asked, os.path.relpath(target))
    create.write_folder(target, made.files(importer.title(made)))
    release = f"{made.method.framework} {made.version}"
    return Imported(target, made.method.id, release, made.flags, made.left, tuple(findings))


def port(name: str, given: Flags, method: str, as_name: str, version: str = "") -> Ported:
    """Make experiments/AS_NAME of another method that says what the experiment `name` says.

    Raises:
        Invalid: the source has errors, or the new name is taken or impossible. NotFound: there is no project,
            or the experiment, method or release is unknown.
    """
    from tuneport.porting.port import port as carry

    return carry(project_module.need_project(), name, given, method, as_name, version)


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


def fleet_of(report: Report) -> str:
    """The name of the fleet that a planned request names."""
    assert report.compiled is not None
    return report.compiled.context.request.fleet


def export_plan(name: str, given: Flags, checkpoint: Location, format: str = "") -> tuple[LaunchPlan, Report]:  # noqa: A002 - as the flag
    """The conversion of a checkpoint, compiled by the framework's own hook.

    Raises:
        Invalid: the experiment has errors, or the method does not export to `format`.
    """
    _, report = plan(name, given)
    assert report.compiled is not None
    context = report.compiled.context
    formats = context.method.spec.get("lifecycle", {}).get("export", {}).get("formats", [])
    chosen = format or next(iter(formats), "")
    if chosen not in formats:
        raise Invalid(
            f"{context.method.id} " + (f"does not export to {chosen!r}" if chosen else "exports nothing"),
            code="export-format",
            hint=f"its formats: {', '.join(formats)}" if formats else "",
        )
    hooks = Hooks(context.method.framework, _policies(project_module.read(name)))
    return hooks.export(context, checkpoint, chosen), report


def evaluation_plan(name: str, given: Flags, run_id: str = "") -> tuple[LaunchPlan, Report]:
    """The evaluation of a model, or of what the job `run_id` wrote.

    Raises:
        Invalid: the experiment has errors, or the method has no evaluation.
    """
    from tuneport.compiler.lifecycle import eval_plan

    measures = _measures(name)
    launch, report = plan(name, given._replace(model_run=run_id) if measures and run_id else given)
    assert report.compiled is not None
    made = launch if measures else eval_plan(report.compiled.context, run_id, launch)
    return made, _compared(made, report, run_id)


def _measures(name: str) -> bool:
    """Whether what the experiment's method launches is an evaluation itself."""
    lock = project_module.read(name).lock
    if lock is None:
        return False
    try:
        method = catalog.method(lock["recipe"]["name"], lock["framework"]["version"])
    except TuneportError:
        return False  # said by the plan
    return bool(method.spec.get("lifecycle", {}).get("eval", {}).get("launch"))


def _compared(made: LaunchPlan, report: Report, run_id: str) -> Report:
    """The report, with a warning where training and evaluation were scored by different rubrics."""
    if not run_id:
        return report
    from tuneport.jobs import manager

    try:
        trained = manager.get(run_id).plan().labels.get("rubric", "")
    except NotFound:
        return report  # what a job wrote may be evaluated where nobody knows the job itself
    measured = made.labels.get("rubric", "")
    if not trained or trained == measured:
        return report
    there = f"this evaluation uses {measured[:19]}…" if measured else "this evaluation uses none"
    message = (
        f"{run_id} was trained by the rubric {trained[:19]}…, and {there}: the scores measure something else"
    )
    hint = "evaluate with the same rubric file, or read the scores as what they are"
    finding = Finding("rubric-differs", "warning", message, hint, "judge.rubric")
    return report._replace(findings=tuple(ordered([*report.findings, finding])))
