"""Real commands, checked as `tp check` does at a drafted release and at the one that it started from."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuneport import linter
from tuneport.errors import TuneportError
from tuneport.text import printable
from tuneport.types import Finding, Json

SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm")
Place = tuple[str, int, int]
"""File, line, and which of the commands that one line starts."""


@dataclass(slots=True)
class Compared:
    """What was read and found. `scripts` were read, `others` of them start nothing of the framework;
    `commands` were checked: `both` bring no error at either release, `neither` the same ones at both. `new`
    and `gone` are a line for each error of one release alone, `unread` one for each script that cannot be
    read; `why`: why nothing was checked."""

    folders: list[str] = field(default_factory=list)
    scripts: int = 0
    others: int = 0
    commands: int = 0
    both: int = 0
    neither: int = 0
    new: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    why: str = ""

    def document(self) -> dict[str, Json]:
        return {name: getattr(self, name) for name in self.__slots__}


def compare(framework: str, release: str, base: str, folders: Sequence[str]) -> Compared:
    """Check every shell script below the folders, each read as if it were started in its folder."""
    found = Compared([printable(folder) for folder in folders])
    for folder in folders:
        root = Path(folder)
        for name in sorted(_scripts(root)):
            found.scripts += 1
            try:
                with contextlib.chdir(root):
                    before, after = (_commands(name, framework, version) for version in (base, release))
            except TuneportError as error:
                if error.code == "framework-unread":
                    found.why = error.message
                    return found
                found.unread.append(printable(f"{root / name}: {error.message}"))
                continue
            _count(found, root, release, before, after)
    return found


def _scripts(root: Path) -> Iterator[str]:
    """Names below a folder; links to folders, and folders that a dot hides, are left out."""
    for here, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(here, name)
            if path.suffix in SCRIPTS and path.is_file():
                yield path.relative_to(root).as_posix()


def _commands(name: str, framework: str, version: str) -> dict[Place, linter.Checked]:
    """The commands of the framework that a script starts at one release."""
    try:
        every, _ = linter.check_every([name], linter.Asked(framework, version))
    except TuneportError as error:
        if error.code == "script-nothing":
            return {}
        raise
    found: dict[Place, linter.Checked] = {}
    for one in every:
        if one.framework == framework:
            nth = sum(place[:2] == (one.run.file, one.run.line) for place in found)
            found[one.run.file, one.run.line, nth] = one
    return found


def _count(
    found: Compared,
    root: Path,
    release: str,
    before: dict[Place, linter.Checked],
    after: dict[Place, linter.Checked],
) -> None:
    found.others += not (before or after)
    for place in sorted({**before, **after}):
        found.commands += 1
        old, new = (_errors(side.get(place)) for side in (before, after))
        added = {kind: finding for kind, finding in new.items() if kind not in old}
        found.new += [_line(root, place, finding) for finding in added.values()]
        found.gone += [_line(root, place, finding) for kind, finding in old.items() if kind not in new]
        if place not in after:
            message = f"{before[place].entry} is no program of {release}"
            found.new.append(_line(root, place, Finding("entry-unknown", "error", message)))
        elif not (old or new):
            found.both += 1
        elif old.keys() == new.keys():
            found.neither += 1


def _errors(checked: linter.Checked | None) -> dict[tuple[str, str], Finding]:
    said = checked.findings if checked else ()
    return {(one.code, one.key): one for one in said if one.severity == "error"}


def _line(root: Path, place: Place, finding: Finding) -> str:
    file, line = (finding.file, finding.line) if finding.line else place[:2]
    return printable(f"{root / file}:{line}: {finding.code}: {finding.message}")
