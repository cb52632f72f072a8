"""Creates projects and experiments on disk, and moves locks: each change appears whole or not at all."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from pathlib import Path

from tuneport.errors import Invalid
from tuneport.experiment import lock, project
from tuneport.experiment.facts import source_files
from tuneport.processes import alive
from tuneport.registry import catalog
from tuneport.types import Json

PROJECT_TEXT = """\
# A Tuneport project. `tp schema project` prints everything that can stand here.
project: {name}
# fleet: local        # where jobs run unless --fleet says otherwise
# profile: cpu:2      # hardware unless --profile says otherwise; h200:8 is one node of eight
# model: org/model    # the model of every experiment that names none
"""


def new_project(root: Path) -> Path:
    """Start a project: tuneport.yaml and experiments/.

    Raises:
        Invalid: the folder is a project already.
    """
    path = root / project.PROJECT_FILE
    if path.exists():
        raise Invalid(
            f"{path} exists already", code="project-exists", hint="it is a project; go on with `tp new`"
        )
    (root / project.EXPERIMENTS).mkdir(parents=True, exist_ok=True)
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in root.name) or "project"
    write_atomic(path, PROJECT_TEXT.format(name=f'"{name}"'), replace=False)
    return root


def new_experiment(
    here: project.Folder, name: str, method: str = "", version: str = "", source: str = ""
) -> tuple[Path, dict[str, Json]]:
    """Create experiments/NAME from a method's templates or from another experiment; returns the folder and
    its lock.

    Raises:
        Invalid: the name is taken or impossible. NotFound: the method, release or source is unknown.
    """
    target = new_folder(here, name)
    files, chosen, release = _copied(source, version) if source else _fresh(method, version)
    fresh = lock.make(chosen, release)
    write_folder(target, {**files, lock.NAME: lock.text(fresh)})
    return target, fresh


def new_folder(here: project.Folder, name: str) -> Path:
    """Where a new experiment goes.

    Raises:
        Invalid: the name is taken or impossible.
    """
    if len(name) > project.MAX_NAME:
        message = f"{name[:20]!r}… cannot be the name of an experiment: it has {len(name)} characters"
        hint = f"use at most {project.MAX_NAME}"
        raise Invalid(message, code="experiment-name", hint=hint)
    if not project.NAME.match(name):
        hint = "use letters, digits, dot, dash and underscore; start with a letter or digit"
        raise Invalid(f"{name!r} cannot be the name of an experiment", code="experiment-name", hint=hint)
    target = here.experiments / name
    if os.path.lexists(target):
        raise Invalid(f"{target} exists already", code="experiment-exists", hint="choose another name")
    return target


def fresh_lock(
    written: project.Written, version: str = "", method: str = ""
) -> tuple[dict[str, Json], str, list[dict[str, Json]]]:
    """(the lock that the installed catalog would write for an experiment, its release, what changes).

    A lock that cannot be trusted is replaced only where `method` says what the experiment is.

    Raises:
        Invalid: there is no usable lock and no method was named.
    """
    old = written.lock
    if old is None and not method:
        raise Invalid(
            f"the lock of {written.name} cannot be used, so it does not say which method this is",
            code="lock",
            hint=f"tp recipe upgrade {written.name} --method FRAMEWORK/METHOD",
            findings=[finding for finding in written.findings if finding.code.startswith("lock-")],
        )
    chosen = method or (old or {})["recipe"]["name"]
    framework = chosen.partition("/")[0]
    locked = (old or {}).get("framework", {}).get("version", "")
    version = version or (
        locked if locked in catalog.releases(framework) else catalog.default_release(framework)
    )
    fresh = lock.make(chosen, version)
    changes = lock.differences(old, fresh) if old is not None else [("recipe.name", None, chosen)]
    rows = [{"field": field, "locked": was, "installed": now} for field, was, now in changes]
    return fresh, version, rows


def write_atomic(path: Path, text: str, *, replace: bool = True) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new and nothing between.

    Raises:
        Invalid: it exists and may not be replaced.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        if replace:
            with contextlib.suppress(FileNotFoundError):  # who may read it stays as it was
                partial.chmod(path.stat().st_mode & 0o777)
            partial.replace(path)
        else:
            os.link(partial, path)
    except FileExistsError:
        raise Invalid(f"{path} exists already", code="file-exists") from None
    finally:
        partial.unlink(missing_ok=True)


def _fresh(method: str, version: str) -> tuple[dict[str, Path | str], str, str]:
    resolved = catalog.method(method, version)
    version = version or catalog.default_release(resolved.framework)
    files: dict[str, Path | str] = dict(catalog.templates(method, version))
    files.setdefault("config.yaml", f"# {resolved.title}: native keys of {resolved.framework} {version}.\n")
    return files, method, version


def _copied(source: str, version: str) -> tuple[dict[str, Path | str], str, str]:
    written = project.read(source)
    if written.lock is None:
        raise Invalid(f"{source} has no usable lock", code="lock-missing", findings=written.findings)
    names, findings = source_files(written.path)
    if findings:
        raise Invalid(f"{source} cannot be copied", code="source", findings=findings)
    files: dict[str, Path | str] = {name: written.path / name for name in names if name != lock.NAME}
    return files, written.lock["recipe"]["name"], version or written.lock["framework"]["version"]


def write_folder(target: Path, files: dict[str, Path | str]) -> None:
    """Build the folder under another name and rename it.

    Raises:
        Invalid: it is there already.
    """
    _sweep(target)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        for name, content in files.items():
            path = partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                shutil.copyfile(content, path)
            else:
                path.write_text(content, "utf-8")
        if target.exists():
            raise FileExistsError
        partial.rename(target)
    except OSError as error:
        if isinstance(error, FileExistsError) or target.exists():
            raise Invalid(
                f"{target} exists already", code="experiment-exists", hint="choose another name"
            ) from None
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _sweep(target: Path) -> None:
    """Drop the drafts of `target` whose process was killed."""
    prefix = f".{target.name}."
    for path in target.parent.glob(f"{glob.escape(prefix)}*"):
        pid = path.name.removeprefix(prefix)
        if pid.isdigit() and (int(pid) == os.getpid() or not alive(int(pid))):
            shutil.rmtree(path, ignore_errors=True)
