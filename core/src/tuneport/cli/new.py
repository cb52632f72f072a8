"""`tp new`."""

from __future__ import annotations

import os

import click

from tuneport.cli.options import experiment_names, method_ids
from tuneport.cli.output import json_option, print_json, talk
from tuneport.errors import UsageError


@click.command("new")
@click.argument("name")
@click.option("--method", metavar="ID", default="", shell_complete=method_ids, help="What to train with.")
@click.option("--framework-version", metavar="V", default="", help="A release other than the default.")
@click.option(
    "--from", "source", metavar="EXP", default="", shell_complete=experiment_names, help="Copy this one."
)
@json_option
def command(name: str, method: str, framework_version: str, source: str, as_json: bool) -> None:
    """Create experiments/NAME with a short config.yaml, what the method starts from, and the lock."""
    from tuneport.experiment import create, project

    if bool(method) == bool(source):
        raise UsageError(
            "give either --method or --from", code="new-source", hint="tp methods lists the methods"
        )
    path, lock = create.new_experiment(project.need_project(), name, method, framework_version, source)
    if as_json:
        print_json({"ok": True, "experiment": name, "path": str(path), "lock": lock})
        return
    where = os.path.relpath(path)
    release = f"{lock['framework']['kind']} {lock['framework']['version']}"
    talk(f"created {where} for {lock['recipe']['name']} on {release}")
    talk(f"next: edit {os.path.join(where, 'config.yaml')}, then tp validate {name}")
