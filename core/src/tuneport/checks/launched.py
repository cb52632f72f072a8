"""What a framework's launcher is told beside hardware: it changes the run, and no configuration shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuneport.checks.launcher_file import declared as launcher_of
from tuneport.checks.launcher_file import overruled
from tuneport.experiment.command_line import Invocation
from tuneport.text import closest, printable
from tuneport.types import Finding, Json

SHOWN = 8


def check(run: Invocation, held: Mapping[str, Json], config: Mapping[str, Json]) -> Iterator[Finding]:
    """A warning for each flag that the launcher does not have and for what the program replaces; a note names
    the others.

    Args:
        held: what the launcher's own file says.
        config: the program's effective configuration.
    """
    if not run.settings:
        return
    yield from overruled(run, held, config)
    name, declared = launcher_of(run)
    known = _flags(declared)
    read = []
    for flag, value in run.settings:
        if "takes" in declared and not any(one.startswith(_plain(flag)) for one in map(_plain, known)):
            close = closest(flag, known)
            hint = f"did you mean {close}?" if close else f"`{name} --help` lists them"
            message = f"{name} has no flag {printable(flag)}"
            yield Finding("launcher-flag", "warning", message, hint, flag)
        else:
            read.append(printable(f"{flag} {value}".rstrip()))
    if read:
        more = f" and {len(read) - SHOWN} more" if len(read) > SHOWN else ""
        says = [
            f"{key} {value}"
            for key, value in held.items()
            if isinstance(value, str | int) and value is not False
        ]
        inside = f" (there: {printable(', '.join(says[:SHOWN]))})" if says else ""
        message = (
            f"{name} is told {', '.join(read[:SHOWN])}{more}{inside}: what that changes is not looked at here"
        )
        yield Finding("launcher-settings", "note", message, "an experiment says it by parameters or keys")


def _flags(declared: Mapping[str, Json]) -> list[str]:
    return [
        flag for part in ("takes", "alone", "nodes", "processes", "total") for flag in declared.get(part, ())
    ]


def _plain(flag: str) -> str:
    return flag.replace("-", "_")
