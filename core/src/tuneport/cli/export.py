"""`tp export`."""

from __future__ import annotations

import click

from tuneport.cli.options import experiment_argument, request_flags
from tuneport.cli.output import json_option
from tuneport.experiment.request import Flags


@click.command("export")
@experiment_argument
@click.option(
    "--checkpoint",
    metavar="JOB|PATH",
    required=True,
    help="A job's id (optionally JOB/sub/folder) or a folder.",
)
@click.option(
    "--checkpoint-format",
    metavar="FORMAT",
    default="",
    help="One of the method's formats (default: its first).",
)
@request_flags
@click.option("--follow", is_flag=True, help="Follow the log until the job ends; exit 1 if it fails.")
@json_option
def command(
    experiment: str, checkpoint: str, checkpoint_format: str, flags: Flags, follow: bool, as_json: bool
) -> int:
    """Turn a checkpoint of EXPERIMENT into a layout that others can load, as a job of its own."""
    from tuneport import api
    from tuneport.cli.submit import announce

    job = api.export(experiment, flags, checkpoint, checkpoint_format)
    return announce(job.id, follow=follow, as_json=as_json)
