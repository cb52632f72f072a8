"""Moves an experiment to another release of its framework: its lock, and the keys of its config.yaml that are
called otherwise there."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tuneport.compiler.compile import Compiled
from tuneport.compiler.layers import flatten
from tuneport.errors import Invalid, Unavailable
from tuneport.experiment import create, lock, project, two_files
from tuneport.experiment.findings import failed
from tuneport.experiment.request import Flags
from tuneport.experiment.yamlread import parse_yaml
from tuneport.porting import moves, rewrite
from tuneport.types import Finding, Json

_CONFIG = "config.yaml"
_ABSENT = ("key-moved", "key-unknown")
_MISFIT = ("key-type", "key-choice", "key-values")


@dataclass(frozen=True, slots=True)
class Left:
    """A key of config.yaml that its author has to look at."""

    key: str
    line: int
    why: str


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What an upgrade would do; `apply` does it. `lock_changes` are field, locked, installed. `before` and
    `after` are the text of config.yaml, `moved` its renamed keys."""

    name: str
    written: project.Written
    version: str
    fresh: Mapping[str, Json]
    lock_changes: list[dict[str, Json]]
    before: str
    after: str
    moved: Mapping[str, str]
    left: tuple[Left, ...]

    def difference(self) -> str:
        """The change of config.yaml as a unified diff; empty where there is none."""
        old, new = (text.splitlines(keepends=True) for text in (self.before, self.after))
        lines = difflib.unified_diff(old, new, f"{self.name}/{_CONFIG}", f"{self.name}/{_CONFIG}")
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
        )

    def apply(self) -> None:
        """Write both files, together.

        Raises:
            Invalid: config.yaml was edited while nobody looked, or it is a link.
        """
        files = {}
        if self.after != self.before:
            if _text(self.written) != self.before:
                raise Invalid(f"{self.written.path / _CONFIG} was edited meanwhile", code="upgrade-edited")
            _refuse_link(self.written.path / _CONFIG)
            files[_CONFIG] = self.after
        if self.lock_changes:
            files[lock.NAME] = lock.text(self.fresh)
            _refuse_link(self.written.path / lock.NAME)
        if len(files) == 1:
            ((name, text),) = files.items()
            create.write_atomic(self.written.path / name, text)
        elif files:
            two_files.change(self.written.path, files)


def _refuse_link(path: Path) -> None:
    """Others may read what a link leads to; and a link that is replaced is one no more."""
    if path.is_symlink():
        raise Invalid(
            f"{path} is a link to {os.readlink(path)}, which others may read too",
            code="upgrade-link",
            hint=f"put a copy in its place, or change {path.resolve()} by hand",
        )


@contextmanager
def alone(name: str) -> Iterator[None]:
    """A block in which no other process upgrades the experiment; the kernel ends it with the process.

    Raises:
        NotFound: no such experiment. Unavailable: another process is at it.
    """
    import fcntl

    folder = project.locate(name)[0]
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another upgrade of {name} is under way"
            raise Unavailable(message, code="upgrade-busy", hint="wait for it, or stop it") from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)


def resume(name: str) -> bool:
    """Complete an upgrade of an experiment that was interrupted; True where there was one.

    Raises:
        NotFound: no such experiment. Invalid: a file was edited since.
    """
    return two_files.complete(project.locate(name)[0])


def upgrade(name: str, version: str = "", method: str = "") -> Upgrade:
    """What moving an experiment to the installed catalog, and to another release, changes. Writes nothing.

    Raises:
        Invalid: there is no usable lock and no method was named, config.yaml is broken, or an upgrade of it
            was interrupted.
    """
    written = project.read(name)
    stale = [one for one in written.findings if one.code == "upgrade-unfinished"]
    if stale:
        raise Invalid(stale[0].message, code="upgrade-unfinished", hint=stale[0].hint, findings=stale)
    broken = list(written.config.findings)
    if failed(broken):
        message = f"{written.path / _CONFIG} cannot be read, so nobody knows which of its keys have moved"
        raise Invalid(message, code=broken[0].code, hint="mend it first", findings=broken)
    fresh, version, changes = create.fresh_lock(written, version, method)
    locked = str((written.lock or {}).get("framework", {}).get("version", ""))
    text = _text(written)
    plan = Upgrade(name, written, version, fresh, changes, text, text, {}, ())
    if not written.config.data:
        return plan
    return _rewritten(plan, locked)


def lock_alone(name: str, version: str = "", method: str = "") -> list[dict[str, Json]]:
    """Move an experiment's lock where that is all that an upgrade has to do; what changed, field by field.

    Raises:
        Invalid: as `upgrade`; or keys of config.yaml are called otherwise there, or not there at all.
    """
    plan = upgrade(name, version, method)
    if not plan.lock_changes:
        return []
    if plan.moved or plan.left:
        keys = [*plan.moved, *(row.key for row in plan.left)]
        shown = ", ".join(keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
        raise Invalid(
            f"config.yaml of {name} does not fit {plan.version}, to which its lock would move: {shown}",
            code="upgrade-keys",
            hint=f"`tp recipe upgrade {name} --framework-version {plan.version}` shows and renames them",
        )
    plan.apply()
    return plan.lock_changes


def _text(written: project.Written) -> str:
    path = written.path / _CONFIG
    return path.read_bytes().decode("utf-8") if path.is_file() else ""


def _rewritten(plan: Upgrade, locked: str) -> Upgrade:
    compiled = _judged(plan, plan.before)
    framework = str(plan.fresh["framework"]["kind"])
    keys = compiled.context.release.keys
    mine = [one for one in _findings(plan, compiled) if one.code in _ABSENT and one.key]
    steps = moves.between(framework, locked, plan.version)
    names = {".".join(path) for path, _ in flatten(plan.written.config.data, {})}
    taken = names | {
        key for key in compiled.context.own if key in compiled.context.method.spec.get("identity", {})
    }
    left: dict[str, str] = {}
    wanted: dict[str, str] = {}
    for finding in mine:
        found = moves.destination(finding.key, steps, keys)
        why = _obstacle(found, finding, taken | set(wanted.values()))
        if why:
            left[finding.key] = why
        else:
            wanted[finding.key] = found.names[0]
    bom = "\ufeff" if plan.before.startswith("\ufeff") else ""
    text, moved = plan.before, dict[str, str]()
    while wanted:
        text, moved, refused = _edited(plan.before.removeprefix(bom), wanted, names)
        left |= refused
        wanted = {old: new for old, new in wanted.items() if old not in refused}
        text = bom + text
        wrong = {one.key: one for one in _findings(plan, _judged(plan, text)) if one.code in _MISFIT}
        misfits = {old: wrong[new].message for old, new in wanted.items() if new in wrong}
        if not misfits:
            break
        left |= {old: f"its value does not fit: {why}" for old, why in misfits.items()}
        wanted = {old: new for old, new in wanted.items() if old not in misfits}
        text, moved = plan.before, {}
    rows = [Left(key, _line(plan, key), why) for key, why in left.items()]
    rows.sort(key=lambda row: (row.line, row.key))
    return replace(plan, after=text, moved=moved, left=tuple(rows))


def _edited(
    text: str, wanted: Mapping[str, str], names: set[str]
) -> tuple[str, dict[str, str], dict[str, str]]:
    """(the text with the keys renamed, what was renamed, what could not be and why)."""
    whole = moves.gathered(wanted, names)
    new, refused = rewrite.rename(text, whole)
    if refused:  # a branch that cannot move as one may do so key by key
        new, refused = rewrite.rename(text, wanted)
    return new, {old: name for old, name in wanted.items() if old not in refused}, refused


def _obstacle(found: moves.Destination, finding: Finding, taken: set[str]) -> str:
    """Why a key cannot be carried by its name alone; empty where it can."""
    if not found.names:
        if found.towards:
            return f"{' and '.join(found.towards)}, to which it moved, is not there either"
        return f"{finding.message}; {finding.hint}" if finding.hint else finding.message
    if len(found.names) > 1:
        return f"it became one of {', '.join(found.names)}; write the one that is meant"
    (new,) = found.names
    if found.notes:
        return f"write {new} by hand, its value means something else: {'; '.join(found.notes)}"
    if any(name == new or name.startswith(f"{new}.") or new.startswith(f"{name}.") for name in taken):
        return f"{new}, to which it moved, is set already; delete one of them"
    return ""


def _judged(plan: Upgrade, text: str) -> Compiled:
    """The experiment as the new release would read it with this config.yaml."""
    from tuneport import workflow

    config = parse_yaml(text.removeprefix("\ufeff"), plan.written.config.file)
    return workflow.judge(plan.written._replace(config=config, lock=plan.fresh), Flags())


def _findings(plan: Upgrade, compiled: Compiled) -> Sequence[Finding]:
    file = plan.written.config.file
    return [one for one in compiled.findings if one.severity == "error" and one.file == file]


def _line(plan: Upgrade, key: str) -> int:
    for path in plan.written.config.lines:
        if ".".join(map(str, path)) == key:
            return plan.written.config.lines[path]
    return 0
