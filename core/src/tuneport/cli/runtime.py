"""`tp runtime`: what releases run in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tuneport.cli.output import data, json_option, print_json, talk
from tuneport.text import table

if TYPE_CHECKING:
    from tuneport.runtimes.variants import Variant
    from tuneport.runtimes.venvs import Built
    from tuneport.types import Release


@click.group("runtime")
def command() -> None:
    """List, install and remove what releases run in.

    A release runs in a Python environment that is built here from its pinned requirement set, or in
    an image that TUNEPORT_IMAGE_<FRAMEWORK> or the file in TUNEPORT_RUNTIME_REGISTRY_FILE names.
    """


@command.command("ls")
@json_option
def list_(as_json: bool) -> None:
    """List what every release declares and what is here."""
    from tuneport.runtimes.report import rows

    found = rows()
    if as_json:
        print_json({"ok": True, "runtimes": found})
        return
    cells = [
        (
            row["runtime"] or "-",
            row["variant"] or row["form"],
            row["state"],
            megabytes(row["size"]) if row["size"] else "-",
            row["python"] or "-",
            _where(row),
        )
        for row in found
    ]
    header = ("runtime", "variant", "state", "size", "python", "where")
    data(table(cells, header) or "no release declares a runtime")


@command.command()
@click.argument("release")
@json_option
def show(release: str, as_json: bool) -> None:
    """Show the runtime of RELEASE (framework@version): pins, variants, images, what is installed."""
    from textwrap import fill

    from tuneport.runtimes.releases import by_reference
    from tuneport.runtimes.report import details

    found = details(by_reference(release))
    if as_json:
        print_json({"ok": True, **found})
        return
    data(f"{found['runtime']}  ({found['release']})")
    if found["host"]:
        data(f"\nwithout an image, on the local fleet: this environment, {found['host']}")
    for variant in found["variants"]:
        download = f", download {variant['download_mb']} MB" if variant["download_mb"] else ""
        needs = f"Python {variant['requires_python'] or 'any'}, for {' '.join(variant['series'])}{download}"
        data(f"\nvariant {variant['variant']}: {variant['state']}; {needs}")
        if variant["note"]:
            data(f"  {variant['note']}")
        listed = ", ".join(variant["requirements"])
        data(fill(listed, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False))
        if variant["path"]:
            size = f"{megabytes(variant['size'])}, {len(variant['packages'])} packages"
            data(f"  at {variant['path']} (Python {variant['python']}, {size})")
    named = (f"{image['form']} {image['reference']} ({image['origin']})" for image in found["images"])
    images = ", ".join(named)
    data(f"\nimages: {images or 'none known here'}; looked up in {found['variable']} and {found['registry']}")


@command.command()
@click.argument("release")
@click.option("--variant", "name", default="", help="The variant to build; default: the one that fits here.")
@json_option
def install(release: str, name: str, as_json: bool) -> None:
    """Build the Python environment of RELEASE, such as acme@1.0.0, unless it is here already."""
    from tuneport.runtimes.install import install as build
    from tuneport.runtimes.releases import by_reference
    from tuneport.runtimes.venvs import find_built

    variant = _variant(by_reference(release), name)
    before = find_built(variant)
    built = before or build(variant, talk)
    if as_json:
        print_json({"ok": True, "installed": before is None, **_built_json(built)})
    else:
        here = " (already here)" if before else ""
        data(f"{built.runtime_id} ({built.variant}): {built.path}, {megabytes(built.size)}{here}")


@command.command("rm")
@click.argument("release")
@click.option("--variant", "name", default="", help="Remove this variant only.")
@json_option
def remove_(release: str, name: str, as_json: bool) -> None:
    """Remove the environments of RELEASE: framework@version, a runtime id, or the name of a folder."""
    from tuneport.errors import NotFound
    from tuneport.runtimes.install import remove

    found = _removable(release, name)
    if not found:
        message = f"no environment of {release} is here"
        raise NotFound(message, code="runtime-not-installed", hint="see tp runtime ls")
    freed = sum(remove(path, talk) for path in found)
    if as_json:
        print_json({"ok": True, "removed": [str(path) for path in found], "freed": freed})
    else:
        data("\n".join(f"removed {path}" for path in found))


def _where(row: dict[str, Any]) -> str:
    download = f"download {row['download_mb']} MB" if row["download_mb"] else "-"
    return str(row["path"] or row["image"] or download)


def megabytes(size: int) -> str:
    """A size in bytes for people."""
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"


def _variant(release: Release, name: str) -> Variant:
    from tuneport.runtimes.report import seen_series
    from tuneport.runtimes.variants import choose_variant, pick, variants

    if name:
        return pick(release.spec, release.framework, name)
    series = seen_series()
    chosen = choose_variant(release.spec, series)
    others = [other for other in variants(release.spec, release.framework) if other != chosen]
    if chosen and others:
        seen = "no accelerator is" if series == "cpu" else "an accelerator is"
        talk(f"variant {chosen}, because {seen} seen here; --variant takes also {', '.join(others)}")
    return pick(release.spec, release.framework, chosen or (others[0] if len(others) == 1 else ""))


def _removable(text: str, name: str) -> list[Any]:
    from tuneport.errors import NotFound
    from tuneport.runtimes.releases import by_reference
    from tuneport.runtimes.variants import runtime_id
    from tuneport.runtimes.venvs import built, root

    everything = list(built())
    exact = [found.path for found in everything if found.path.name == text]
    if exact:
        return exact
    try:
        runtime = runtime_id(by_reference(text).spec)
    except NotFound:
        runtime = text.replace("@", "-")  # its manifest may be gone while its environment is not
    found = []
    for one in everything:
        # A half-built folder has no marker to ask; its name is all there is.
        stem = one.path.name.rpartition("-")[0]
        own = (one.runtime_id, one.variant) if one.runtime_id else (runtime, stem.removeprefix(f"{runtime}-"))
        if own[0] == runtime and stem == f"{runtime}-{own[1]}" and name in ("", own[1]):
            found.append(root() / one.path.name)
    return found


def _built_json(found: Built) -> dict[str, Any]:
    return {
        "runtime": found.runtime_id,
        "release": found.release,
        "variant": found.variant,
        "path": str(found.path),
        "interpreter": str(found.interpreter),
        "python": found.python,
        "size": found.size,
        "packages": dict(found.packages),
    }
