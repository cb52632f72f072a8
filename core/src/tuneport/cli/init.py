"""`tp init`."""

from __future__ import annotations

from pathlib import Path

import click

from tuneport.cli.output import json_option, print_json, talk
from tuneport.errors import Invalid
from tuneport.experiment.project import EXPERIMENTS, PROJECT_FILE

TEXT = """\
# A Tuneport project. `tp schema project` prints everything that can stand here.
project: {name}
# fleet: local        # where jobs run unless --fleet says otherwise
# profile: cpu:2      # hardware unless --profile says otherwise; h200:8 is one node of eight
# model: org/model    # the model of every experiment that names none
"""


@click.command("init")
@click.argument("folder", default=".", metavar="[DIR]")
@json_option
def command(folder: str, as_json: bool) -> None:
    """Start a project in DIR (default: here): tuneport.yaml and experiments/."""
    root = Path(folder).absolute()
    path = root / PROJECT_FILE
    if path.exists():
        raise Invalid(
            f"{path} exists already", code="project-exists", hint="it is a project; go on with `tp new`"
        )
    (root / EXPERIMENTS).mkdir(parents=True, exist_ok=True)
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in root.name) or "project"
    write_new(path, TEXT.format(name=f'"{name}"'))
    if as_json:
        print_json({"ok": True, "project": str(root)})
    else:
        talk(f"started a project in {root}; next: tp methods, then tp new NAME --method FRAMEWORK/METHOD")


def write_new(path: Path, text: str) -> None:
    """Write a file that must not exist yet, whole or not at all."""
    import os

    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("x", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(partial, path)
    except FileExistsError:
        raise Invalid(f"{path} exists already", code="file-exists") from None
    finally:
        partial.unlink(missing_ok=True)
