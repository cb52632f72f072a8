"""`tp eval`."""

from __future__ import annotations

import click

from tuneport.cli.options import experiment_argument, request_flags
from tuneport.cli.output import data, json_option, print_json, table
from tuneport.cli.submit import announce, stay
from tuneport.experiment.request import Flags


@click.command("eval")
@experiment_argument
@click.option(
    "--run-id", metavar="JOB", default="", help="Evaluate what this job wrote; its status shows the scores."
)
@request_flags
@click.option("--follow/--no-follow", default=True, help="Wait for the scores (the default), or only submit.")
@json_option
def command(experiment: str, run_id: str, flags: Flags, follow: bool, as_json: bool) -> int:
    """Evaluate a model (--model) or a job's result (--run-id) with the experiment's eval.py."""
    from tuneport import api, workflow

    run = api.job(run_id).id if run_id else ""
    job = api.Experiment(experiment).perform(*workflow.evaluation_plan(experiment, flags, run), parent=run)
    if not follow:
        return announce(job, follow=False, as_json=as_json)
    job = stay(job, quiet=as_json)
    ok, scores = job.state == "SUCCEEDED", api.scores(job)
    if as_json:
        print_json({"ok": ok, "job": job.id, "state": job.state, "cause": job.cause, "scores": scores})
    elif scores:
        rows = [[s["task"], s["metric"], f"{s['value']:.4f}", str(s.get("n", ""))] for s in scores]
        data(table(rows, ("task", "metric", "value", "n")))
    return 0 if ok else 1
