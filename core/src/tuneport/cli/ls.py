"""`tp ls`."""

from __future__ import annotations

import click

from tuneport.cli.output import data, json_option, print_json, table, talk
from tuneport.experiment import project


@click.command("ls")
@json_option
def command(as_json: bool) -> None:
    """List the experiments of this project with their method and release."""
    here = project.need_project()
    rows = []
    for name in project.names(here):
        written = project.read(str(here.experiments / name))
        recipe = (written.lock or {}).get("recipe", {}).get("name", "")
        version = (written.lock or {}).get("framework", {}).get("version", "")
        errors = sum(finding.severity == "error" for finding in written.findings)
        rows.append({"experiment": name, "method": recipe, "release": version, "errors": errors})
    if as_json:
        print_json({"ok": True, "project": str(here.root), "experiments": rows})
    elif rows:
        lines = [
            [r["experiment"], r["method"] or "?", r["release"] or "?", "broken" if r["errors"] else ""]
            for r in rows
        ]
        data(table(lines, ("experiment", "method", "release", "")))
    else:
        talk("no experiments yet: tp new NAME --method FRAMEWORK/METHOD")
