"""What a framework's launcher is told beside hardware: it changes the run, and no configuration shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuneport.experiment.command_line import Invocation
from tuneport.registry import catalog
from tuneport.text import closest, printable
from tuneport.types import Finding, Json

SHOWN = 8


def check(run: Invocation) -> Iterator[Finding]:
    """A warning for each flag that the launcher does not have, and a note that names the others."""
    if not run.settings:
        return
    name, declared = next(
        ((one, catalog.launchers()[one]) for one in run.launchers if one in catalog.launchers()), ("", {})
    )
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
        message = f"{name} is told {', '.join(read[:SHOWN])}{more}: what that changes is not looked at here"
        yield Finding("launcher-settings", "note", message, "an experiment says it by parameters or keys")


def _flags(declared: Mapping[str, Json]) -> list[str]:
    return [
        flag for part in ("takes", "alone", "nodes", "processes", "total") for flag in declared.get(part, ())
    ]


def _plain(flag: str) -> str:
    return flag.replace("-", "_")
