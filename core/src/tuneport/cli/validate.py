"""`tp validate`."""

from __future__ import annotations

import click

from tuneport.cli.options import experiment_argument, request_flags
from tuneport.cli.output import data, json_option, print_json
from tuneport.experiment.request import Flags


@click.command("validate")
@experiment_argument
@request_flags
@json_option
def command(experiment: str, flags: Flags, as_json: bool) -> int:
    """Say everything that is wrong with EXPERIMENT, at once. Exit code 3 when any finding is an error."""
    from tuneport import workflow
    from tuneport.experiment.findings import findings_text

    report = workflow.validate(experiment, flags)
    if as_json:
        print_json(report.to_json())
        return 0 if report.ok else 3
    text = findings_text(report.findings)
    if text:
        data(text.rstrip())
    counts = [sum(f.severity == kind for f in report.findings) for kind in ("error", "warning", "note")]
    words = [
        f"{n} {kind}{'s' * (n != 1)}"
        for n, kind in zip(counts, ("error", "warning", "note"), strict=True)
        if n
    ]
    data(f"{experiment}: {', '.join(words) or 'nothing to say against it'}")
    return 0 if report.ok else 3
