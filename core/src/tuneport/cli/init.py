"""`tp init`."""

from __future__ import annotations

from pathlib import Path

import click

from tuneport.cli.output import json_option, print_json, talk


@click.command("init")
@click.argument("folder", default=".", metavar="[DIR]")
@json_option
def command(folder: str, as_json: bool) -> None:
    """Start a project in DIR (default: here): tuneport.yaml and experiments/."""
    from tuneport.experiment.create import new_project

    root = new_project(Path(folder).absolute())
    if as_json:
        print_json({"ok": True, "project": str(root)})
    else:
        move = "" if folder == "." else f"cd {folder}, "
        talk(f"started a project in {root}; next: {move}tp methods, tp new NAME --method FRAMEWORK/METHOD")
