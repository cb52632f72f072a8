"""`tp dataset`: immutable dataset versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tuneport.cli.options import experiment_argument
from tuneport.cli.output import data, json_option, print_json, printable, table, talk


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


@command.command()
@experiment_argument
@click.argument("args", metavar="[-- ARGS...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--script", metavar="NAME", default="", help="Which prepare_*.py, where there are several.")
@click.option("--python", metavar="FILE", default="", help="Run it with this interpreter, not the release's.")
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Keep the files in this folder.")
@click.option("--as", "publish", metavar="OWNER/NAME VERSION", nargs=2, help="Publish them as a version.")
@json_option
def prepare(
    experiment: str,
    args: tuple[str, ...],
    script: str,
    python: str,
    out: Path | None,
    publish: tuple[str, str] | None,
    as_json: bool,
) -> int:
    """Run the prepare_*.py of EXPERIMENT and check that its method can read what it writes.

    What follows `--` is for the script. Nothing is published while a finding is an error.
    """
    from tempfile import TemporaryDirectory

    from tuneport.datasets.reference import parse_name, parse_version
    from tuneport.errors import UsageError

    if out is None and publish is None:
        raise UsageError(
            "say where the data is to go", code="prepare-target", hint="--out DIR, or --as OWNER/NAME VERSION"
        )
    if publish is not None:  # before a long preparation, not after it
        parse_name(publish[0])
        parse_version(publish[1])
    if out is not None:
        return _prepare(experiment, out, script, python, args, publish, as_json)
    with TemporaryDirectory(prefix="tuneport-prepare-") as scratch:
        return _prepare(experiment, Path(scratch), script, python, args, publish, as_json)


def _prepare(
    experiment: str,
    out: Path,
    script: str,
    python: str,
    args: tuple[str, ...],
    publish: tuple[str, str] | None,
    as_json: bool,
) -> int:
    from tuneport.datasets import prepare as preparing
    from tuneport.datasets.push import push as publish_folder
    from tuneport.experiment.findings import finding_to_json, findings_text

    prepared = preparing.prepare(experiment, out, script, python, args)
    pushed = publish_folder(*publish, out, _Progress()) if publish is not None and prepared.ok else None
    if as_json:
        document: dict[str, Any] = {"ok": prepared.ok, "script": prepared.script, "path": str(out.absolute())}
        document["files"] = {name: dict(facts) for name, facts in prepared.files.items()}
        document["findings"] = [finding_to_json(finding) for finding in prepared.findings]
        if publish is not None:
            document["path"] = str(pushed.version.data) if pushed else ""
            document["reference"] = pushed.version.reference if pushed else ""
        print_json(document)
        return 0 if prepared.ok else 3
    rows = [
        (str(facts.get("rows", "-")), printable(", ".join(facts.get("columns", ()))), name)
        for name, facts in sorted(prepared.files.items())
    ]
    data(table(rows, ("rows", "columns", "file")))
    if prepared.findings:
        data(findings_text(prepared.findings).rstrip())
    if pushed is not None:
        data(f"{pushed.version.reference}  {pushed.version.digest}")
    elif publish is not None:
        talk("not published: the data has errors")
    return 0 if prepared.ok else 3


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
