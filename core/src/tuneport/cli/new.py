"""`tp new`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from tuneport.cli.options import experiment_names, method_ids
from tuneport.cli.output import json_option, print_json, talk
from tuneport.errors import Invalid, UsageError
from tuneport.experiment import lock, project
from tuneport.registry import catalog


@click.command("new")
@click.argument("name")
@click.option("--method", metavar="ID", default="", shell_complete=method_ids, help="What to train with.")
@click.option("--framework-version", metavar="V", default="", help="A release other than the default.")
@click.option(
    "--from", "source", metavar="EXP", default="", shell_complete=experiment_names, help="Copy an experiment."
)
@json_option
def command(name: str, method: str, framework_version: str, source: str, as_json: bool) -> None:
    """Create experiments/NAME with a short config.yaml, what the method starts from, and the lock."""
    if bool(method) == bool(source):
        raise UsageError(
            "give either --method or --from", code="new-source", hint="tp methods lists the methods"
        )
    here = project.need_project()
    if not project.NAME.match(name):
        hint = "use letters, digits, dot, dash and underscore; start with a letter or digit"
        raise Invalid(f"{name!r} cannot be the name of an experiment", code="experiment-name", hint=hint)
    target = here.experiments / name
    files, chosen, version = (
        _from_experiment(source, framework_version) if source else _fresh(method, framework_version)
    )
    fresh_lock = lock.make(chosen, version)
    _write(target, files, lock.text(fresh_lock))
    if as_json:
        print_json({"ok": True, "experiment": name, "path": str(target), "lock": fresh_lock})
        return
    talk(f"created {os.path.relpath(target)} for {chosen} on {chosen.partition('/')[0]} {version}")
    talk(f"next: edit {os.path.relpath(target / 'config.yaml')}, then tp validate {name}")


def _fresh(method: str, version: str) -> tuple[dict[str, Path | str], str, str]:
    resolved = catalog.method(method, version)
    version = version or catalog.default_release(resolved.framework)
    files: dict[str, Path | str] = dict(catalog.templates(method))
    files.setdefault("config.yaml", f"# {resolved.title}: native keys of {resolved.framework} {version}.\n")
    return files, method, version


def _from_experiment(source: str, version: str) -> tuple[dict[str, Path | str], str, str]:
    from tuneport.experiment.facts import source_files

    written = project.read(source)
    if written.lock is None:
        raise Invalid(f"{source} has no usable lock", code="lock-missing", findings=written.findings)
    names, findings = source_files(written.path)
    if findings:
        raise Invalid(f"{source} cannot be copied", code="source", findings=findings)
    files: dict[str, Path | str] = {name: written.path / name for name in names if name != lock.NAME}
    return files, written.lock["recipe"]["name"], version or written.lock["framework"]["version"]


def _write(target: Path, files: dict[str, Path | str], lock_text: str) -> None:
    """Build the folder under another name and rename it: it appears whole or not at all."""
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
        (partial / lock.NAME).write_text(lock_text, "utf-8")
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
