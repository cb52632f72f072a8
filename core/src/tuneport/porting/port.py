"""Writes an experiment for another method that says what an existing one says."""

from __future__ import annotations

import os.path
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuneport.checks.rules import nested
from tuneport.compiler.compile import Compiled
from tuneport.compiler.layers import flatten
from tuneport.errors import Invalid
from tuneport.experiment import create, lock, project
from tuneport.experiment.facts import source_files
from tuneport.experiment.import_parts import yaml_text
from tuneport.experiment.request import Flags, consumed_datasets
from tuneport.experiment.yamlread import read_yaml
from tuneport.porting import canonical
from tuneport.porting.arithmetic import per_step
from tuneport.porting.carry import Row, carried
from tuneport.registry import catalog
from tuneport.types import Finding, Json, Method

KEPT = ("model", "data", "profile", "resources", "env", "fleet")
"""What job.yaml says whatever the method is."""


@dataclass(frozen=True, slots=True)
class Ported:
    """The new experiment. `rows` say what became of the source's parameters, `after` what the target makes of
    them, `only` what shapes the target's result and the source has no word for; `steps` are the counts of one
    training step on both sides; `findings` are those of `tp validate` with the same request."""

    path: Path
    source: str
    method: str
    release: str
    rows: list[Row]
    after: Mapping[str, Json]
    only: Mapping[str, Json]
    steps: tuple[Mapping[str, Json], Mapping[str, Json]]
    left: list[tuple[str, str]] = field(default_factory=list)
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return all(finding.severity != "error" for finding in self.findings)

    @property
    def changed(self) -> list[str]:
        """Parameters that came along and take effect as something else."""
        return [
            row.name
            for row in self.rows
            if row.how == "kept" and _listed(self.after.get(row.name)) != _listed(row.value)
        ]


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
    if report.compiled is None or not report.ok:
        raise Invalid(
            f"{name} has errors", code="port-source", hint="correct them first", findings=report.findings
        )
    context = report.compiled.context
    written = project.read(name)
    said = canonical.values(context)
    flags = replace(flags, sets=())  # parameters of the source's: they are among what it says
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
        compiled, findings = _compiled(Path(scratch) / "used", files, flags)
    create.write_folder(place, files)
    after = canonical.values(compiled.context) if compiled is not None else {}
    only = {
        word: one.value
        for word, one in after.items()
        if word in canonical.shapes_result() and word not in said and word in method.params
    }
    return Ported(
        place, context.method.id, method.id, f"{method.framework} {version}", rows,
        {word: one.value for word, one in after.items()}, only, (per_step(said), per_step(after)),
        _left(written, files, method), tuple(findings),
    )  # fmt: skip


def _without_idle(
    params: dict[str, Json],
    rows: Sequence[Row],
    said: Mapping[str, canonical.Said],
    findings: Sequence[Finding],
) -> list[Row]:
    """Take out of `params` what does nothing in the target and nobody asked for; the rows that say so."""
    idle = {finding.key: finding for finding in findings if finding.code == "inert-key"}
    for name in [name for name in params if name in idle and name in said and not said[name].asked]:
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


def _left(written: project.Written, files: Mapping[str, Path | str], method: Method) -> list[tuple[str, str]]:
    """Files of the source that do not come along: what they define has another form there."""
    names, _ = source_files(written.path)
    ours = {"config.yaml", "job.yaml", lock.NAME}
    found = []
    for name in sorted(set(names) - ours):
        if os.path.splitext(name)[1] == ".py":
            why = f"{method.framework} calls such code in its own way"
            found.append((name, f"{why}; {name} of its template stands there" if name in files else why))
    return found
