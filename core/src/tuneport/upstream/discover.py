"""What a package that no manifest knows takes, as far as it can be found without a recipe."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tuneport.errors import Invalid
from tuneport.upstream import hydra
from tuneport.upstream.argparse_flags import scan_parser
from tuneport.upstream.code import modules
from tuneport.upstream.dataclasses import scan_entry
from tuneport.upstream.hydra_tree import entries as hydra_entries
from tuneport.upstream.sources import Sources, Unreadable, parse
from tuneport.upstream.typed_configs import TypedConfigs

_WORDS = ("Config", "Args", "Arguments", "Params", "Settings", "Options")
_UNREAD = ("click", "typer", "fire", "absl.flags", "jsonargparse", "tyro", "simple_parsing", "draccus")
_DEPTH = 8


def discovered(
    name: str, version: str, sources: Sources, artefacts: Sequence[Mapping[str, str]]
) -> tuple[dict[str, Any], list[str]]:
    """(surface document, what could not be decided). Entries are modules that make a parser, and classes that
    hold a configuration and are part of no other one."""
    head: dict[str, Any] = {"framework": name, "release": version, "artefacts": [dict(a) for a in artefacts]}
    undecided = ["no manifest says how this distribution is read: entries were looked for"]
    found: dict[str, Any] = {}
    roots: list[tuple[str, str]] = []
    composed: dict[str, Any] = {}
    for path, module in modules(sources, ()):
        try:
            tree = parse(path)
        except Unreadable:
            continue  # said by the walk over all modules
        text = path.read_text("utf-8", "replace")
        parsers = "ArgumentParser(" in text and ".add_argument(" in text
        if parsers:
            scan = scan_parser(sources, module, partial=True)
            if scan.keys:
                found[module] = {"parser": "argparse", "keys": scan.keys}
                undecided += [f"{module}: {why}" for why in scan.undecided]
        if not parsers and "Parser((" in text:
            try:
                scan = scan_entry(sources, module)
                found[module] = {"parser": "dataclasses", "keys": scan.keys}
            except Invalid as error:
                undecided.append(f"{module}: {error.message}")
        roots += [(module, node.name) for node in tree.body if isinstance(node, ast.ClassDef)]
        undecided += [f"{module} takes its command line with {used}" for used in _unread(tree)]
    for package in dict.fromkeys(module.split(".")[0] for _, module in modules(sources, ())):
        if hydra_entries(sources, package):
            composed = hydra.surface(name, version, sources, package, ())
            break
    classes, aliased = _classes(sources, roots)
    found |= classes
    undecided += [f"{place} has an alias, which is not in the surface" for place in aliased]
    if composed:
        return {**composed, **head, "entries": {**composed["entries"], **found}}, undecided
    if not found:
        undecided.append("nothing was found that takes a configuration")
    return {**head, "entries": found}, undecided


def _unread(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        yield from (name for name in dict.fromkeys(names) if name in _UNREAD)


def _classes(sources: Sources, names: Sequence[tuple[str, str]]) -> tuple[dict[str, Any], list[str]]:
    """(entries, places of fields with an alias)."""
    table = TypedConfigs(sources)
    for module, name in names:
        if name.endswith(_WORDS):
            table.reach(f"{module}.{name}")
    inner = {
        field.get("class", "") for spec in table.table.values() for field in spec.get("fields", {}).values()
    }
    inner |= {base for spec in table.table.values() for base in spec.get("bases", ())}
    found: dict[str, Any] = {}
    for name in sorted(table.table):
        if name not in inner and " | " not in name and name.rpartition(".")[2].endswith(_WORDS):
            keys = dict(_flat(table, name, "", ()))
            if keys and "source" in table.table[name]:
                found[name] = {"keys": keys}
    return found, table.aliased


def _flat(
    table: TypedConfigs, name: str, prefix: str, chain: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The fields of a class by dotted name, those of the classes in it included."""
    for field, spec in table.every(name).items():
        inner = spec.get("class", "")
        if inner in table.table and inner not in chain and len(chain) < _DEPTH:
            yield from _flat(table, inner, f"{prefix}{field}.", (*chain, name))
        else:
            kept = ("types", "default", "choices", "required", "source")
            yield f"{prefix}{field}", {word: spec[word] for word in kept if word in spec}
