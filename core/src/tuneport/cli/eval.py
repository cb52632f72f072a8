"""`tp eval`."""

from __future__ import annotations

import click

from tuneport.cli.options import experiment_argument, request_flags
from tuneport.cli.output import data, json_option, print_json, table
from tuneport.cli.submit import announce, dry_run_option, rehearse, stay, tell
from tuneport.experiment.request import Flags


@click.command("eval")
@experiment_argument
@click.option(
    "--run-id",
    metavar="JOB",
    default=None,
    help="Evaluate what this job wrote; `tp job status JOB` shows the scores, too.",
)
@request_flags
@dry_run_option
@click.option("--follow/--no-follow", default=True, help="Wait for the scores (the default), or only submit.")
@json_option
def command(
    experiment: str, run_id: str | None, flags: Flags, dry_run: bool, follow: bool, as_json: bool
) -> int:
    """Evaluate a model (--model) or a job's result (--run-id): with eval.py, or as the method does itself."""
    from tuneport import api, workflow
    from tuneport.jobs import show

    run = "" if run_id is None else api.job(run_id).id
    plan, report = workflow.evaluation_plan(experiment, flags, run)
    if dry_run:
        return rehearse(experiment, plan, report, as_json=as_json)
    tell(report, quiet=as_json)
    job = api.Experiment(experiment).perform(plan, report, parent=run)
    if not follow:
        return announce(job, follow=False, as_json=as_json)
    job = stay(job, quiet=as_json)
    ok, scores = job.state == "SUCCEEDED", api.scores(job)
    if as_json:
        print_json({"ok": ok, "job": job.id, "state": job.state, "cause": job.cause, "scores": scores})
    elif scores:
        data(table(show.score_rows(scores), show.SCORE_HEADER))
    return 0 if ok else 1
