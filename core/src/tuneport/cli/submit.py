"""`tp submit`."""

from __future__ import annotations

import click

from tuneport.cli.options import experiment_argument, request_flags
from tuneport.cli.output import data, json_option, print_json, printable, talk
from tuneport.experiment.request import Flags


@click.command("submit")
@experiment_argument
@request_flags
@click.option("--upgrade-recipe", is_flag=True, help="Move the lock to the installed recipe first.")
@click.option("--dry-run", is_flag=True, help="Print the fleet's own request and submit nothing.")
@click.option("--follow", is_flag=True, help="Follow the log until the job ends; exit 1 if it fails.")
@json_option
def command(
    experiment: str, flags: Flags, upgrade_recipe: bool, dry_run: bool, follow: bool, as_json: bool
) -> int:
    """Plan EXPERIMENT and run it. Prints the job's id as soon as the job is accepted."""
    from tuneport import api
    from tuneport.jobs import manager

    if upgrade_recipe:
        from tuneport.experiment.create import upgrade_lock

        for change in upgrade_lock(experiment, flags.framework_version):
            talk(f"lock: {change['field']}: {change['locked']} -> {change['installed']}")
    plan, report = api.plan(experiment, flags)
    if dry_run:
        request = manager.render(plan, api.fleet_name(report))
        print_json({"ok": True, "request": request})
        return 0
    for finding in report.findings:
        if not as_json:
            talk(f"{finding.severity}[{finding.code}]: {printable(finding.message)}")
    job = api.submit_plan(plan, experiment, report)
    return announce(job.id, follow=follow, as_json=as_json)


def announce(job_id: str, *, follow: bool, as_json: bool) -> int:
    """Say the id of an accepted job; with `follow`, stay with it. Shared by submit, export and eval."""
    from tuneport.jobs import manager

    if not follow:
        if as_json:
            print_json({"ok": True, "job": job_id})
        else:
            data(job_id)
            talk(f"accepted; tp job logs {job_id} --follow shows it")
        return 0
    if not as_json:
        talk(f"job {job_id}")
        for line in manager.get(job_id).logs(follow=True):
            data(line.text)
    status = manager.get(job_id).wait()
    if as_json:
        print_json(
            {"ok": status.state == "SUCCEEDED", "job": job_id, "state": status.state, "cause": status.cause}
        )
    else:
        talk(f"{job_id}: {status.state}" + (f" ({status.cause})" if status.cause else ""))
    return 0 if status.state == "SUCCEEDED" else 1
