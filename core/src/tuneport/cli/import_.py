"""`tp import`."""

from __future__ import annotations

import os
import shlex
from typing import Any

import click

from tuneport.cli.options import command_flags
from tuneport.cli.output import data, json_option, print_json, printable, talk


@click.command("import", context_settings={"ignore_unknown_options": False})
@command_flags
@click.option("--as", "name", metavar="NAME", required=True, help="The experiment to create.")
@json_option
def command(known: dict[str, Any], words: tuple[str, ...], name: str, as_json: bool) -> int:
    """Make an experiment of an existing command or script: one that compiles back to the same configuration.

    It takes the command as tp check does. Model, data and hardware belong to the request: the flags for
    them are printed. What Tuneport sets itself is named and not written, and so is every variable that looks
    like a secret. Nothing is overwritten. Exit code 3 where the experiment was written and has errors.
    """
    from tuneport import workflow
    from tuneport.experiment.findings import finding_to_json, findings_text

    made = workflow.import_command(words, name, **known)
    text = findings_text(made.findings)
    if as_json:
        document = {"ok": made.ok, "experiment": name, "path": str(made.path), "method": made.method}
        document |= {"release": made.release, "flags": dict(made.flags)}
        document["findings"] = [finding_to_json(finding) for finding in made.findings]
        print_json({**document, "left": [{"key": key, "why": why} for key, why in made.left]})
        return 0 if made.ok else 3
    if text:
        talk(text.rstrip())
    talk(f"created {os.path.relpath(made.path)} for {made.method} on {made.release}")
    for key, why in made.left:
        talk(printable(f"not written: {key} ({why})"))
    flags = " ".join(f"{flag} {shlex.quote(value)}" for flag, value in made.flags.items())
    data(printable(f"tp validate {name} {flags}".rstrip()))
    data(printable(f"tp plan {name} {flags}".rstrip()))
    if not made.ok:
        talk("it does not validate yet: correct what the errors above say")
    return 0 if made.ok else 3
