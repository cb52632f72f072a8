"""What the verbs do: request flags in, plain results out. The command line and the Python API share it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tuneport.compiler.adapter import native_value
from tuneport.compiler.compile import Compiled, Inputs, compile_aside, compile_request
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
from tuneport.registry import catalog, surfaces
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
    written, findings, trusted = _written(name, given)
    if not trusted:
        return Report(tuple(ordered(findings)), {"undecided": []}, None)
    compiled, facts = _compile(written, given, findings)
    if not written.config.data and failed(written.config.findings):
        # Nobody knows what its author set, so what was judged are the defaults: of that only the request's
        # own errors are true.
        said = [f for f in compiled.findings if f in findings or (f.severity == "error" and not f.source)]
        compiled = compiled._replace(findings=tuple(said))
    shown = {**facts, "undecided": list(compiled.undecided), "method": compiled.context.method.id}
    return Report(compiled.findings, shown, compiled)


def _written(name: str, given: Flags) -> tuple[project_module.Written, list[Finding], bool]:
    """(the experiment's files, what is wrong with them, whether its lock can be trusted). Without one the
    method is anybody's guess: judging against a wrong one would mislead."""
    guess_anew()
    written = project_module.read(name)
    findings = list(written.findings)
    if written.lock is None:
        return written, findings, False
    findings += lock_module.check(written.lock, written.path / lock_module.NAME, given.framework_version)
    return written, findings, not any(finding.code.startswith("lock-") for finding in findings)


def judge(written: project_module.Written, given: Flags) -> Compiled:
    """The compilation of an experiment that need not be on disk as it is given; its lock is believed."""
    return _compile(written, given, ())[0]


class _Read(NamedTuple):
    """All that a compilation takes. `earlier` are findings about the files and the request, `seen` those
    about what model, data and documents turned out to be."""

    inputs: Inputs
    hooks: Hooks
    earlier: tuple[Finding, ...]
    seen: tuple[Finding, ...]


def _compile(
    written: project_module.Written, given: Flags, findings: Sequence[Finding]
) -> tuple[Compiled, Mapping[str, Json]]:
    inputs, hooks, earlier, seen = _read(written, given, findings)
    compiled = compile_request(inputs, hooks, (*earlier, *seen))
    if compiled.plan is not None:
        compiled = _seen_by_fleet(compiled, written.project, compiled.plan)
    return compiled, inputs.facts


def _seen_by_fleet(
    compiled: Compiled,
    project: project_module.Folder | None,
    made: LaunchPlan,
    checkpoint: Location | None = None,
) -> Compiled:
    """With a warning for what the request's fleet does not show to the job."""
    request = compiled.context.request
    if request.fleet == "local":
        return compiled
    from tuneport.experiment.unseen import unseen

    found = unseen(request, project, made.mounts, checkpoint)
    return compiled._replace(findings=tuple(ordered([*compiled.findings, *found])))


def _read(
    written: project_module.Written, given: Flags, findings: Sequence[Finding], hardware: str = ""
) -> _Read:
    """`hardware` is the profile where nothing names any."""
    assert written.lock is not None
    method_id, version = written.lock["recipe"]["name"], written.lock["framework"]["version"]
    method = catalog.method(method_id, version)
    asked = merge(written, given, method)
    if hardware and not asked.topology.pools and not failed(asked.findings):
        asked = merge(written, given._replace(profile=hardware), method)
    config, asked, based = _based(written.config, method, version, asked)
    release, choice_findings = choose(method, version, asked.request, config.data)
    files, file_findings = facts_module.source_files(written.path)
    declared = facts_module.read_declared(Path(given.facts)) if given.facts else {}
    asked = _declared_topology(asked, declared)
    scripts = [method.spec["surface"]["script"]] if "surface" in method.spec else []
    facts, seen = facts_module.gather(asked.request, written.path, declared, scripts, files)
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
    earlier = (*findings, *asked.findings, *based, *choice_findings, *file_findings)
    return _Read(inputs, hooks, earlier, (*seen, *broken))


def _based(
    config: Document, method: Method, version: str, asked: Asked
) -> tuple[Document, Asked, list[Finding]]:
    """(config.yaml over the user's files that it builds on, the request with the release's files below them,
    findings), where the release's configuration is such a chain of files; else what was given."""
    native = asked.request.native
    entry = native.get("entry") or method.spec.get("entry", "")
    if not surfaces.outline(method.framework, version)["entries"].get(entry, {}).get("chain"):
        return config, asked, []
    from tuneport.experiment.overlays import unroll

    found = unroll(config, surfaces.of(method.framework, version)["files"])
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
        return surfaces.release(method.framework, version, entry, wanted), ()
    except Invalid as error:
        if not error.findings:
            raise
        # What other keys do depends on the files they meet: nothing fair can be said of them.
        bare = surfaces.release(method.framework, version)
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
    shown = {**(commands[0] if commands else {}), "commands": commands}
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
        raise _no_hardware()
    if compiled is None or compiled.plan is None:
        raise _no_plan(report.findings)
    return compiled.plan, report


def _no_plan(findings: Sequence[Finding]) -> Invalid:
    count = sum(finding.severity == "error" for finding in findings)
    return Invalid(f"{count} error{'s' * (count != 1)}: no plan", code="invalid", findings=findings)


def _no_hardware() -> Invalid:
    missing = Finding(
        "profile-missing", "error", "no hardware was named", "give --profile h200:8 or cpu:2", "--profile"
    )
    return Invalid("there is nothing to plan for", code="profile-missing", findings=[missing])


def fleet_of(report: Report) -> str:
    """The name of the fleet that a planned request names."""
    assert report.compiled is not None
    return report.compiled.context.request.fleet


def export_plan(name: str, given: Flags, checkpoint: Location, format: str = "") -> tuple[LaunchPlan, Report]:  # noqa: A002 - as the flag
    """The conversion of a checkpoint, compiled by the framework's own hook. Where no hardware is named, it
    takes one processor. Neither model nor data need to be named.

    Raises:
        Invalid: what was written or asked has errors, or the method does not export to `format`.
    """
    compiled, hooks, report = _aside(name, given, (), "cpu:1")
    context = compiled.context
    formats = context.method.spec.get("lifecycle", {}).get("export", {}).get("formats", [])
    chosen = format or next(iter(formats), "")
    if chosen not in formats:
        raise Invalid(
            f"{context.method.id} " + (f"does not export to {chosen!r}" if chosen else "exports nothing"),
            code="export-format",
            hint=f"its formats: {', '.join(formats)}" if formats else "",
        )
    made = hooks.export(context, checkpoint, chosen)
    seen = _seen_by_fleet(compiled, project_module.locate(name)[1], made, checkpoint)
    found = [*seen.findings, *_unfinished(checkpoint.owner, "--checkpoint")]
    return made, report._replace(findings=tuple(ordered(found)))


def evaluation_plan(name: str, given: Flags, run_id: str = "") -> tuple[LaunchPlan, Report]:
    """The evaluation of a model, or of what the job `run_id` wrote.

    Raises:
        Invalid: what was written or asked has errors, or the method has no evaluation.
    """
    from tuneport.compiler.lifecycle import eval_plan

    written = project_module.read(name)
    kind = _evaluation(written)
    if kind == "launch":
        made, report = plan(name, given._replace(model_run=run_id))
        return made, _compared(
            made, report._replace(findings=_named(report, given, run_id, written.path)), run_id
        )
    uses = ("validation_data",) if run_id else ("model", "validation_data")
    compiled, hooks, report = _aside(name, given, uses)
    launch = plan(name, given._replace(model_run=run_id))[0] if kind == "shares" else None
    made = hooks.around(compiled.context, eval_plan(compiled.context, run_id, launch))
    report = report._replace(findings=_seen_by_fleet(compiled, written.project, made).findings)
    return made, _compared(
        made, report._replace(findings=_named(report, given, run_id, written.path)), run_id
    )


_DEMANDED = 'os.environ["TUNEPORT_VALIDATION_DATA"]'


def _script(path: Path) -> str:
    """What is written in an experiment's eval.py."""
    try:
        return (path / "eval.py").read_text("utf-8", errors="replace")
    except OSError:
        return ""


def _named(report: Report, given: Flags, run_id: str, path: Path) -> tuple[Finding, ...]:
    """The findings, with a warning where it is not clear what is to be evaluated, or whether it is there."""
    assert report.compiled is not None
    found = [*report.findings, *_unfinished(run_id, "--run-id")]
    request = report.compiled.context.request
    if request.validation_data is None and _DEMANDED in _script(path):
        message = "eval.py reads TUNEPORT_VALIDATION_DATA, and nothing names validation data"
        found.append(Finding("eval-data", "warning", message, "give --validation-data", "--validation-data"))
    if run_id and given.model:
        message, hint = (
            f"--model is not evaluated: what {run_id} wrote is",
            "give one of --run-id and --model",
        )
        found.append(Finding("eval-model", "warning", message, hint, "--model"))
    elif not run_id and request.model is None:
        message = "neither --run-id nor --model names what is to be evaluated"
        hint = "--run-id JOB evaluates what a job wrote"
        found.append(Finding("eval-model", "warning", message, hint, "--run-id"))
    return tuple(ordered(found))


def _aside(
    name: str, given: Flags, uses: Sequence[str], hardware: str = ""
) -> tuple[Compiled, Hooks, Report]:
    """What a job about a trained model is made of. `uses`: what it takes of model, train_data and
    validation_data; `hardware`: the profile where nothing names any.

    Raises:
        Invalid: what was written or asked has errors, or no hardware is named.
    """
    written, findings, trusted = _written(name, given)
    if not trusted:
        raise _no_plan(ordered(findings))
    inputs, hooks, earlier, seen = _read(written, given, findings, hardware)
    flags = {f"--{name.replace('_', '-')}" for name in uses}
    earlier += tuple(finding for finding in seen if finding.key in flags)
    compiled = compile_aside(inputs, hooks, uses, earlier)
    if failed(compiled.findings):
        raise _no_plan(compiled.findings)
    if not inputs.topology.pools:
        raise _no_hardware()
    return compiled, hooks, Report(compiled.findings, inputs.facts, compiled)


def _evaluation(written: project_module.Written) -> str:
    """How an experiment's method evaluates: by what it launches itself ("launch"), by a script that shares
    parts of the launch ("shares"), or by a script alone ("")."""
    if written.lock is None:
        return ""
    try:
        method = catalog.method(written.lock["recipe"]["name"], written.lock["framework"]["version"])
    except TuneportError:
        return ""  # said by the plan
    if method.spec.get("lifecycle", {}).get("eval", {}).get("launch"):
        return "launch"
    return "shares" if method.spec.get("sections") else ""


def _unfinished(job: str, flag: str) -> list[Finding]:
    """A warning where the job that something is taken of has not succeeded: it may have written part of it,
    or be writing it still."""
    from tuneport.jobs import manager

    try:
        state = manager.get(job).state if job else "SUCCEEDED"
    except NotFound:
        return []  # what a job wrote may be read where nobody knows the job itself
    if state == "SUCCEEDED":
        return []
    message = f"{job} is {state}: what it has written by the time this starts is taken, whole or not"
    return [Finding("job-unfinished", "warning", message, f"tp job status {job}", flag)]


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
