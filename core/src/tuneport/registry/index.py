"""Reads one framework's manifests from every source into plain data, once per version of the files.

The result is JSON: it is cached and later commands read that. Reading never stops at a bad file; its
problems are kept with it, and only what depends on it is unusable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from tuneport.errors import TuneportError
from tuneport.experiment.findings import finding_to_json
from tuneport.registry import store
from tuneport.registry.sources import Source
from tuneport.types import Finding, Json

Index: TypeAlias = dict[str, Any]

KINDS = ("releases", "methods", "rules", "surfaces", "templates")
MAX_FILES = 20_000
BINDING = ("key", "keys", "values", "times", "over", "follows", "unit", "default", "note")
"""Keys of a parameter that are ours; everything else in it is JSON Schema."""


def index(framework: str, sources: list[Source]) -> Index:
    """The framework's index: `framework`, `releases`, `methods`, `rules`, `surfaces`, `templates`,
    each entry with its `file`, `digest` and `problems`."""
    found = list(_files(framework, sources))
    stamps = [[path, stamp] for _, path, stamp in found]
    kept = store.load(f"framework-{framework}", stamps)
    if kept is None:
        kept = _build(found, sources)
        store.save(f"framework-{framework}", stamps, kept)
    assert isinstance(kept, dict)
    return kept


def _files(framework: str, sources: list[Source]) -> Iterator[tuple[str, str, list[int]]]:
    """(kind, path, stamp) of every file, in a stable order. Links out of the folder are not followed."""
    for source in sources:
        root = source.folder / framework
        for path, stamp in _walk(root / "framework.yaml"):
            yield "framework", path, stamp
        for kind in KINDS:
            for path, stamp in _walk(root / kind):
                yield kind, path, stamp


def _walk(path: Path) -> Iterator[tuple[str, list[int]]]:
    try:
        stat = path.lstat()
    except OSError:
        return
    if path.is_symlink():
        return
    if path.is_dir():
        for name in sorted(os.listdir(path)):
            if not name.startswith(".") and name != "__pycache__":
                yield from _walk(path / name)
    elif path.is_file():
        yield str(path), [stat.st_mtime_ns, stat.st_size]


def _build(found: list[tuple[str, str, list[int]]], sources: list[Source]) -> Index:
    result: Index = {"framework": {}, **{kind: {} for kind in KINDS}}
    for kind, path, _ in found[:MAX_FILES]:
        name = _name(kind, path)
        entry = _entry(kind, path)
        known = result[kind].get(name)
        if known is None:
            result[kind][name] = entry
        elif known["digest"] != entry["digest"]:
            places = " and ".join(f"{file} ({_owner(file, sources)})" for file in (known["file"], path))
            message = f"{name} is defined twice with different content: {places}"
            clash = Finding("manifest-clash", "error", message, "remove one of them", "", path, 0)
            known["problems"].append(finding_to_json(clash))
    return result


def _owner(path: str, sources: list[Source]) -> str:
    """Who answers for a file: a distribution, or the folder that was named."""
    return next((s.owner for s in sources if Path(path).is_relative_to(s.folder)), "nobody")


def _name(kind: str, path: str) -> str:
    if kind == "templates":
        return path.split(f"{os.sep}templates{os.sep}", 1)[1]
    name = os.path.basename(path)
    return name if kind == "surfaces" else name.removesuffix(".yaml")


def _entry(kind: str, path: str) -> Index:
    from tuneport.registry.digest import digest_bytes

    try:
        content = Path(path).read_bytes() if os.path.getsize(path) <= 64 << 20 else b""
    except OSError as error:
        problem = Finding("manifest-unreadable", "error", str(error), "", "", path, 0)
        return {"file": path, "digest": "", "problems": [finding_to_json(problem)], "doc": None}
    entry: Index = {"file": path, "digest": digest_bytes(content), "problems": []}
    if kind in ("surfaces", "templates"):
        return entry  # large, and only one of them is needed at a time
    doc, problems = _document(kind, path)
    entry["doc"] = doc
    entry["problems"] = [finding_to_json(problem) for problem in problems]
    return entry


def _document(kind: str, path: str) -> tuple[Json, list[Finding]]:
    from tuneport.experiment.yamlread import read_yaml
    from tuneport.registry import schemas

    name = {"releases": "release", "methods": "method"}.get(kind, kind)
    try:
        document = read_yaml(Path(path))
        problems = list(document.findings)
        if not problems:
            problems = schemas.check(document, name, "manifest-schema")
        problems += _named(kind, path, document.data)
    except TuneportError as error:
        return None, [Finding(error.code, "error", error.message, error.hint, "", path, 0)]
    if kind == "rules" and isinstance(document.data, dict):
        from tuneport.checks.cel import rule_problems

        problems += rule_problems(document)
    if kind == "methods" and isinstance(document.data, dict) and "data" in document.data:
        from tuneport.checks.cel import reading_problems

        problems += reading_problems(document)
    if kind == "methods" and isinstance(document.data, dict):
        for param, what in schemas.param_problems(document.data.get("params"), BINDING):
            line = document.line(("params", param))
            text = f"params.{param}: {what}"
            problems.append(Finding("manifest-schema", "error", text, "", f"params.{param}", path, line))
    return (None if problems else document.data), problems


def _named(kind: str, path: str, doc: Json) -> Iterator[Finding]:
    """A file's name and what it says it is must agree, or one id could hide behind another."""
    field = {"releases": "release", "methods": "method", "framework": "framework"}.get(kind)
    if field is None or not isinstance(doc, dict):
        return
    parts = Path(path).parts
    stem = Path(path).name.removesuffix(".yaml")
    folder = parts[-2] if kind == "framework" else parts[-3]
    expected = {"releases": stem, "methods": f"{folder}/{stem}", "framework": folder}[kind]
    if kind == "methods" and stem.startswith("_"):
        if field in doc:
            yield Finding("manifest-name", "error", "a mixin has no `method`", "", field, path, 1)
    elif doc.get(field) != expected:
        message = f"`{field}` is {doc.get(field)!r} but the file is {Path(path).name} of {folder}"
        yield Finding("manifest-name", "error", message, f"write {field}: {expected}", field, path, 1)
