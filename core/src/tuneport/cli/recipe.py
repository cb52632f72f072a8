"""`tp recipe`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tuneport.cli.options import experiment_argument, method_ids
from tuneport.cli.output import data, json_option, print_json, printable, table, talk
from tuneport.errors import Invalid, TuneportError

if TYPE_CHECKING:
    from tuneport.porting.upgrade import Upgrade


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
@click.option("--yes", is_flag=True, help="Write without asking.")
@json_option
def upgrade(experiment: str, framework_version: str, method: str, yes: bool, as_json: bool) -> int:
    """Write a fresh lock for the installed catalog, and give keys of config.yaml the names they have there.

    Keys that releases between declare as moved are renamed where they stand; comments, order and every other
    byte are kept. The difference is shown first, and written after a question or with --yes. Keys that cannot
    be carried by name alone are listed. Exit code 3 where there are any.
    """
    from tuneport.porting import upgrade as upgrading

    with upgrading.alone(experiment):
        if upgrading.resume(experiment):
            talk(f"{experiment}: completed an upgrade that was interrupted")
        plan = upgrading.upgrade(experiment, framework_version, method)
        touched = plan.after != plan.before or bool(plan.left and plan.lock_changes)
        if not as_json:
            _show(plan)
        write = yes or not touched or (not as_json and _asked())
        if write:
            plan.apply()
    if as_json:
        left = [{"key": row.key, "line": row.line, "why": row.why} for row in plan.left]
        document = {"ok": write and not plan.left, "written": write, "changes": plan.lock_changes}
        print_json({**document, "diff": plan.difference(), "moved": dict(plan.moved), "left": left})
    elif not write:
        talk(f"{experiment}: nothing was written; --yes writes without asking")
    elif not plan.lock_changes and plan.after == plan.before:
        talk(f"{experiment}: the lock is current")
    return 2 if not write else 3 if plan.left else 0


def _show(plan: Upgrade) -> None:
    difference = plan.difference()
    if difference:
        data("\n".join(map(printable, difference.removesuffix("\n").split("\n"))))
    for change in plan.lock_changes:
        talk(f"{change['field']}: {change['locked']} -> {change['installed']}")
    for row in plan.left:
        place = f" (line {row.line})" if row.line else ""
        talk(printable(f"not carried: {row.key}{place}: {row.why}"))


def _asked() -> bool:
    """What somebody at a terminal answers; False where nobody is there."""
    import sys

    return sys.stdin is not None and sys.stdin.isatty() and click.confirm("write this?", err=True)
