"""What a launcher is told: whether it would take it, and what of it no configuration shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tuneport.checks import batch_script, directives, rules
from tuneport.checks.launcher_file import declared as launcher_of
from tuneport.checks.launcher_file import overruled
from tuneport.experiment.command_line import Invocation
from tuneport.registry import catalog
from tuneport.shell.gaps import open_, shown
from tuneport.shell.open_questions import is_free
from tuneport.text import closest, printable
from tuneport.types import Context, Finding, Json

SHOWN = 8


def ruled(run: Invocation, context: Context) -> Iterator[Finding]:
    """What the rules of each launcher of a command say of its flags, and a warning for each that it does not
    have. An expression has them as `cfg`, without dashes and as numbers where they are such, and those of the
    launchers around it as `cfg.around.NAME`; `cfg.open` is true where a command beside programs has words
    that may be any flag.

    Args:
        context: the program's; of it only what is known of hardware and variables counts here.
    """
    known = {**catalog.beside(), **catalog.launchers()}
    told: dict[str, dict[str, Json]] = {
        name: {flag: _typed(value) for flag, value in flags.items()} for name, flags in run.told.items()
    }
    if said := _directives(run):
        told = {"sbatch": said, **told}
    unsure = [f"env.{name}" for name, value in run.env.items() if open_(value)]
    for name, flags in told.items():
        checks = known.get(name, {}).get("rules", ())
        if not run.settings:  # else `check` says it
            yield from _strangers(name, known.get(name, {}), flags)
        around = {other: flags for other, flags in told.items() if other != name}
        more = bool(run.beside) and any(map(is_free, run.arguments))
        config = {**flags, "around": around, "open": more}
        unknown = {flag for flag, value in run.told.get(name, {}).items() if open_(value)}
        for other, values in run.told.items():
            unknown |= {f"around.{other}.{flag}" for flag, value in values.items() if open_(value)}
        seen = context._replace(config=config, own=config, origins={})
        found, _ = rules.apply(seen, checks, (), frozenset(unknown), unsure)
        yield from found
    if not run.beside:
        yield from batch_script.check(run, context.method)


def _directives(run: Invocation) -> dict[str, Json]:
    """What a script says to Slurm in its comments, and `spread`: whether its command, or anything in it,
    starts programs on other machines. Nothing where it says nothing."""
    said, spread = directives.read(run.file)
    options: dict[str, Json] = {name: _typed(value) for name, value in said.items()}
    return {**options, "spread": spread or run.led} if said else {}


_DIGITS = 19


def _typed(value: str) -> Json:
    """A flag's value: true for one that stands alone; more digits than any count has stay text."""
    count = len(value) < _DIGITS and value.isascii() and value.isdigit()
    return int(value) if count else value or True


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
    yield from _strangers(name, declared, [flag for flag, _ in run.settings])
    read = [
        printable(shown(f"{flag} {value}".rstrip()))
        for flag, value in run.settings
        if not _strange(declared, flag)
    ]
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


def _strangers(name: str, declared: Mapping[str, Json], flags: Iterable[str]) -> Iterator[Finding]:
    for flag in flags:
        if not _strange(declared, flag):
            continue
        asked, known = shown(flag if flag.startswith("-") else f"--{flag}"), _flags(declared)
        asked = asked if any("_" in one for one in known) else asked.replace("_", "-")
        close = closest(asked, known)
        hint = f"did you mean {close}?" if close else f"`{name} --help` lists them"
        yield Finding("launcher-flag", "warning", f"{name} has no flag {printable(asked)}", hint, asked)


def _strange(declared: Mapping[str, Json], flag: str) -> bool:
    """Whether a launcher whose flags are all known has none that is called like this, or begins so."""
    names = [_plain(flag)]
    if declared.get("negates"):
        names.append(names[0].removeprefix("no_"))
    known = [_plain(one) for one in _flags(declared)]
    return "takes" in declared and not any(one.startswith(name) for one in known for name in names)


def _flags(declared: Mapping[str, Json]) -> list[str]:
    parts = ("takes", "alone", "nodes", "processes", "total", "short")
    return [flag for part in parts for flag in declared.get(part, ())]


def _plain(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")
