"""Runs one verb and turns every way it can end into one message and one exit code."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING

from tuneport.errors import TuneportError
from tuneport.text import printable

if TYPE_CHECKING:
    from tuneport.types import Finding

INTERRUPTED = 130


def run(args: Sequence[str]) -> int:
    """Parse `args`, call the verb, return its exit code. Never raises."""
    return guarded(lambda: _dispatch(list(args)), as_json=_wants_json(args))


def guarded(call: Callable[[], int], *, as_json: bool = False) -> int:
    """`call()`, with every failure said once: on stderr, or as the one JSON document on stdout."""
    try:
        _streams()
        code = call()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _say("interrupted", "interrupted", "", INTERRUPTED, as_json)
    except TuneportError as error:
        return _report(error, as_json)
    except OSError as error:
        return failed_write(error, as_json=as_json)
    except Exception as error:
        if os.environ.get("TUNEPORT_TRACEBACK"):
            raise
        hint = "this is a bug in Tuneport or a plugin: set TUNEPORT_TRACEBACK=1 and repeat the command"
        return _say("internal", f"{type(error).__name__}: {error}", hint, 70, as_json)


def _streams() -> None:
    """Text that the terminal has no characters for is escaped; a closed stdout is said, not crashed on."""
    if sys.stderr is None:
        sys.stderr = open(os.open(os.devnull, os.O_WRONLY), "w")  # noqa: SIM115 - for as long as we run
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_WRONLY), "w")  # noqa: SIM115
        raise OSError(errno.EBADF, "standard output is closed")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def failed_write(error: OSError, *, as_json: bool = False) -> int:
    """The exit code for an operating-system error, after saying it once."""
    if error.errno == errno.EPIPE:  # the reader left: nobody to tell, nothing went wrong
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    if error.errno == errno.EBADF:  # nobody reads a document from a closed stdout
        as_json = False
    where = f" ({error.filename})" if error.filename else ""
    hint = "free some space and repeat the command" if error.errno == errno.ENOSPC else ""
    return _say("io", f"{error.strerror or error}{where}", hint, 6, as_json)


def _dispatch(args: list[str]) -> int:
    gc.set_threshold(10_000)  # from 700: what is imported stays, and is not looked through again and again
    import click

    from tuneport.cli.group import tp

    if "_TP_COMPLETE" in os.environ:
        tp.main(args=args, prog_name="tp")
    try:
        # Not `main`, which would end the process with 1 when the reader of a pipe leaves.
        with tp.make_context("tp", args) as context:
            result = tp.invoke(context)
    except click.exceptions.Abort:
        raise KeyboardInterrupt from None
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.ClickException as error:
        return _usage(error, as_json=_wants_json(args))
    return result if isinstance(result, int) else 0


def _usage(error: object, *, as_json: bool) -> int:
    import click

    assert isinstance(error, click.exceptions.ClickException)
    context = getattr(error, "ctx", None)
    hint = f"see {context.command_path} --help" if context is not None else "see tp --help"
    return _say("usage", error.format_message(), hint, 2, as_json)


def _report(error: TuneportError, as_json: bool) -> int:
    findings = getattr(error, "findings", ())
    if findings and not as_json:
        from tuneport.experiment.findings import findings_text

        with contextlib.suppress(OSError):
            sys.stderr.write(findings_text(findings))
    return _say(error.code, error.message, error.hint, error.exit_code, as_json, findings)


def _say(
    code: str, message: str, hint: str, exit_code: int, as_json: bool, findings: Sequence[Finding] = ()
) -> int:
    try:
        if as_json:
            from tuneport.cli.output import print_json
            from tuneport.experiment.findings import finding_to_json

            error = {"code": code, "message": message, "hint": hint}
            print_json({"ok": False, "error": error, "findings": [finding_to_json(f) for f in findings]})
            sys.stdout.flush()
            return exit_code
    except OSError:
        pass  # no room even for the JSON: stderr may have some
    with contextlib.suppress(OSError):
        sys.stderr.write(f"tp: {_lines(message)}\n" + (f"  hint: {_lines(hint)}\n" if hint else ""))
    return exit_code


def _lines(text: str) -> str:
    """Control characters shown, line ends obeyed: click's own messages have several lines."""
    return "\n".join(map(printable, text.split("\n")))


def _wants_json(args: Sequence[str]) -> bool:
    own = args[: args.index("--")] if "--" in args else args
    return "--json" in own
