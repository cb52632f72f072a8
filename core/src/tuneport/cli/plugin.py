"""`tp plugin`: start a plugin, hold one to the contract, sign its data."""

from __future__ import annotations

from pathlib import Path

import click

from tuneport.cli.output import data, json_option, print_json, printable, talk


@click.group("plugin")
def command() -> None:
    """Start a plugin, hold one to the contract, sign its data."""


@command.command("check")
@click.argument("plugin", default=".")
@click.option("--only", multiple=True, metavar="ID", help="This framework or method alone (repeatable).")
@click.option("--times", default=100, show_default=True, type=click.IntRange(1), help="Equal compilations.")
@click.option("--deadline", default=600.0, show_default=True, metavar="SECONDS", help="For each check.")
@click.option("--golden", type=click.Path(path_type=Path), help="Plans to compare with [tests/plans].")
@click.option("--write-golden", is_flag=True, help="Write those plans anew instead of comparing.")
@json_option
def check(
    plugin: str,
    only: tuple[str, ...],
    times: int,
    deadline: float,
    golden: Path | None,
    write_golden: bool,
    as_json: bool,
) -> int:
    """Hold PLUGIN to the contract: schemas, hooks, purity, equal plans, hostile input, docs.

    PLUGIN is an installed distribution or plugin, a source folder (default: this one), a wheel, or a folder
    of manifests. Exit code 3 where a check does not hold.
    """
    from tuneport.testing.checking import Options, check_plugin

    checks = []
    for found in check_plugin(plugin, Options(times, deadline, golden, write_golden, only)):
        checks.append(found)
        if not as_json:
            data(f"{'no' if found.problems else 'ok':<4}{found.name:<14}{printable(found.subject)}")
            for problem in found.problems:
                data(f"      {printable(problem)}")
    failed = sum(bool(found.problems) for found in checks)
    if as_json:
        rows = [
            {"check": one.name, "subject": one.subject, "ok": not one.problems, "problems": [*one.problems]}
            for one in checks
        ]
        print_json({"ok": not failed, "checks": rows})
    else:
        talk(
            f"{len(checks)} checks, {failed} of them do not hold" if failed else f"{len(checks)} checks hold"
        )
    return 3 if failed else 0


@command.command("new")
@click.argument("name")
@click.option(
    "--kind",
    required=True,
    type=click.Choice(("method", "framework", "adapter", "policy")),
    help="What it is to be.",
)
@click.option("--extends", metavar="METHOD", default="", help="For a method: the one that it builds on.")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@json_option
def new(name: str, kind: str, extends: str, folder: Path | None, as_json: bool) -> None:
    """Write a project for a plugin called NAME into FOLDER, with tests that pass.

    A method (NAME is FRAMEWORK/METHOD) and a framework are data only, an adapter is a framework with
    Python, a policy is Python alone.
    """
    from tuneport import scaffolds

    target = folder or Path(f"tuneport-{name.replace('/', '-')}")
    written = scaffolds.write(name, kind, target, extends)
    if as_json:
        print_json({"ok": True, "folder": str(target), "files": [str(path) for path in written]})
        return
    for path in written:
        data(str(path))
    talk(f"next: tp plugin check {target}")


@command.command("key")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def key(file: Path, as_json: bool) -> None:
    """Make a key to sign manifests with: the private one goes into FILE, the public one is printed.

    Sites put the public key under `trust.keys` of their site file.
    """
    import os

    from tuneport.errors import Invalid
    from tuneport.registry import trust

    pem, public = trust.new_key()
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Invalid(f"{file} exists already", code="file-exists", hint="name another file") from None
    with os.fdopen(handle, "wb") as stream:
        stream.write(pem)
    if as_json:
        print_json({"ok": True, "file": str(file), "public": public})
    else:
        data(public)


@command.command("sign")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--key", type=click.Path(path_type=Path, exists=True), help="A file that `tp plugin key` made.")
@json_option
def sign(folder: Path, key: Path | None, as_json: bool) -> None:
    """Write the digests of a manifest package, FOLDER, into it; signed where a key is given.

    Do it last before the package is built: every later change is a change.
    """
    from tuneport.experiment.create import write_atomic
    from tuneport.registry import trust

    text = trust.document(folder, key.read_bytes() if key else None)
    write_atomic(folder / trust.NAME, text)
    seen = trust.examine(folder)
    if as_json:
        print_json({"ok": True, "file": str(folder / trust.NAME), "signer": seen.signer})
    else:
        talk(
            f"{folder / trust.NAME}: {f'signed by {seen.signer}' if seen.signer else 'digests, no signature'}"
        )


@command.command("verify")
@click.argument("plugin")
@click.option(
    "--trust", "trusted", multiple=True, metavar="KEY", help="A public key that counts (repeatable)."
)
@json_option
def verify(plugin: str, trusted: tuple[str, ...], as_json: bool) -> int:
    """Hold the manifests of PLUGIN, a distribution or a folder, to their own digests and signature.

    Exit code 5 where a file is not what was published. The keys of the site file count besides those given.
    """
    from tuneport.errors import NotFound
    from tuneport.experiment.site import required_trust
    from tuneport.registry import scan, sources, trust

    keys = [*map(trust.check_key, trusted), *required_trust()[1].values()]
    folders = [Path(plugin)] if Path(plugin).is_dir() else []
    points = [] if folders else scan.entry_points("tuneport.manifests")
    folders += [sources.locate(one).folder for one in points if plugin in (one.name, one.dist)]
    if not folders:
        raise NotFound(f"{plugin!r} is no folder and no installed manifests", code="plugin-unknown")
    found = {str(folder): trust.examine(folder, keys) for folder in folders}
    if as_json:
        rows = [
            {"folder": name, "trust": one.level, "signer": one.signer, "problems": [*one.problems]}
            for name, one in found.items()
        ]
        print_json({"ok": not any(one.problems for one in found.values()), "manifests": rows})
    for name, one in found.items() if not as_json else ():
        data(f"{one.level or 'changed':<9} {printable(name)}{f'  by {one.signer}' if one.signer else ''}")
        for problem in one.problems:
            data(f"      {printable(problem)}")
    return 5 if any(one.problems for one in found.values()) else 0
