"""`tp recipe`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tuneport.cli.options import experiment_argument, method_ids
from tuneport.cli.output import data, json_option, print_json, table, talk
from tuneport.errors import Invalid
from tuneport.experiment import lock, project
from tuneport.registry import catalog
from tuneport.types import Json


@click.group("recipe")
def command() -> None:
    """Show and move an experiment's lock."""


@command.command("status")
@experiment_argument
@json_option
def status(experiment: str, as_json: bool) -> int:
    """Show what changed between the lock and the installed catalog. Exit code 5 when anything did."""
    written = project.read(experiment)
    place = written.path / lock.NAME
    if written.lock is None:
        problems = [finding for finding in written.findings if finding.code.startswith("lock-")]
        raise Invalid(f"the lock of {experiment} cannot be used", code="lock", findings=problems)
    findings = list(lock.check(written.lock, place))
    fresh = _fresh(written.lock)
    changed = lock.differences(written.lock, fresh) if fresh else []
    if as_json:
        rows = [{"field": field, "locked": old, "installed": new} for field, old, new in changed]
        current = not changed and not findings
        print_json({"ok": current, "current": current, "lock": dict(written.lock), "changes": rows})
    elif not changed and not findings:
        data(f"{experiment}: the lock is current ({written.lock['recipe']['name']})")
    else:
        data(
            table(
                [[field, str(old), str(new)] for field, old, new in changed], ("field", "locked", "installed")
            )
        )
        for finding in findings:
            talk(f"{finding.severity}[{finding.code}]: {finding.message}")
        talk(f"tp recipe upgrade {experiment} moves the lock")
    return 5 if changed or findings else 0


@command.command("upgrade")
@experiment_argument
@click.option("--framework-version", metavar="V", default="", help="Move to this release as well.")
@click.option(
    "--method", metavar="ID", default="", shell_complete=method_ids, help="For an experiment without a lock."
)
@json_option
def upgrade_command(experiment: str, framework_version: str, method: str, as_json: bool) -> None:
    """Write a fresh lock for the installed catalog, after showing what it changes."""
    changes = upgrade(experiment, framework_version, method, quiet=as_json)
    if as_json:
        print_json({"ok": True, "changes": changes})


def upgrade(experiment: str, version: str = "", method: str = "", *, quiet: bool = False) -> list[Json]:
    """Move the lock of an experiment; returns what changed, field by field.

    A lock that cannot be trusted is replaced only where `method` says what the experiment is.

    Raises:
        Invalid: there is no usable lock and no method was named.
    """
    written = project.read(experiment)
    old = written.lock
    if old is None and not method:
        problems = [finding for finding in written.findings if finding.code.startswith("lock-")]
        raise Invalid(
            f"the lock of {experiment} cannot be used, so it does not say which method this is",
            code="lock",
            hint=f"tp recipe upgrade {experiment} --method FRAMEWORK/METHOD",
            findings=problems,
        )
    name = method or (old or {})["recipe"]["name"]
    framework = name.partition("/")[0]
    locked = (old or {}).get("framework", {}).get("version", "")
    version = version or (
        locked if locked in catalog.releases(framework) else catalog.default_release(framework)
    )
    fresh = lock.make(name, version)
    changes: list[Json] = []
    if old is not None:
        changes = [
            {"field": f, "locked": was, "installed": now} for f, was, now in lock.differences(old, fresh)
        ]
    if old is not None and not changes:
        if not quiet:
            talk(f"{experiment}: the lock is current")
        return []
    if not quiet:
        for change in changes:
            talk(f"{change['field']}: {change['locked']} -> {change['installed']}")
    replace(written.path / lock.NAME, lock.text(fresh))
    return changes


def replace(path: Path, text: str) -> None:
    """Replace a file's content whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _fresh(locked: dict[str, Json] | object) -> dict[str, Json] | None:
    from tuneport.errors import TuneportError

    assert isinstance(locked, dict)
    try:
        return lock.make(locked["recipe"]["name"], locked["framework"]["version"])
    except TuneportError:
        return None
