"""Which program of which framework a command starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from tuneport.errors import NotFound, TuneportError
from tuneport.experiment.command_line import Invocation
from tuneport.registry import catalog, surfaces
from tuneport.text import closest
from tuneport.types import Json, Key

NEAR = "did you mean "


def readable(framework: str, version: str = "") -> bool:
    """Whether any command of a framework can be checked, by its default release unless told otherwise."""
    try:
        entries = surfaces.of(framework, version or catalog.default_release(framework)).get("entries", {})
    except TuneportError:
        return False
    return any({"config", "parser"} & item.keys() for item in entries.values())


def _places(framework: str, version: str) -> Iterator[tuple[str, str]]:
    """(framework, release) in which a program may be found: the default releases, then those that have
    programs of their own."""
    names = [framework] if framework else catalog.frameworks()
    for name in names:
        with suppress(*([] if framework else [TuneportError])):
            yield name, version or catalog.default_release(name)
    for name in names if not version else ():
        with suppress(TuneportError):
            default = catalog.default_release(name)
            for other in reversed(catalog.releases(name)):
                if other != default and catalog.release_spec(name, other).get("extends"):
                    yield name, other


def find(run: Invocation, wanted: str, release: str) -> tuple[str, str, str]:
    """(framework, release, entry point) of a program.

    Args:
        wanted: the framework and
        release: its release, where somebody said so.

    Raises:
        NotFound: no framework has it.
    """
    if run.beside:
        raise NotFound(
            f"{run.beside} is no program that is known here: all that is judged of it is what it is told",
            code="entry-unknown",
            hint="check the script that it stands in, or the training's own command, for the rest",
        )
    known_entries: list[str] = []
    for framework, version in _places(wanted, release):
        try:
            surface = surfaces.of(framework, version)
        except TuneportError:
            if wanted:
                raise
            continue
        for name, item in surface.get("entries", {}).items():
            if not {"config", "parser"} & item.keys() and not takes_flags(surface, name):
                continue
            if _is(run, name):
                return framework, version, name
            known_entries.append(name)
    known = f" of {wanted}" if wanted else ""
    longer = (name for name in known_entries if run.module and name.startswith(run.module))
    close = next(longer, "") or ("" if run.is_file else closest(run.module, known_entries, cutoff=0.85))
    program, _, asked_word = run.module.partition(" ")
    words = catalog.programs().get(program, {}).get("modules", {}) if asked_word else {}
    close = close or (f"{program} {near}" if (near := closest(asked_word, words)) else "")
    read = [one for one in catalog.frameworks() if readable(one)]
    elsewhere = f"tp check reads programs of {' and '.join(read)}; --framework-version names another release"
    elsewhere = f"{program} starts {', '.join(words)}" if words else elsewhere
    raise NotFound(
        f"no entry point{known} is called {run.module!r}",
        code="entry-unknown",
        hint=f"{NEAR}{close}?" if close else elsewhere,
    )


def takes_flags(surface: Mapping[str, Json], entry: str) -> bool:
    """Whether a program is told by flags alone, as one that does several things by its first word is."""
    return "parser" in surface["entries"][entry] or (
        "config" not in surface["entries"][entry] and " " in entry
    )


def behind(run: Invocation, entry: str) -> list[str]:
    """The arguments behind the word that says what to do, where there is one."""
    return run.arguments[1:] if entry == " ".join([run.module, *run.arguments[:1]]) else run.arguments


def switches(keys: Mapping[str, Key]) -> dict[str, Key]:
    """The flags of a program, where of those that are true or false perhaps only the type is known."""
    alone = {"action": "store_true"}
    return {n: k._replace(flag=k.flag or alone) if k.types == ("bool",) else k for n, k in keys.items()}


def _is(run: Invocation, name: str) -> bool:
    if run.is_file:
        file = name.replace(".", "/") + ".py"
        return run.module == file or run.module.endswith("/" + file)
    return run.module == name or (" " in name and " ".join([run.module, *run.arguments[:1]]) == name)
