"""`tp upstream adopt`."""

from __future__ import annotations

import click

from tuneport.cli.output import data, json_option, print_json, talk


@click.command("adopt")
@click.argument("name")
@click.argument("version")
@click.option("--from", "source", metavar="PATH", default="", help="Read this wheel, archive or folder.")
@click.option(
    "--commands",
    multiple=True,
    metavar="FOLDER",
    help="Check its shell scripts, too (repeatable).",
)
@click.option("--install", is_flag=True, help="Build the drafted runtime, to ask the release's own parser.")
@click.option("--into", metavar="DIR", default="", help="Manifest folder; else the last of the environment.")
@click.option("--review", metavar="FILE", default="", help="Write the review sheet as Markdown, too.")
@click.option("--yes", is_flag=True, help="Write the drafted files without asking.")
@json_option
def adopt(
    name: str,
    version: str,
    source: str,
    commands: tuple[str, ...],
    install: bool,
    into: str,
    review: str,
    yes: bool,
    as_json: bool,
) -> int:
    """Draft a new release of a framework as data, prove it, and print a review sheet.

    NAME is a framework or the distribution it is read from. The draft starts from the nearest release that
    is there already; the new one is opt-in, and no existing lock changes. Nothing is written without a yes.
    The release's own parser is asked where the drafted runtime is installed. Scripts are read, never run.
    Exit code 1 where something that was tried failed.
    """
    from pathlib import Path

    from tuneport.errors import Invalid
    from tuneport.upstream import adopt_review
    from tuneport.upstream.adopt import adopt as adopting
    from tuneport.upstream.adopt import target

    folder = target(into)
    if review and not (Path(review).absolute().parent.is_dir() and not Path(review).is_dir()):
        message = f"the review sheet cannot be written to {review}"  # said before minutes of work
        raise Invalid(message, code="adopt-review", hint="name a file in a folder that exists")
    adoption = adopting(
        name,
        version,
        source=source,
        commands=commands,
        install=install,
        say=(lambda _: None) if as_json else talk,
    )
    text = adopt_review.sheet(adoption)
    if review:
        Path(review).write_text(text, "utf-8")
    if not as_json:
        data(text.rstrip("\n"))
    written = []
    if yes or (not as_json and _asked(len(adoption.files), folder)):
        written = adoption.write(folder)
    if as_json:
        print_json({**adopt_review.document(adoption), "written": [str(path) for path in written]})
    else:
        for path in written:
            talk(f"wrote {path}")
        if not written:
            talk("nothing was written; --yes writes without asking")
    if not (written or as_json):
        return 2
    return 0 if adoption.ok else 1


def _asked(count: int, folder: object) -> bool:
    """What somebody at a terminal answers; False where nobody is there."""
    import sys

    if sys.stdin is None or not sys.stdin.isatty():
        return False
    return click.confirm(f"write {count} files below {folder}?", err=True)
