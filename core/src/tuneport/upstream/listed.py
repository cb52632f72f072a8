"""Names that a release's code registers and a key takes: keys of a mapping, arguments of calls, fields of a
class, documents."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tuneport.errors import Invalid
from tuneport.upstream.dataclasses import class_fields
from tuneport.upstream.flags_over import called
from tuneport.upstream.sources import Sources
from tuneport.upstream.static import UNKNOWN, evaluate

Documents = dict[Path, dict[str, Any]]


def lists(sources: Sources, spec: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Name of a list -> its names, sorted.

    Args:
        spec: for each list one of `mapping` (full name of a module's mapping: its keys), `calls` with
            `argument` and `under` (that argument, or else the first by position, of every such call in a
            folder), `fields` (full name of a dataclass), or `documents` (see `_documents`).

    Raises:
        Invalid: what should hold the names is not there, or holds a name that is worked out.
    """
    read: Documents = {}
    return {name: sorted(_names(sources, item, read)) for name, item in spec.items()}


def _names(sources: Sources, spec: Mapping[str, Any], read: Documents) -> set[str]:
    if "mapping" in spec:
        module, _, name = spec["mapping"].rpartition(".")
        found = sources.find(module, name)
        value = getattr(found.node, "value", None) if found else None
        held = evaluate(sources, module, value) if isinstance(value, ast.expr) else UNKNOWN
        if not isinstance(held, dict):
            raise Invalid(f"{spec['mapping']} is no mapping that can be read", code="entry-undecided")
        return set(held)
    if "fields" in spec:
        module, _, name = spec["fields"].rpartition(".")
        known = sources.find(module, name)
        if known is None:
            raise Invalid(f"no source root holds the class {spec['fields']}", code="entry-not-found")
        return {item.name for item in class_fields(sources, known, {})}
    if "calls" in spec:
        return set(_arguments(sources, spec["calls"], spec.get("argument"), spec["under"]))
    return _documents(_folder(sources, spec["documents"]), spec, read)


def _folder(sources: Sources, name: str) -> Path:
    for root in sources.roots:
        if (root / name).is_dir():
            return root / name
    raise Invalid(f"no source root holds the folder {name}", code="entry-not-found")


def _arguments(sources: Sources, name: str, argument: str | None, under: str) -> Iterator[str]:
    folder = _folder(sources, under)
    for path in sorted(folder.rglob("*.py")):
        module = ".".join((*under.split("/"), *path.relative_to(folder).with_suffix("").parts))
        tree = sources.tree(module)
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, ast.Call) and called(node.func) == name:
                given = [word.value for word in node.keywords if word.arg == argument]
                for word in given if argument else node.args[:1]:
                    value = evaluate(sources, module, word)
                    if not isinstance(value, str):
                        message = f"{module}: the name {ast.unparse(word)} is worked out"
                        raise Invalid(message, code="entry-undecided")
                    yield value


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A tag of the release's own stays text."""


_Loader.add_multi_constructor("!", lambda _loader, tag, _node: f"!{tag}")


def _documents(folder: Path, spec: Mapping[str, Any], read: Documents) -> set[str]:
    """Names that YAML documents below a folder have, with their tags.

    Args:
        spec: `name` (the key of a document's name), `group` (the key of a group's name, whose members stand
            under `name`; a document with the key `other` is none), `tag`, `include` (documents that it
            builds on), and `where` (a key that must be true, or with `among` have one of its values, of the
            document or of a member).
    """
    title, group, tag = spec["name"], spec["group"], spec["tag"]
    names, chosen = set[str](), set[str]()
    members: dict[str, set[str]] = {}
    for path in sorted(folder.glob("**/*.yaml"), key=lambda item: item.as_posix()):
        document = _read(path, folder, spec["include"], (), read)
        grouped = group in document and spec["other"] not in document
        name = document.get(group if grouped else title)
        if not isinstance(name, str):
            continue
        names.add(name)
        if group in document:
            members.setdefault(name, set()).update(_members(document.get(title, []), title, group))
            continue
        tags = document.get(tag) or []
        for word in [tags] if isinstance(tags, str) else tags:
            names.add(word)
            members.setdefault(word, set()).add(name)
        value = document.get(spec["where"]) if "where" in spec else None
        if value in spec["among"] if "among" in spec else value:
            chosen.add(name)
    while more := {word for word, inside in members.items() if inside & chosen and word not in chosen}:
        chosen |= more
    return chosen if "where" in spec else names


def _members(items: Any, title: str, group: str) -> Iterator[str]:
    for item in items if isinstance(items, list) else [items]:
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            yield from _members(item.get(title, item.get(group, [])), title, group)


def _read(path: Path, folder: Path, include: str, chain: tuple[Path, ...], read: Documents) -> dict[str, Any]:
    path = path.resolve()
    if path in chain or len(chain) > 20 or not path.is_relative_to(folder.parent.resolve()):
        return {}
    document = dict(read[path] if path in read else read.setdefault(path, _load(path)))
    included = document.pop(include, [])
    merged: dict[str, Any] = {}
    for name in [included] if isinstance(included, str) else included:
        merged |= _read(path.parent / str(name), folder, include, (*chain, path), read)
    return {**merged, **document}


def _load(path: Path) -> dict[str, Any]:
    try:
        loader = _Loader(path.read_text("utf-8", "replace"))
        try:
            document = loader.get_single_data()
        finally:
            loader.dispose()
    except (yaml.YAMLError, OSError, RecursionError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
