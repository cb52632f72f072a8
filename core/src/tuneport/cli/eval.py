"""`tp eval`."""

from __future__ import annotations

import click

from tuneport.cli.options import experiment_argument, request_flags
from tuneport.cli.output import data, json_option, print_json, table, talk
from tuneport.experiment.request import Flags


@click.command("eval")
@experiment_argument
@click.option(
    "--run-id", metavar="JOB", default="", help="Evaluate what this job wrote, and attach the scores to it."
)
@request_flags
@click.option(
    "--follow/--no-follow", default=True, help="Wait and print the scores (the default), or only submit."
)
@json_option
def command(experiment: str, run_id: str, flags: Flags, follow: bool, as_json: bool) -> int:
    """Evaluate a model (--model) or a job's result (--run-id) with the experiment's eval.py."""
    from tuneport import api
    from tuneport.cli.submit import announce
    from tuneport.jobs import manager

    job = api.evaluate(experiment, flags, run_id)
    if not follow:
        return announce(job.id, follow=False, as_json=as_json)
    if not as_json:
        talk(f"job {job.id}")
        for line in job.logs(follow=True):
            talk(line.text)
    status = job.wait()
    scores = api.scores(job)
    if as_json:
        print_json(
            {
                "ok": status.state == "SUCCEEDED",
                "job": job.id,
                "state": status.state,
                "cause": status.cause,
                **scores,
            }
        )
    else:
        rows = [
            [s["task"], s["metric"], f"{s['value']:.4f}", str(s.get("n", ""))]
            for s in scores.get("scores", ())
        ]
        if rows:
            data(table(rows, ("task", "metric", "value", "n")))
        if status.state != "SUCCEEDED":
            talk(f"{job.id}: {status.state} ({status.cause}); tp job logs {manager.get(job.id).id}")
    return 0 if status.state == "SUCCEEDED" else 1
