"""`tp recipe`."""

from __future__ import annotations

import click

from tuneport.cli.options import experiment_argument, method_ids
from tuneport.cli.output import data, json_option, print_json, printable, table, talk
from tuneport.errors import Invalid, TuneportError


@click.group("recipe")
def command() -> None:
    """Show and move an experiment's lock."""


@command.command("status")
@experiment_argument
@json_option
def status(experiment: str, as_json: bool) -> int:
    """Show what changed between the lock and the installed catalog. Exit code 5 when anything did."""
    from tuneport.experiment import lock, project

    written = project.read(experiment)
    if written.lock is None:
        problems = [finding for finding in written.findings if finding.code.startswith("lock-")]
        raise Invalid(f"the lock of {experiment} cannot be used", code="lock", findings=problems)
    findings = list(lock.check(written.lock, written.path / lock.NAME))
    recipe, release = written.lock["recipe"]["name"], written.lock["framework"]["version"]
    try:
        changed = lock.differences(written.lock, lock.make(recipe, release))
    except TuneportError:
        changed = []  # the method or release is gone: the findings say so
    if as_json:
        rows = [{"field": field, "locked": old, "installed": new} for field, old, new in changed]
        print_json({"ok": not findings, "current": not findings, "lock": dict(written.lock), "changes": rows})
    elif not findings:
        data(f"{experiment}: the lock is current ({recipe} on {release})")
    else:
        if changed:
            rows_text = [[field, str(old), str(new)] for field, old, new in changed]
            data(table(rows_text, ("field", "locked", "installed")))
        for finding in findings:
            talk(f"{finding.severity}[{finding.code}]: {printable(finding.message)}")
        talk(f"tp recipe upgrade {experiment} moves the lock")
    return 5 if findings else 0


@command.command("upgrade")
@experiment_argument
@click.option("--framework-version", metavar="V", default="", help="Move to this release as well.")
@click.option(
    "--method", metavar="ID", default="", shell_complete=method_ids, help="For one without a usable lock."
)
@json_option
def upgrade(experiment: str, framework_version: str, method: str, as_json: bool) -> None:
    """Write a fresh lock for the installed catalog and show what it changed."""
    from tuneport.experiment.create import upgrade_lock

    changes = upgrade_lock(experiment, framework_version, method)
    if as_json:
        print_json({"ok": True, "changes": changes})
        return
    for change in changes:
        talk(f"{change['field']}: {change['locked']} -> {change['installed']}")
    if not changes:
        talk(f"{experiment}: the lock is current")
