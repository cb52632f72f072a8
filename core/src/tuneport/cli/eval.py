"""`tp eval`."""

from __future__ import annotations

import click

from tuneport.cli.options import experiment_argument, request_flags
from tuneport.cli.output import data, json_option, print_json, printable, table, talk
from tuneport.cli.submit import announce, stay
from tuneport.experiment.request import Flags


@click.command("eval")
@experiment_argument
@click.option(
    "--run-id",
    metavar="JOB",
    default="",
    help="Evaluate what this job wrote; `tp job status JOB` shows the scores, too.",
)
@request_flags
@click.option("--follow/--no-follow", default=True, help="Wait for the scores (the default), or only submit.")
@json_option
def command(experiment: str, run_id: str, flags: Flags, follow: bool, as_json: bool) -> int:
    """Evaluate a model (--model) or a job's result (--run-id): with eval.py, or as the method does itself."""
    from tuneport import api, workflow
    from tuneport.jobs import show

    run = api.job(run_id).id if run_id else ""
    plan, report = workflow.evaluation_plan(experiment, flags, run)
    if not as_json:
        for finding in report.findings:
            talk(f"{finding.severity}[{finding.code}]: {printable(finding.message)}")
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
