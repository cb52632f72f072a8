"""Merges what was asked for: flags, then job.yaml, tuneport.yaml and the site file."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tuneport.errors import TuneportError
from tuneport.experiment import fleets, hardware, values
from tuneport.experiment.project import Folder, Written
from tuneport.experiment.site import load_site
from tuneport.text import closest
from tuneport.types import EMPTY, Finding, Json, Location, Method, Request, Topology

_ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]*\Z"
_FLEETS_OWN = r"TUNEPORT_(CLUSTER_\w*|JOB_(ID|KEY)|ATTEMPT|ROLE|OUTPUT_DIR|LOG_DIR|REPORT_FILE)\Z"
"""What every fleet sets for a command; the schema of fleets refuses the same names."""


class Flags(NamedTuple):
    """The request flags of the command line, as text; empty means not given. `model_run` is the job whose
    output is the model, which wins over `model`."""

    framework_version: str = ""
    profile: str = ""
    resources: str = ""
    model: str = ""
    train_data: str = ""
    validation_data: str = ""
    train_dataset: str = ""
    validation_dataset: str = ""
    sets: tuple[str, ...] = ()
    image: str = ""
    fleet: str = ""
    facts: str = ""
    model_run: str = ""


class Asked(NamedTuple):
    """The merged request with its hardware. `sources` says where each parameter came from."""

    request: Request
    topology: Topology
    findings: tuple[Finding, ...]
    param_origins: Mapping[str, str] = EMPTY


def merge(written: Written, flags: Flags, method: Method) -> Asked:
    """The request for one experiment; every problem with it is a finding."""
    job: Mapping[str, Json] = written.job.data
    project: Mapping[str, Json] = written.project.spec if written.project else {}
    site = load_site()
    findings: list[Finding] = []

    fleet = flags.fleet or job.get("fleet") or project.get("fleet") or site.get("fleet") or "local"
    params, origins = _params(job, flags, method, written, findings)
    place = _place(fleet, written.project, findings)
    topology = _topology(flags, job, project, place, method, findings)
    topology, problems = hardware.with_roles(topology, method) if topology.pools else (topology, [])
    findings += [*problems, *fleets.unfit(place, topology.pools), *_wrong_settings(place)]
    env = {**project.get("env", {}), **job.get("env", {})}
    findings += [problem for name in env for problem in _wrong_name(name)]

    # A project's model is a default for the methods that take one, not a demand on the others.
    default_model = project.get("model", "") if "model" in method.spec.get("bind", {}) else ""
    consumed = consumed_datasets(written.config.data)
    request = Request(
        model=Location("run", "", flags.model_run)
        if flags.model_run
        else _location(flags.model or job.get("model") or default_model, "", written, flags.model),
        train_data=_data("train", flags.train_data, flags.train_dataset, job, consumed, written, findings),
        validation_data=_data(
            "validation", flags.validation_data, flags.validation_dataset, job, consumed, written, findings
        ),
        params=params,
        image=flags.image or job.get("image") or project.get("image", ""),
        fleet=fleet,
        env=env,
        native=job.get("native", {}),
        own_environment=place.images == "none",
        digest_only=place.images == "digest",
    )
    return Asked(request, topology, tuple(findings), origins)


def _wrong_name(variable: str) -> Iterator[Finding]:
    key = f"env.{variable}"
    if not re.match(_ENV_NAME, variable):
        yield Finding("env-name", "error", f"{variable!r} is not the name of a variable", "", key)
    elif re.match(_FLEETS_OWN, variable):
        message = f"the variable {variable} is written by the fleet"
        yield Finding("env-platform", "error", message, "delete it from `env`", key)


def _wrong_settings(place: fleets.Place) -> list[Finding]:
    """Of a fleet that a file declares, where the plugin that knows its kind is here."""
    from tuneport.errors import NotFound

    if not place.documents or place.kind == "local":
        return []
    try:
        return fleets.wrong_settings(place)
    except NotFound:
        return []


def consumed_datasets(config: Mapping[str, Json]) -> dict[str, str]:
    """`data.train.dataset` and `data.validation.dataset` of config.yaml, which no framework ever sees."""
    found = {}
    data = config.get("data")
    for split in ("train", "validation"):
        section = data.get(split) if isinstance(data, dict) else None
        if isinstance(section, dict) and section.get("dataset") is not None:
            found[split] = str(section["dataset"])  # what is no reference is said to be none
    return found


def _params(
    job: Mapping[str, Json], flags: Flags, method: Method, written: Written, findings: list[Finding]
) -> tuple[dict[str, Json], dict[str, str]]:
    from_job: Mapping[str, Json] = job.get("params", {})
    for problem in values.check(from_job, method, "params"):
        line = written.job.line(("params", problem.key))
        findings.append(
            Finding(
                problem.code,
                problem.severity,
                problem.message,
                problem.hint,
                problem.key,
                written.job.file,
                line,
            )
        )
    from_flags, notes = values.collect(list(flags.sets), method)
    findings += [*notes, *values.check(from_flags, method, "--set")]
    bad = {finding.key for finding in findings if finding.code.startswith("param-")}
    params = {name: value for name, value in {**from_job, **from_flags}.items() if name not in bad}
    return params, {name: "--set" if name in from_flags else "job.yaml" for name in params}


def _topology(
    flags: Flags,
    job: Mapping[str, Json],
    project: Mapping[str, Json],
    place: fleets.Place,
    method: Method,
    findings: list[Finding],
) -> Topology:
    if flags.resources:
        return _resources_file(Path(flags.resources), findings)
    profile = flags.profile
    if not profile and "resources" in job:
        return hardware.from_resources(job["resources"])
    profile = profile or job.get("profile") or project.get("profile", "")
    if not profile:
        return Topology(())
    topology, problems = hardware.from_profile(profile, place.node_gpus)
    findings += problems
    if topology is not None and len(topology.pools) > 1:
        topology = hardware.roles_by_name(topology, method)
    return topology or Topology(())


def _place(name: str, project: Folder | None, findings: list[Finding]) -> fleets.Place:
    """The fleet of the request. One that nobody declares here is a note: another machine may know it."""
    declared, problems = fleets.places(project)
    findings += problems
    if name in declared:
        return declared[name]
    place = fleets.undeclared(name)
    if name != "local" and not problems:
        from tuneport.registry.plugins import points

        installed = points("tuneport.fleets")
        if place.kind not in installed:
            known = sorted({*declared, *installed})
            near = closest(name, known)
            hint = f"did you mean {near!r}?" if near else f"known here: {', '.join(known)}"
            message = f"no fleet called {name!r} is declared here"
            findings.append(Finding("fleet-unknown", "note", message, hint, "--fleet"))
    return place


def _resources_file(path: Path, findings: list[Finding]) -> Topology:
    from tuneport.experiment.yamlread import read_yaml
    from tuneport.registry import schemas

    try:
        document = read_yaml(path)
    except TuneportError as error:
        findings.append(Finding(error.code, "error", error.message, error.hint, "--resources", str(path)))
        return Topology(())
    problems = document.findings or schemas.check(document, "resources", "resources-schema")
    findings += problems
    if not problems and not hardware.from_resources(document.data).pools:
        findings.append(
            Finding("resources-empty", "error", "no pools", "write `pools:`", "pools", str(path), 1)
        )
    return Topology(()) if problems else hardware.from_resources(document.data)


def _data(
    split: str,
    path: str,
    dataset: str,
    job: Mapping[str, Json],
    consumed: Mapping[str, str],
    written: Written,
    findings: list[Finding],
) -> Location | None:
    declared = job.get("data", {}).get(split, {})
    dataset = dataset or declared.get("dataset") or consumed.get(split, "")
    where = f"--{split}-dataset"
    inside = path or declared.get("path", "")
    if dataset:
        from tuneport.datasets import parse_reference

        try:
            parse_reference(dataset)
        except TuneportError as error:
            findings.append(Finding(error.code, "error", error.message, error.hint, where))
            return None
        if os.path.isabs(inside) or os.path.normpath(inside).split(os.sep)[0] == "..":
            message = f"--{split}-data {inside} lies outside the dataset {dataset}"
            hint = "give a path inside the dataset, or leave the dataset out"
            findings.append(Finding("dataset-path", "error", message, hint, f"--{split}-data"))
            return None
    first, *others = _parts(inside, dataset)
    location = _location(first, dataset, written, path)
    more = [_location(part, dataset, written, path) for part in others]
    if location is None or not more:
        return location
    return location._replace(others=tuple(part for part in more if part is not None))


def _parts(text: str, dataset: str) -> list[str]:
    """Several files, separated by commas; one whose name has a comma is still one."""
    if "," not in text or (not dataset and os.path.exists(text)):
        return [text]
    return [part.strip() for part in text.split(",") if part.strip()] or [text]


def _location(text: str, dataset: str, written: Written, from_flag: str) -> Location | None:
    """Where a path or name points. With a dataset it is inside that; else absolute, a file of the
    experiment, a file seen from the working directory (flags only), or a name for the framework."""
    if dataset:
        return Location("dataset", text, dataset)
    if not text:
        return None
    if "\0" in text:
        return Location("hub", text)
    if os.path.isabs(text):
        return Location("path", text)
    inside = os.path.normpath(text)
    if not inside.startswith("..") and os.path.exists(written.path / inside):
        return Location("experiment", inside)
    if from_flag and os.path.exists(text):
        return Location("path", os.path.abspath(text))
    if text.startswith((".", "~")) or text.count("/") > 1 or os.path.splitext(text)[1] in _FILES:
        base = Path.cwd() if from_flag else written.path
        return Location("path", os.path.abspath(base / os.path.expanduser(text)))
    return Location("hub", text)


_TEXTS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt", ".gz", ".bz2", ".xz", ".zst")
_FILES = (*_TEXTS, ".parquet", ".arrow", ".npz", ".npy", ".pt")
