"""Writes an experiment for another method that says what an existing one says."""

from __future__ import annotations

import os.path
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuneport.checks.rules import nested
from tuneport.compiler.compile import Compiled
from tuneport.compiler.layers import flatten
from tuneport.errors import Invalid
from tuneport.experiment import create, lock, project
from tuneport.experiment.facts import source_files
from tuneport.experiment.findings import ordered
from tuneport.experiment.import_parts import yaml_text
from tuneport.experiment.request import Flags, consumed_datasets
from tuneport.experiment.yamlread import read_yaml
from tuneport.porting import canonical
from tuneport.porting.arithmetic import per_step
from tuneport.porting.carry import Row, carried, is_off
from tuneport.registry import catalog, vocabulary
from tuneport.types import Context, Finding, Json, Method

MEASURES = "benchmark"
"""What a method starts from that trains nothing."""
STEPS = "max_steps"
"""What ends training where a method has it."""
WHOLE_STEPS = "training steps"
"""The `unit` of a parameter that counts them in a method, in place of optimizer steps."""
KEPT = ("model", "data", "profile", "resources", "env", "fleet")
"""What job.yaml says whatever the method is."""


@dataclass(frozen=True, slots=True)
class Ported:
    """The new experiment. `rows` say what became of the source's parameters, `after` what the target makes of
    them, `only` what shapes the target's result and the source says nothing of, `unsaid` those of it that the
    source has a parameter for; `steps` are the counts of one training step on both sides; `findings` are
    those of `tp validate` with the same request."""

    path: Path
    source: str
    method: str
    release: str
    rows: list[Row]
    after: Mapping[str, Json]
    only: Mapping[str, Json]
    unsaid: frozenset[str]
    steps: tuple[Mapping[str, Json], Mapping[str, Json]]
    left: list[tuple[str, str]] = field(default_factory=list)
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return not _broken(self.findings)

    @property
    def changed(self) -> list[str]:
        """Parameters that came along and take effect as something else."""
        return [
            row.name
            for row in self.rows
            if row.how == "kept" and _listed(self.after.get(row.name)) != _listed(row.value)
        ]


def _broken(findings: Sequence[Finding]) -> bool:
    """Whether something is wrong beyond a model or data that the request may name later."""
    return any(one.severity == "error" and one.code != "request-missing" for one in findings)


def _listed(value: Json) -> Json:
    return value if isinstance(value, list) else [value]


def port(
    here: project.Folder, name: str, flags: Flags, target: str, as_name: str, version: str = ""
) -> Ported:
    """Make experiments/AS_NAME of `target` that says what the experiment `name` says with these flags.

    Raises:
        Invalid: the source has errors, or the new name is taken. NotFound: the method or release is unknown.
    """
    from tuneport import workflow

    place = create.new_folder(here, as_name)
    method = catalog.method(target, version)
    version = version or catalog.default_release(method.framework)
    report = workflow.validate(name, flags)
    if report.compiled is None or _broken(report.findings):
        raise Invalid(
            f"{name} has errors", code="port-source", hint="correct them first", findings=report.findings
        )
    context = report.compiled.context
    _same_kind(context.method, method)
    written = project.read(name)
    said = canonical.values(context)
    flags = flags._replace(sets=())  # parameters of the source's: they are among what it says
    pools = context.topology.pools
    devices = pools[0].nodes * pools[0].gpus_per_node if pools else 0
    job = _job(written)
    with tempfile.TemporaryDirectory() as scratch:
        bare, _ = _compiled(Path(scratch) / "bare", _files(method, version, {}, job), flags)
        before = canonical.values(bare.context) if bare is not None else {}
        params, rows = carried(said, context.method, method, before, devices)
        _, findings = _compiled(Path(scratch) / "full", _files(method, version, params, job), flags)
        rows = _without_idle(params, rows, said, findings)
        files = _files(method, version, params, job)
        if method.framework == context.method.framework:  # code is called there as it is here
            files |= {name: written.path / name for name in _code(written)}
        used = Path(scratch) / "used"
        compiled, findings = _compiled(used, files, flags)
    create.write_folder(place, files)
    findings = [_placed(one, used, place) for one in findings]
    after = canonical.values(compiled.context) if compiled is not None else {}
    only = {
        word: one.value
        for word, one in after.items()
        if word in canonical.shapes_result() and word not in said and word in method.params
    }
    steps = per_step(said), per_step(after)
    findings += [*_apart(steps), *_lost(rows, method), *_ended(rows, method, steps[0])]
    findings += _counted(rows, context.method, method, steps[0])
    findings += _by_default(only, after, rows, context, method)
    return Ported(
        place, context.method.id, method.id, f"{method.framework} {version}", rows,
        {word: one.value for word, one in after.items()}, only,
        frozenset(only) & set(context.method.params), steps,
        [*_unsaid(context), *_left(written, context.method, method, files)], tuple(ordered(findings)),
    )  # fmt: skip


def _same_kind(source: Method, target: Method) -> None:
    """One that measures a model and one that trains it have nothing to carry.

    Raises:
        Invalid: the two methods are of different kinds.
    """
    measures = [method.id for method in (source, target) if MEASURES in method.spec.get("starts_from", ())]
    if len(measures) == 1:
        other = target.id if measures[0] == source.id else source.id
        message = (
            f"{measures[0]} measures a finished model and {other} trains one: no parameter means the same"
        )
        raise Invalid(message, code="port-kind", hint=f"tp new NAME --method {target.id}")


def _lost(rows: Sequence[Row], target: Method) -> Iterator[Finding]:
    """A warning for each term of the objective that is at work here and has no counterpart there."""
    for row in rows:
        word = vocabulary.words()[row.name]
        if row.how == "no counterpart" and word.get("result") and row.value != word.get("neutral", row.value):
            message = (
                f"`{row.name}` {row.value} stays behind: {word['meaning']}. {target.id} trains without it"
            )
            hint = (
                "the results are not comparable; take it out of the first one, or choose a method that has it"
            )
            yield Finding("port-lost", "warning", message, hint, row.name)


def _ended(rows: Sequence[Row], target: Method, step: Mapping[str, Json]) -> Iterator[Finding]:
    """A warning where the number of steps that ends training stays behind, with what takes as much of the
    data: rows used at most, once over."""
    lost = next((row for row in rows if row.name == STEPS and row.how == "no counterpart"), None)
    if lost is None or not isinstance(lost.value, int) or lost.value <= 0:
        return
    message = f"`{STEPS}` {lost.value:,} stays behind: {target.id} ends when its epochs do"
    word = "prompts" if "prompts" in step else "examples"
    each, updates = step.get(word), step.get("updates")
    if not isinstance(each, int) or updates != 1:
        hint = "set epochs so that as much of the data is taken"
    else:
        rows_ = lost.value * each
        sum_ = f"{lost.value:,} steps x {each:,} {word} = {rows_:,} rows"
        used = f"max_samples {rows_} and epochs 1, or " if "max_samples" in target.params else ""
        hint = f"{sum_}, unless its epochs end before: set {used}epochs to {rows_:,} / the rows of the data"
    yield Finding("port-lost", "warning", message, hint, STEPS)


def _counted(
    rows: Sequence[Row], source: Method, target: Method, step: Mapping[str, Json]
) -> Iterator[Finding]:
    """A warning where one side counts optimizer steps and the other training steps, which take several."""
    updates = step.get("updates")
    if updates in (None, 1):
        return
    for row in rows:
        counts = _whole_steps(source, row.name), _whole_steps(target, row.name)
        if row.how != "kept" or counts[0] == counts[1] or not isinstance(row.value, int):
            continue
        words = ["training steps" if whole else "optimizer steps" for whole in counts]
        same = row.value * updates if counts[0] else row.value / updates
        message = f"`{row.name}` {row.value} counts {words[0]} in {source.id} and {words[1]} in {target.id}"
        hint = f"a training step makes {updates}: {row.value} of the first are {same:g} of the other"
        yield Finding("port-step", "warning", message, hint, row.name)


def _whole_steps(method: Method, name: str) -> bool:
    """Whether a parameter that the vocabulary counts in optimizer steps counts training steps in a method."""
    return bool(method.spec.get("params", {}).get(name, {}).get("unit") == WHOLE_STEPS)


def _by_default(
    only: Mapping[str, Json],
    after: Mapping[str, canonical.Said],
    rows: Sequence[Row],
    source: Context,
    target: Method,
) -> Iterator[Finding]:
    """A warning for each thing that the source says by a native key which no word of its method reads, or by
    a parameter that stays behind, and that the target's own default decides."""
    behind = {row.name: row.value for row in rows if row.how == "no counterpart"}
    params = source.method.params
    read = {key for name in canonical.values(source) if name in params for key in params[name].keys}
    for name, value in only.items():
        if is_off(name, after):
            continue
        kin = [other for other in behind if name in vocabulary.words()[other].get("shares", ())]
        keys = params[name].keys if name in params else ()
        held = [key for key in keys if key not in read and source.config.get(key) is not None]
        if kin:
            says = f"`{kin[0]}` {behind[kin[0]]} stays behind"
        elif held:
            says = f"`{held[0]}` of {source.method.id} says it in a form that is not read"
        else:
            continue
        message = f"`{name}` is {value} by the default of {target.id}: {says}"
        yield Finding("port-default", "warning", message, f"set {name} to what the first one does", name)


def _without_idle(
    params: dict[str, Json],
    rows: Sequence[Row],
    said: Mapping[str, canonical.Said],
    findings: Sequence[Finding],
) -> list[Row]:
    """Take out of `params` what does nothing in the target; the rows that say so."""
    idle = {finding.key: finding for finding in findings if finding.code == "inert-key"}
    for name in [name for name in params if name in idle and name in said]:
        del params[name]
    return [
        replace(row, how="idle", why=f"it would do nothing: {idle[row.name].message}")
        if row.name in idle and row.name not in params
        else row
        for row in rows
    ]


def _job(written: project.Written) -> dict[str, Json]:
    job = {key: value for key, value in (written.job.data or {}).items() if key in KEPT}
    data = dict(job.get("data", {}))
    for split, reference in consumed_datasets(written.config.data).items():
        data.setdefault(split, {"dataset": reference})
    return {**job, "data": data} if data else job


def _files(
    method: Method, version: str, params: Mapping[str, Json], job: Mapping[str, Json]
) -> dict[str, Path | str]:
    """The files of the new experiment: the method's templates, without what parameters say now."""
    files: dict[str, Path | str] = dict(catalog.templates(method.id, version))
    template = files.get("config.yaml")
    kept: dict[str, Json] = {}
    if template is not None:
        spoken = canonical.shapes_result() | set(params)
        owned = {key for name, param in method.params.items() if name in spoken for key in param.keys}
        document = read_yaml(template) if isinstance(template, Path) else None
        for path, value in flatten(document.data or {}, {}) if document is not None else ():
            key = ".".join(path)
            if key not in owned:
                kept[key] = value
    title = f"Native keys of {method.framework} {version}. What holds in every framework is in job.yaml."
    files["config.yaml"] = yaml_text(title, nested(kept))
    document_ = {**job, **({"params": dict(params)} if params else {})}
    if document_:
        files["job.yaml"] = yaml_text("", document_)
    files[lock.NAME] = lock.text(lock.make(method.id, version))
    return files


def _compiled(
    folder: Path, files: dict[str, Path | str], flags: Flags
) -> tuple[Compiled | None, Sequence[Finding]]:
    """(what it compiles to or None, its findings)."""
    from tuneport import workflow

    create.write_folder(folder, files)
    report = workflow.validate(str(folder), flags)
    return report.compiled, report.findings


def _placed(finding: Finding, scratch: Path, place: Path) -> Finding:
    """A finding about a draft, with the file where that is kept."""
    inside = finding.file.removeprefix(f"{scratch}/")
    return finding if inside == finding.file else replace(finding, file=os.path.relpath(place / inside))


def _apart(steps: tuple[Mapping[str, Json], Mapping[str, Json]]) -> list[Finding]:
    """A warning for each count of a training step that is another one on the other side."""
    hint = "look at the parameters that have no counterpart"
    return [
        Finding(
            "port-step", "warning", f"{word} of a training step: {here} here, {steps[1][word]} there", hint
        )
        for word, here in steps[0].items()
        if here is not None and steps[1].get(word) not in (None, here)
    ]


def _unsaid(context: Context) -> list[tuple[str, str]]:
    """Native keys that a person set and no parameter says."""
    spoken = {key for param in context.method.params.values() for key in param.keys}
    cases = context.method.spec.get("variants", {}).get("cases", {})
    spoken |= {key for case in cases.values() for keys in case.values() for key in keys}
    spoken |= {binding["key"] for binding in context.method.spec.get("bind", {}).values()}
    return [
        (key, "no parameter says what this native key does")
        for key, origin in context.origins.items()
        if origin.layer in canonical.PERSON and key not in spoken
    ]


def _code(written: project.Written) -> list[str]:
    names, _ = source_files(written.path)
    return [name for name in sorted(names) if os.path.splitext(name)[1] == ".py"]


def _left(
    written: project.Written, source: Method, target: Method, files: Mapping[str, Path | str]
) -> list[tuple[str, str]]:
    """Code of the source that does not come along: it is called in another way there."""
    if source.framework == target.framework:
        return []
    why = f"{target.framework} calls such code in its own way"
    return [
        (name, f"{why}; {name} of its template stands there" if name in files else why)
        for name in _code(written)
    ]
