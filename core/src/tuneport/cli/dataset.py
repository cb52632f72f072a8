"""`tp dataset`: immutable dataset versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tuneport.cli.output import data, json_option, print_json, table, talk


@click.group("dataset")
def command() -> None:
    """Store and look up immutable dataset versions, named OWNER/NAME@VERSION.

    They live in the state folder, or where `datasets: {path: …}` of the site file says.
    """


@command.command()
@click.argument("name", metavar="OWNER/NAME")
@click.argument("version")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@json_option
def push(name: str, version: str, folder: Path, as_json: bool) -> None:
    """Publish the files of DIR as a version that never changes."""
    from tuneport.datasets.push import push as publish

    pushed = publish(name, version, folder, _Progress())
    found = pushed.version
    if as_json:
        print_json({"ok": True, "created": pushed.created, **_summary(found)})
        return
    if not pushed.created:
        talk("this content is there already: nothing was done")
    data(f"{found.reference}  {found.digest}  {len(found.files)} files, {human(found.size)}")


@command.command("ls")
@click.argument("name", metavar="[OWNER/NAME]", required=False)
@json_option
def list_(name: str | None, as_json: bool) -> None:
    """List all versions, or those of one dataset."""
    from tuneport.datasets.reference import parse_name
    from tuneport.datasets.store import describe, references, root
    from tuneport.errors import NotFound, Untrusted

    if name is not None:
        parse_name(name)
    rows: list[dict[str, Any]] = []
    for reference in references():
        if name is not None and reference.partition("@")[0] != name:
            continue
        try:
            rows.append(_summary(describe(reference)) | {"problem": ""})
        except Untrusted as error:
            rows.append({"reference": reference, "problem": error.message})
    if name is not None and not rows:
        raise NotFound(f"no dataset {name} in {root()}", code="dataset-unknown", hint="see tp dataset ls")
    if as_json:
        print_json({"ok": True, "datasets": rows})
        return
    cells = [
        (row["reference"], "damaged", "-", row["problem"])
        if row["problem"]
        else (row["reference"], str(row["files"]), human(row["size"]), row["digest"])
        for row in rows
    ]
    data(table(cells, ("dataset", "files", "size", "digest")) or f"no datasets in {root()}")


@command.command()
@click.argument("reference")
@json_option
def show(reference: str, as_json: bool) -> None:
    """Show the files of a version with their digests."""
    from tuneport.datasets import describe

    found = describe(reference)
    if as_json:
        files = {
            name: {"size": file.size, "sha256": file.sha256} for name, file in sorted(found.files.items())
        }
        print_json({"ok": True, **_summary(found), "files": files})
        return
    data(
        f"{found.reference}  {found.digest}\n{len(found.files)} files, {human(found.size)}, in {found.data}\n"
    )
    rows = [(human(file.size), file.sha256, name) for name, file in sorted(found.files.items())]
    data(table(rows, ("size", "sha256", "file")))


@command.command()
@click.argument("reference")
@json_option
def verify(reference: str, as_json: bool) -> None:
    """Read every byte of a version and compare it with what was pushed. Exit code 5 when it differs."""
    from tuneport.datasets import verify as check

    found = check(reference)
    if as_json:
        print_json({"ok": True, **_summary(found)})
    else:
        data(f"{found.reference}  {found.digest}  {len(found.files)} files, {human(found.size)}: as pushed")


def human(size: int) -> str:
    """A number of bytes for people."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:,.0f} {unit}" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= 1000
    return f"{amount:,.1f} TB"


def _summary(found: Any) -> dict[str, Any]:
    return {
        "reference": found.reference,
        "digest": found.digest,
        "files": len(found.files),
        "size": found.size,
        "created_at": found.created,
        "path": str(found.data),
    }


class _Progress:
    """Says how far a long push is, every few seconds."""

    def __init__(self) -> None:
        import time

        self.clock = time.monotonic
        self.spoken = self.clock()
        self.files = self.bytes = 0

    def __call__(self, _name: str, size: int) -> None:
        self.files += 1
        self.bytes += size
        if self.clock() - self.spoken > 5:
            self.spoken = self.clock()
            talk(f"  {self.files} files, {human(self.bytes)} copied")
