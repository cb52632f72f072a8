"""`tp export`."""

from __future__ import annotations

import click

from tuneport.cli.options import experiment_argument, request_flags
from tuneport.cli.output import json_option
from tuneport.cli.submit import announce, dry_run_option, rehearse, tell
from tuneport.experiment.request import Flags


@click.command("export")
@experiment_argument
@click.option(
    "--checkpoint", metavar="JOB|PATH", required=True, help="A job (or JOB/sub/folder), or a folder or file."
)
@click.option("--checkpoint-format", metavar="FORMAT", default="", help="Default: the method's first format.")
@request_flags
@dry_run_option
@click.option("--follow", is_flag=True, help="Follow the log until the job ends; exit 1 if it fails.")
@json_option
def command(
    experiment: str,
    checkpoint: str,
    checkpoint_format: str,
    flags: Flags,
    dry_run: bool,
    follow: bool,
    as_json: bool,
) -> int:
    """Turn a checkpoint of EXPERIMENT into a layout that others can load, as a job of its own."""
    from tuneport import workflow
    from tuneport.api import Experiment, checkpoint_location

    location = checkpoint_location(checkpoint)
    plan, report = workflow.export_plan(experiment, flags, location, checkpoint_format)
    if dry_run:
        return rehearse(experiment, plan, report, as_json=as_json)
    tell(report, quiet=as_json)
    job = Experiment(experiment).perform(plan, report, parent=location.owner)
    return announce(job, follow=follow, as_json=as_json)
