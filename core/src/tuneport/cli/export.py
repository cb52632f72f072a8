"""`tp export`."""

from __future__ import annotations

import click

from tuneport.cli.options import experiment_argument, request_flags
from tuneport.cli.output import json_option
from tuneport.cli.submit import announce
from tuneport.experiment.request import Flags


@click.command("export")
@experiment_argument
@click.option(
    "--checkpoint", metavar="JOB|DIR", required=True, help="A job (or JOB/sub/folder), or a folder."
)
@click.option("--checkpoint-format", metavar="FORMAT", default="", help="Default: the method's first format.")
@request_flags
@click.option("--follow", is_flag=True, help="Follow the log until the job ends; exit 1 if it fails.")
@json_option
def command(
    experiment: str, checkpoint: str, checkpoint_format: str, flags: Flags, follow: bool, as_json: bool
) -> int:
    """Turn a checkpoint of EXPERIMENT into a layout that others can load, as a job of its own."""
    from tuneport import workflow
    from tuneport.api import Experiment, checkpoint_location

    location = checkpoint_location(checkpoint)
    job = Experiment(experiment).perform(
        *workflow.export_plan(experiment, flags, location, checkpoint_format)
    )
    return announce(job, follow=follow, as_json=as_json)
