"""`tp submit`, and what submit, export and eval share: the request that a fleet would get, what was found,
saying that a job is accepted, and following it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from tuneport.cli.options import experiment_argument, request_flags
from tuneport.cli.output import data, json_option, print_json, printable, talk
from tuneport.experiment.request import Flags

if TYPE_CHECKING:
    from tuneport.jobs.manager import Job
    from tuneport.types import LaunchPlan
    from tuneport.workflow import Report


def dry_run_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --dry-run, whose request `rehearse` prints."""
    text = "Print the fleet's own request and submit nothing."
    return click.option("--dry-run", is_flag=True, help=text)(command)


@click.command("submit")
@experiment_argument
@request_flags
@click.option(
    "--upgrade-recipe",
    is_flag=True,
    help="Move the lock to the installed recipe first. Refused where keys of config.yaml moved as well.",
)
@dry_run_option
@click.option("--follow", is_flag=True, help="Follow the log until the job ends; exit 1 if it fails.")
@json_option
def command(
    experiment: str, flags: Flags, upgrade_recipe: bool, dry_run: bool, follow: bool, as_json: bool
) -> int:
    """Plan EXPERIMENT and run it. Prints the job's id as soon as the job is accepted."""
    from tuneport import workflow
    from tuneport.api import Experiment

    if upgrade_recipe:
        from tuneport.porting import upgrade as upgrading

        with upgrading.alone(experiment):
            for change in upgrading.lock_alone(experiment, flags.framework_version):
                talk(f"lock: {change['field']}: {change['locked']} -> {change['installed']}")
    plan, report = workflow.plan(experiment, flags)
    if dry_run:
        return rehearse(experiment, plan, report, as_json=as_json)
    tell(report, quiet=as_json)
    return announce(Experiment(experiment).perform(plan, report), follow=follow, as_json=as_json)


def rehearse(experiment: str, plan: LaunchPlan, report: Report, *, as_json: bool) -> int:
    """Print what the fleet would be asked."""
    from tuneport import workflow
    from tuneport.api import Experiment
    from tuneport.experiment.findings import finding_to_json
    from tuneport.jobs import manager

    request, shown = manager.render(plan, workflow.fleet_of(report), Experiment(experiment).path)
    tell(report, quiet=as_json)
    if shown and not as_json:
        data(shown)
    elif as_json:
        found = [finding_to_json(finding) for finding in report.findings]
        print_json({"ok": True, "request": request, "findings": found})
    else:
        print_json({"ok": True, "request": request})
    return 0


def tell(report: Report, *, quiet: bool) -> None:
    """Say what was found, none of it an error."""
    for finding in () if quiet else report.findings:
        talk(f"{finding.severity}[{finding.code}]: {printable(finding.message)}")


def announce(job: Job, *, follow: bool, as_json: bool) -> int:
    """Say the id of an accepted job; with `follow`, stay with it until it ends."""
    if not follow:
        if as_json:
            print_json({"ok": True, "job": job.id})
        else:
            data(job.id)
            talk(f"accepted; tp job logs {job.id} --follow shows it")
        return 0
    job = stay(job, quiet=as_json)
    ok = job.state == "SUCCEEDED"
    if as_json:
        print_json({"ok": ok, "job": job.id, "state": job.state, "cause": job.cause})
    return 0 if ok else 1


def stay(job: Job, *, quiet: bool) -> Job:
    """Follow a job's log to its end. Leaving early (Ctrl-C) leaves the job running."""
    if not quiet:
        talk(f"job {job.id}")
        for line in job.logs(follow=True):
            data(printable(line.text))
    job = job.wait()
    if not quiet:
        talk(f"{job.id}: {job.state}" + (f" ({job.cause})" if job.cause else ""))
    return job
