"""Finds a project and its experiments on disk, and reads what people wrote there."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tuneport.errors import Invalid, NotFound
from tuneport.experiment.twin import read_kept
from tuneport.experiment.yamlread import Document
from tuneport.text import closest
from tuneport.types import Finding, Json

PROJECT_FILE = "tuneport.yaml"
EXPERIMENTS = "experiments"
MAX_NAME = 128
NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}}\Z")


class Folder(NamedTuple):
    """A project: the folder that holds `tuneport.yaml`, with the file's (checked) content."""

    root: Path
    spec: Mapping[str, Json]
    findings: tuple[Finding, ...] = ()

    @property
    def experiments(self) -> Path:
        return self.root / EXPERIMENTS


class Written(NamedTuple):
    """An experiment as its author wrote it: nothing merged, nothing judged but the files themselves."""

    name: str
    path: Path
    config: Document
    job: Document
    lock: Mapping[str, Json] | None
    findings: tuple[Finding, ...]
    project: Folder | None = None


def find_project(start: Path | None = None) -> Folder | None:
    """The project at `start` (the working directory) or the nearest folder above it."""
    from tuneport.registry import schemas

    try:
        here = (start or Path.cwd()).absolute()
    except OSError as error:
        raise NotFound(
            "the working directory no longer exists", code="cwd-missing", hint="cd elsewhere"
        ) from error
    for folder in (here, *here.parents):
        path = folder / PROJECT_FILE
        if path.is_file():
            document = read_kept(path)
            findings = list(document.findings)
            if not findings and document.data is not None:
                findings = schemas.check(document, "project", "project-schema")
            spec = document.data if isinstance(document.data, dict) and not findings else {}
            return Folder(folder, spec, tuple(findings))
    return None


def need_project() -> Folder:
    """The project here.

    Raises:
        NotFound: the working directory is in none.
    """
    project = find_project()
    if project is None:
        raise NotFound(
            f"no {PROJECT_FILE} here or in a folder above",
            code="project-missing",
            hint="tp init starts a project",
        )
    return project


def names(project: Folder) -> list[str]:
    """The experiments of a project: each folder that holds a config.yaml or a lock. One whose name begins
    with a dot is a draft."""
    try:
        entries = sorted(os.scandir(project.experiments), key=lambda entry: entry.name)
    except OSError:
        return []
    marks = ("config.yaml", "recipe.lock.json")
    return [
        e.name
        for e in entries
        if not e.name.startswith(".")
        and e.is_dir()
        and any(os.path.exists(os.path.join(e.path, m)) for m in marks)
    ]


def locate(name: str) -> tuple[Path, Folder | None]:
    """The folder of an experiment: a name in this project, or a path to the folder itself.

    Raises:
        NotFound: there is none; close names are offered.
    """
    if "\0" in name:
        raise NotFound(f"no experiment can be called {name!r}", code="experiment-missing")
    if os.sep in name or name in (".", ".."):
        path = Path(name)
        if path.is_dir():
            return path.absolute(), find_project(path)
        raise NotFound(f"{name} is not a folder", code="experiment-missing")
    project = need_project()
    path = project.experiments / name
    if NAME.match(name) and path.is_dir():
        return path, project
    known = names(project)
    close = closest(name, known)
    hint = f"did you mean {close!r}?" if close else f"this project has {', '.join(known[:20]) or 'none yet'}"
    raise NotFound(
        f"no experiment named {name!r} in {project.experiments}", code="experiment-missing", hint=hint
    )


def read(name: str) -> Written:
    """Read an experiment's config.yaml, job.yaml and lock, keeping every problem as a finding.

    Raises:
        NotFound: no such experiment.
    """
    from tuneport.experiment import lock, two_files
    from tuneport.registry import schemas

    path, project = locate(name)
    config = _config(path / "config.yaml")
    findings = [*(project.findings if project else ()), *config.findings, *two_files.unfinished(path)]
    job = Document(data={}, file=str(path / "job.yaml"))
    if (path / "job.yaml").exists():
        job = _config(path / "job.yaml")
        findings += job.findings
        if not job.findings:
            broken = schemas.check(job, "job", "job-schema")
            findings += broken
            if broken:
                job.data = {}
    locked, problems = lock.read(path / lock.NAME)
    return Written(path.name, path, config, job, locked, (*findings, *problems), project)


def _config(path: Path) -> Document:
    """A user's YAML file as a mapping; an absent or empty one is an empty mapping."""
    try:
        document = read_kept(path)
    except NotFound:
        return Document(data={}, file=str(path))
    except Invalid as error:
        finding = Finding(error.code, "error", error.message, error.hint, path.name, str(path))
        return Document(data={}, file=str(path), findings=[finding])
    if document.data is None:
        document.data = {}
    elif not isinstance(document.data, dict):
        message = f"{path.name} holds a {type(document.data).__name__}, not keys with values"
        document.findings.append(
            Finding("yaml-root", "error", message, "write `key: value` lines", path.name, str(path), 1)
        )
        document.data = {}
    return document
