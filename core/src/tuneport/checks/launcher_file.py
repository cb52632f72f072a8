"""The file that holds a launcher's settings: what it says of hardware counts as if its flags said it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tuneport.errors import TuneportError
from tuneport.experiment.command_line import Invocation
from tuneport.experiment.yamlread import read_yaml
from tuneport.registry import catalog
from tuneport.text import closest, printable
from tuneport.types import Finding, Json


def declared(run: Invocation) -> tuple[str, Mapping[str, Json]]:
    """The framework's launcher that starts the program, or to which the program hands its flags: (name, its
    flags); nothing where there is none."""
    known = catalog.launchers()
    name = next((one for one in (*run.launchers, run.hands_to) if one in known), "")
    return name, known.get(name, {})


def take(run: Invocation) -> tuple[Mapping[str, Json], list[Finding]]:
    """(what the launcher's settings file holds, findings about it); its counts go into `run`. Nothing is read
    where no file is named, or where it is not on this machine; its machines are not known then."""
    name, launcher = declared(run)
    spec = launcher.get("file", {})
    flag, value = next((one for one in run.settings if one[0] in spec.get("flags", ())), ("", ""))
    path = Path(value)
    if not flag or value in spec.get("known", {}).get(flag, ()):
        return {}, []
    if "\0" in value or not _is_file(path):
        run.nodes = run.nodes or -1
        return {}, list(_no_such(flag, value, spec))
    try:
        document = read_yaml(path)
    except TuneportError as error:
        return {}, [
            Finding("launcher-file", "error", f"{flag} {printable(value)}: {error.message}", error.hint, flag)
        ]
    if document.findings or not isinstance(document.data, dict):
        why = document.findings[0].message if document.findings else "it holds no mapping"
        return {}, [
            Finding("launcher-file", "error", f"{flag} {printable(value)}: {why}", "write key: value", flag)
        ]
    found = [
        Finding(
            "launcher-file",
            "error",
            f"{name} refuses its file: it knows no key {printable(str(key))}",
            f"did you mean {near}?" if (near := closest(str(key), spec["keys"])) else "take it out",
            flag,
            str(path),
            document.line((key,)),
        )
        for key in document.data
        if str(key) not in spec["keys"]
    ]
    _count(run, document.data, spec)
    return document.data, found


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _no_such(flag: str, value: str, spec: Mapping[str, Json]) -> Iterator[Finding]:
    """A word that is neither a file nor one of the names that a flag also takes."""
    names = spec.get("known", {}).get(flag, ())
    if names and value not in names and value.isidentifier() and not _is_file(Path(value)):
        close = closest(value, names)
        hint = f"did you mean {close}?" if close else f"it is a file, or one of {', '.join(names)}"
        message = f"{flag} {value} is no file here and none of those that come along"
        yield Finding("launcher-file", "warning", message, hint, flag)


def _count(run: Invocation, data: Mapping[str, Json], spec: Mapping[str, Json]) -> None:
    """A flag wins over the file, as the launcher has it."""

    def number(name: str) -> int:
        value = data.get(spec.get(name, ""))
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0

    if not run.nodes:
        run.nodes = number("nodes")
    if not run.total and not run.per_node:
        run.total = number("total")
    if run.total and run.nodes >= 0:
        run.per_node = max(run.total // max(run.nodes, 1), 1)


def overruled(run: Invocation, data: Mapping[str, Json], config: Mapping[str, Json]) -> Iterator[Finding]:
    """A warning for each setting of the file that the program's own arguments replace."""
    _, launcher = declared(run)
    for key, decided in launcher.get("file", {}).get("decided", {}).items():
        if key not in data:
            continue
        for native, value in decided.items():
            if config.get(native) is True and data[key] != value:
                says = printable(str(data[key]))
                message = f"the launcher's file says {key} {says}, and {native} makes it {value}"
                hint = f"write {key}: {value} in the file, or leave {native} away"
                yield Finding("launcher-file", "warning", message, hint, native)
                break
