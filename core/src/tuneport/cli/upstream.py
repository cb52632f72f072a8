"""`tp upstream`: read releases of frameworks, compare them, adopt one."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuneport.cli.output import data, json_option, print_json, printable, talk

if TYPE_CHECKING:
    from tuneport.upstream.diff import Difference
    from tuneport.upstream.scan import Scan

_ELSEWHERE = {"adopt": "tuneport.cli.upstream_adopt"}
_MOST = 40  # lines of one kind that are printed; --json has all


class _Group(click.Group):
    """Subcommands that have a module of their own are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *_ELSEWHERE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        found: click.Command = getattr(importlib.import_module(_ELSEWHERE[cmd_name]), cmd_name)
        return found


@click.group("upstream", cls=_Group)
def command() -> None:
    """Read releases of frameworks, compare them, adopt one. Nothing of a release that is read is run."""


_framework = click.option(
    "--framework", metavar="F", default="", help="Whose recipe counts, where several know the distribution."
)
_beside = click.option(
    "--with",
    "beside",
    multiple=True,
    metavar="NAME==VERSION",
    help="A package to read beside it (repeatable).",
)


@command.command()
@click.argument("release")
@_framework
@_beside
@click.option(
    "--release", "version", metavar="V", default="", help="The version, where a folder does not say it."
)
@click.option("--out", type=click.Path(path_type=Path), help="Write the surface to this file.")
@json_option
def scan(
    release: str, framework: str, beside: tuple[str, ...], version: str, out: Path | None, as_json: bool
) -> None:
    """Show what RELEASE takes, asks for and checks.

    RELEASE is NAME==VERSION (downloaded by pip; of a range, the newest), a wheel, a source archive or
    folder, or FRAMEWORK@RELEASE for the surface that is installed here.
    """
    from tuneport.errors import Unavailable
    from tuneport.upstream.scan import scan as read

    found = read(release, framework, release=version, beside=beside)
    if out is not None:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(found.text(), "utf-8")
        except OSError as error:
            message = f"cannot write {out}: {error.strerror}"
            raise Unavailable(message, code="upstream-out") from error
    if as_json:
        print_json(_document(found))
        return
    _show(found)
    if out is not None:
        talk(f"the surface is in {out}")


@command.command()
@click.argument("old")
@click.argument("new")
@_framework
@_beside
@json_option
def diff(old: str, new: str, framework: str, beside: tuple[str, ...], as_json: bool) -> int:
    """Show what changed from OLD to NEW; both are named as for `scan`. Exit code 1 when anything did."""
    from tuneport.upstream.diff import diff as compared
    from tuneport.upstream.scan import scan as read

    found = compared(read(old, framework, beside=beside), read(new, framework, beside=beside))
    if as_json:
        print_json(found.document())
    else:
        _tell(found)
    return 0 if found.empty else 1


def _document(found: Scan) -> dict[str, object]:
    return {
        "ok": True,
        "framework": found.framework,
        "release": found.release,
        "artefacts": [dict(item) for item in found.artefacts],
        "requires_python": found.requires_python,
        "requirements": dict(found.requirements),
        "entry_points": dict(found.entry_points),
        "registries": {name: list(names) for name, names in found.choices.items()},
        "checks": [check.document() for check in found.checks],
        "undecided": list(found.undecided),
        "surface": {name: part for name, part in found.surface.items() if not name.startswith(" ")},
    }


def _show(found: Scan) -> None:
    data(f"{found.framework or '(no manifest)'} {found.release}")
    for item in found.artefacts:
        data(f"  {item['name']} {item['version']}  {item.get('sha256') or item.get('commit') or 'no digest'}")
    if found.requires_python:
        data(f"  Python {found.requires_python}")
    entries = {name: keys for name, keys in found.keys.items() if "=" not in name}
    _lines("entry points", [f"{name} = {target}" for name, target in found.entry_points.items()])
    _lines("entries", [f"{name}: {len(keys)} keys" for name, keys in entries.items()])
    _lines("asks for", [f"{name} {rule}".rstrip() for name, rule in found.requirements.items()])
    _lines("registries", [f"{name}: {len(names)} names" for name, names in found.choices.items()])
    _lines(
        "checks that name keys",
        [f"{check.file}:{check.line} {' '.join(check.names)}" for check in found.checks],
    )
    _lines("not decided", list(found.undecided))


def _lines(title: str, lines: list[str], sign: str = "  ") -> None:
    if lines:
        data(f"{title}: {len(lines)}")
        for line in lines[:_MOST]:
            data(f"{sign}{printable(line)}")
        if len(lines) > _MOST:
            data(f"  … {len(lines) - _MOST} more, with --json")


def _tell(found: Difference) -> None:
    touched = found.touches

    def ours(key: str) -> str:
        names = touched.get(key, ())
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"  [{', '.join(names[:3])}{more}]" if names else ""

    data(f"{found.old.framework or found.old.name} {found.old.release} -> {found.new.release}")
    _lines("removed", [f"{item.key}{ours(item.key)}" for item in found.removed], "- ")
    _lines("added", [f"{item.key}  {' '.join(item.facts.types)}" for item in found.added], "+ ")
    _lines(
        "moved", [f"{m.old} -> {m.new}  ({'; '.join(m.evidence)}){ours(m.old)}" for m in found.moved], "> "
    )
    changes = [
        f"{item.kind} {item.key}: {_short(item.old)} -> {_short(item.new)}{ours(item.key)}"
        for item in found.changed
    ]
    _lines("changed", changes, "~ ")
    checks = [
        f"{change} {check.file}:{check.line} {check.kind}: {' '.join(check.names)}"
        f" ({' '.join(check.operators) or 'is true'})"
        for change, check in found.checks
    ]
    _lines("checks", checks, "! ")
    _lines("not decided", list(found.undecided))
    if found.empty:
        data("no difference")


def _short(value: object) -> str:
    import json

    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}…"
