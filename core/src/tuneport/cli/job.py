"""`tp job`: what was submitted, and what to do with it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from tuneport.cli.output import data, json_option, print_json, printable, table, talk

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tuneport.jobs.manager import Job

INTERRUPTED = 130


def _complete(_context: click.Context, _parameter: click.Parameter, text: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from tuneport.jobs.manager import complete

    return [CompletionItem(job, help=method) for job, method in complete(text)]


job_argument = click.argument("job", shell_complete=_complete)
attempt_option = click.option(
    "--attempt", type=click.IntRange(min=1), metavar="N", help="Of this attempt; the last by default."
)


@click.group("job")
def command() -> None:
    """List, watch, follow, stop and retry jobs.

    JOB is a job's id, or a beginning of it that no other job has.
    """


@command.command("ls")
@click.option("--all", "everything", is_flag=True, help="Also those before the newest 50.")
@json_option
def list_(everything: bool, as_json: bool) -> None:
    """List jobs, the newest first."""
    from tuneport.jobs import manager, show

    manager.say = talk
    jobs = manager.overview(None if everything else 50)
    if as_json:
        print_json({"ok": True, "jobs": [show.job_json(job.record) for job in jobs]})
    elif jobs:
        data(table([show.job_row(job.record) for job in jobs], show.JOB_HEADER))
    else:
        talk("no jobs yet; tp submit starts one")


@command.command()
@job_argument
@json_option
def status(job: str, as_json: bool) -> None:
    """Show JOB: its state, why, what happened when, and what evaluations of it found."""
    from tuneport import api
    from tuneport.jobs import show

    found = _jobs().get(job)
    record = found.record
    measured = [
        (one, api.scores(one)) for one in ([found] if record.action == "eval" else found.evaluations())
    ]
    try:
        output = str(found.output_dir())
    except Exception:  # a fleet that keeps files elsewhere, or is gone: the record still tells the rest
        output = ""
    if as_json:
        attempts = [show.attempt_json(one, found.history(one.number)) for one in record.attempts]
        document = {"roles": found.roles(), "output_dir": output or None, "attempts": attempts}
        document["evaluations"] = [
            {"job": one.id, "state": one.state, "experiment": one.record.experiment, "scores": scores}
            for one, scores in measured
        ]
        print_json({"ok": True, "job": {**show.job_json(record), **document}})
        return
    last = record.last
    data(f"{record.id}  {last.state}" + (f"  {last.cause}" if last.cause else ""))
    facts = [
        ("method", f"{record.method} ({record.release})"),
        ("action", record.action if record.action != "train" else ""),
        ("of job", record.parent),
        ("experiment", record.experiment),
        ("fleet", record.fleet),
        ("handle", (last.handle or "") if record.fleet_kind != "local" else ""),
        ("attempt", f"{last.number} of {len(record.attempts)}" if len(record.attempts) > 1 else ""),
        ("took", show.took(last)),
        ("output", output),
        ("plan", record.digest),
    ]
    data(table([(f"  {name}", value) for name, value in facts if value]))
    for attempt in record.attempts:
        if len(record.attempts) > 1:
            data(f"attempt {attempt.number}")
        data(table(show.history_rows(found.history(attempt.number))))
    for one, scores in measured:
        if one.id != record.id or scores:
            data(f"{one.id}  {one.state}" if one.id != record.id else "scores")
        if scores:
            data(table(show.score_rows(scores), show.SCORE_HEADER))


@command.command()
@job_argument
@click.option("--role", help="Only what this role wrote.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job ends; may begin before it starts.")
@attempt_option
@json_option
def logs(job: str, role: str | None, follow: bool, attempt: int | None, as_json: bool) -> int:
    """Print what JOB wrote.

    With --follow and --json the document comes when the job has ended.
    """
    found = _jobs().get(job)
    several = role is None and len(found.roles()) > 1

    def show() -> int:
        lines = found.logs(role=role, follow=follow, attempt=attempt)
        if as_json:
            print_json(
                {
                    "ok": True,
                    "job": found.id,
                    "lines": [
                        {"role": line.role, "text": line.text, "offset": line.offset} for line in lines
                    ],
                }
            )
            return 0
        for line in lines:
            _print_line(f"{line.role} | {line.text}" if several else line.text)
        return 0

    return _interruptible(show, found, as_json) if follow else show()


@command.command()
@job_argument
@click.option("--curves/--no-curves", default=None, help="Draw curves; by default on a terminal.")
@click.option("--name", "names", multiple=True, metavar="METRIC", help="Only this metric; may be repeated.")
@attempt_option
@json_option
def metrics(
    job: str, curves: bool | None, names: tuple[str, ...], attempt: int | None, as_json: bool
) -> None:
    """Show the curves of JOB, under the names that all methods share."""
    from tuneport.jobs import show
    from tuneport.jobs.manager import metric_names
    from tuneport.jobs.metrics import Collected, plot

    found = _jobs().get(job)
    primary, aliases = metric_names(found.record)
    collected = found.metrics(aliases, attempt)
    if names:
        chosen = {name: series for name, series in collected.series.items() if name in names}
        collected, primary = Collected(chosen, collected.problems), list(names)
    if as_json:
        print_json({"ok": True, "job": found.id, **show.metrics_json(collected, primary)})
        return
    for problem in collected.problems:
        talk(problem)
    rows = show.metric_rows(collected, primary)
    if not rows:
        talk("no metrics yet" if found.state in ("ACCEPTED", "QUEUED", "RUNNING") else "it wrote no metrics")
        return
    data(table(rows, show.METRIC_HEADER))
    if curves or (curves is None and sys.stdout.isatty()):
        unicode = _can_print("│⠿")
        drawn = [name for name in primary if name in collected.series] or list(collected.series)[:6]
        for name in drawn:
            data("\n" + plot(collected.series[name], width=_width(), unicode=unicode).rstrip("\n"))


@command.command()
@job_argument
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Give up after this time.")
@json_option
def wait(job: str, timeout: float | None, as_json: bool) -> int:
    """Wait until JOB has ended. Exit code 1 if it did not succeed, 6 if that cannot be known."""
    found = _jobs().get(job)

    def stay() -> int:
        import time

        deadline = None if timeout is None else time.monotonic() + timeout
        now, said = found, ""
        while True:
            left = 2.0 if deadline is None else min(2.0, max(0.0, deadline - time.monotonic()))
            now = now.wait(left)
            if now.state in ("SUCCEEDED", "FAILED", "STOPPED", "UNKNOWN"):
                return _ended(now, as_json)
            if deadline is not None and time.monotonic() >= deadline:
                return _timed_out(now, timeout or 0.0)
            line = f"{now.id}: {now.state}" + (f" ({now.cause})" if now.cause else "")
            if line != said and not as_json:
                talk(line)
            said = line

    return _interruptible(stay, found, as_json)


@command.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=_complete)
@json_option
def stop(jobs: tuple[str, ...], as_json: bool) -> int:
    """Stop every JOB. Returns when no process of it is left; fine where it has ended.

    Where one cannot be stopped, or is none, the others are stopped all the same.
    """
    from tuneport.errors import TuneportError
    from tuneport.jobs import show

    manager = _jobs()
    stopped, failures = [], []
    for job in jobs:
        try:
            stopped.append(manager.get(job).stop())
        except TuneportError as error:
            failures.append(error)
    if as_json:
        document: dict[str, Any] = {
            "ok": not failures,
            "jobs": [show.job_json(job.record) for job in stopped],
        }
        if failures:
            errors = [{"code": e.code, "message": e.message, "hint": e.hint} for e in failures]
            document |= {"error": errors[0], "errors": errors, "findings": []}
        print_json(document)
        return failures[0].exit_code if failures else 0
    if stopped:
        data(table([(job.id, job.state, job.cause) for job in stopped]))
    for one in failures:
        talk(printable(f"tp: {one.message}") + (f"\n  hint: {printable(one.hint)}" if one.hint else ""))
    return failures[0].exit_code if failures else 0


@command.command()
@job_argument
@json_option
def retry(job: str, as_json: bool) -> None:
    """Run the plan of JOB once more, from the same files, as a new attempt."""
    from tuneport.jobs import show

    again = _jobs().get(job).retry()
    if as_json:
        print_json({"ok": True, "job": show.job_json(again.record)})
    else:
        data(again.id)
        talk(f"attempt {again.record.last.number}; tp job logs {again.id} --follow shows it")


def _jobs() -> Any:
    """The manager, after starting what an earlier command accepted and did not live to start."""
    from tuneport.jobs import manager

    manager.say = talk
    manager.recover()
    return manager


def _ended(job: Job, as_json: bool) -> int:
    from tuneport.jobs import show

    good = job.state == "SUCCEEDED"
    if as_json:
        print_json({"ok": good, "job": show.job_json(job.record)})
    else:
        data(f"{job.id}  {job.state}  {job.cause}".rstrip())
        if not good:
            talk(f"tp job logs {job.id} shows what it wrote")
    return 0 if good else 6 if job.state == "UNKNOWN" else 1


def _timed_out(job: Job, timeout: float) -> int:
    from tuneport.errors import Unavailable

    raise Unavailable(f"job {job.id} is still {job.state} after {timeout:g} s", code="job-not-ended")


def _interruptible(call: Callable[[], int], job: Job, as_json: bool) -> int:
    """`call()`; on Ctrl-C say that the job does not care."""
    try:
        return call()
    except KeyboardInterrupt:
        message = f"interrupted; job {job.id} goes on"
        hint = f"tp job stop {job.id} stops it"
        if as_json:
            error = {"code": "interrupted", "message": message, "hint": hint}
            print_json({"ok": False, "error": error, "findings": []})
        else:
            talk(f"\n{message}; {hint}")
        return INTERRUPTED


def _print_line(text: str) -> None:
    """A line of a log as it was written; on a terminal only the last state of a progress bar."""
    if sys.stdout.isatty() and "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part), "")
    if not _can_print(text):
        text = text.encode(sys.stdout.encoding or "ascii", "backslashreplace").decode(
            sys.stdout.encoding or "ascii"
        )
    data(text)
    sys.stdout.flush()


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _width() -> int:
    import shutil

    return max(20, min(100, shutil.get_terminal_size((80, 24)).columns - 14))
