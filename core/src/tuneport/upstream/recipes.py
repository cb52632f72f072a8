"""Makes a surface the way that a framework's manifest says: `scan` of framework.yaml."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuneport.errors import Invalid, NotFound
from tuneport.upstream.argparse_flags import scan_parser
from tuneport.upstream.dataclasses import Scan as Read
from tuneport.upstream.dataclasses import entry_dataclasses, scan_entry
from tuneport.upstream.flags_over import scan_flags
from tuneport.upstream.listed import lists
from tuneport.upstream.sources import Sources

Document = dict[str, Any]


def recipe(name: str, framework: str = "") -> tuple[str, Mapping[str, Any]]:
    """(framework, how it is scanned) for a distribution; empty where no manifest knows it.

    Raises:
        NotFound: the framework that was asked for has no recipe for it.
    """
    from tuneport.registry import catalog

    for known in [framework] if framework else catalog.frameworks():
        specs = catalog.framework_spec(known).get("scan", {})
        if name in specs:
            return known, specs[name]
    if framework:
        named = ", ".join(specs) or "nothing"
        message = f"the manifest of {framework} says how to scan {named}, not {name}"
        raise NotFound(message, code="upstream-recipe", hint="add it to `scan` of its framework.yaml")
    return "", {}


def made(
    framework: str,
    release: str,
    spec: Mapping[str, Any],
    sources: Sources,
    artefacts: Sequence[Mapping[str, str]],
) -> tuple[Document, list[str]]:
    """(surface document, what could not be decided). An entry that the release lacks is left out and said."""
    undecided: list[str] = []
    head: Document = {"framework": framework, "release": release, "artefacts": [dict(a) for a in artefacts]}
    if "hydra" in spec:
        from tuneport.upstream import hydra

        given = spec["hydra"]
        document = hydra.surface(
            framework,
            release,
            sources,
            given["package"],
            (),
            given.get("programs", ()),
            given.get("builder", ""),
        )
        return {**document, **head}, undecided
    if "chain" in spec:
        from tuneport.upstream import chains

        given = spec["chain"]
        model = given.get("model", chains.MODEL)
        roots = [root for root in sources.roots if (root / given["programs"]).is_dir()]
        if not roots:
            message = f"the release has no folder {given['programs']}"
            raise Invalid(message, code="entry-not-found", hint="name a tree of the whole source")
        document = chains.surface(
            framework, release, roots[0], given["package"], given["programs"], head["artefacts"], model
        )
        return document, undecided
    if "lists" in spec:
        head["lists"] = lists(sources, spec["lists"])
    entries: Document = {}
    assume = dict.fromkeys(spec.get("assume", ()), True)

    def read(entry: str, parser: str, reader: Callable[[], Read]) -> None:
        try:
            found = reader()
        except Invalid as error:
            undecided.append(f"{entry}: {error.message}")
            return
        undecided.extend(f"{entry}: {why}" for why in found.undecided)
        undecided.extend(f"{entry}: the host decides the default of {name}" for name in found.unknown)
        entries[entry] = {"parser": parser, "keys": found.keys}

    for entry in spec.get("dataclasses", ()):
        read(entry, "dataclasses", lambda entry=entry: scan_entry(sources, entry, assume))  # type: ignore[misc]
    for entry in spec.get("parsers", ()):
        read(entry, "argparse", lambda entry=entry: scan_parser(sources, entry, partial=True))  # type: ignore[misc]
    for entry, given in spec.get("flags", {}).items():
        read(entry, "argparse", lambda given=given: scan_flags(sources, given))  # type: ignore[misc]
    undecided += _beside(sources, [*spec.get("dataclasses", ()), *spec.get("parsers", ())])
    if not any(spec.get(kind) for kind in ("dataclasses", "parsers", "flags")):
        undecided.append("`scan` of the manifest names no program, so there are no entries")
    return {**head, "entries": entries}, undecided


def _beside(sources: Sources, entries: Sequence[str]) -> list[str]:
    """Modules next to the known entries that have a parser too and that no recipe names."""
    found: dict[str, str] = {}
    for folder in dict.fromkeys(entry.rpartition(".")[0] for entry in entries):
        package = sources.path(folder)
        for path in sorted(package.parent.glob("*.py")) if package is not None else ():
            module = f"{folder}.{path.stem}"
            if module not in entries and path.stem != "__init__" and _parses(sources, module):
                found[module] = f"{module} has a command line too; `scan` of the manifest does not name it"
    return list(found.values())


def _parses(sources: Sources, module: str) -> bool:
    try:
        return bool(entry_dataclasses(sources, module))
    except Invalid:
        pass
    path = sources.path(module)
    text = path.read_text("utf-8", "replace") if path else ""
    return "ArgumentParser(" in text and ".add_argument(" in text and "__main__" in text


__all__ = ["made", "recipe"]
