"""`tp check`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tuneport.cli.options import command_flags
from tuneport.cli.output import data, json_option, print_json
from tuneport.types import Finding, Json


@click.command("check", context_settings={"ignore_unknown_options": False})
@command_flags
@json_option
def command(known: dict[str, Any], words: tuple[str, ...], as_json: bool) -> int:
    """Say what is wrong with an existing command, script or job file, without running it.

    Give the command as you would type it (tp check -- python -m package.module key=value), a script
    (tp check train.sh), a piece of shell as one word, or the YAML file of a job for Kubernetes or SkyPilot
    (tp check job.yaml). Exit code 3 when any finding is an error.
    """
    from tuneport import workflow
    from tuneport.experiment.findings import findings_text

    report = workflow.check(words, **known)
    if as_json:
        print_json(report.to_json())
        return 0 if report.ok else 3
    text = findings_text(report.findings)
    if text:
        data(text.rstrip())
    said = counted(report.findings)
    commands = report.facts["commands"]
    for one in commands:
        what = command_text(one)
        data(what if len(commands) > 1 else f"{what}: {said or 'nothing to say against it'}")
    if not commands:
        data(f"{words[0]}: {said or 'nothing to say against it'}")
    if len(commands) > 1:
        data(f"{len(commands)} commands: {said or 'nothing to say against them'}")
    return 0 if report.ok else 3


def command_text(one: dict[str, Json]) -> str:
    """What a command is, and where it stands in its script."""
    where = f"{one['file']}:{one['line']}: " if one["line"] else ""
    on = f" on {one['release']}" if one["release"] else ""
    return f"{where}{one['method'] or one['entry']}{on}"


def counted(findings: Sequence[Finding]) -> str:
    """`1 error, 2 notes`; empty where there are none."""
    counts = [(sum(f.severity == kind for f in findings), kind) for kind in ("error", "warning", "note")]
    return ", ".join(f"{number} {kind}{'s' * (number != 1)}" for number, kind in counts if number)
