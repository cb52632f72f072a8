"""A user's files that build on others: `defaults:` names files beside them, or files of the release.

What the files of the release come to is composed with the surface; this finds which of them are meant, and
merges the user's own into one document that keeps the file and line of every key.
"""

from __future__ import annotations

import os.path
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuneport.dialects.hydra.chain import MAX_CHAIN, REPLACES, leaves, listed
from tuneport.errors import Invalid, NotFound
from tuneport.experiment.yamlread import Document, read_yaml
from tuneport.text import closest
from tuneport.types import Finding, Json

KEY = "defaults"
MAX_READ = 200
"""Files that are read for one configuration: two that each name two, and so on, would be read without end."""


@dataclass(slots=True)
class Overlay:
    """`document` holds the user's files merged; `base` the release's files below them, in order; `deleted`
    the sections of those that the user's files replace whole."""

    document: Document
    base: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def unroll(document: Document, files: Mapping[str, Mapping[str, Json]]) -> Overlay:
    """The document over everything that it builds on.

    Args:
        files: the files of the release, by name.
    """
    return _unroll(document, files, (os.path.abspath(document.file),), [])


def _unroll(
    document: Document, files: Mapping[str, Mapping[str, Json]], chain: tuple[str, ...], read: list[str]
) -> Overlay:
    """`chain` are the files above this one, `read` all that were read so far."""
    data = document.data if isinstance(document.data, dict) else {}
    found = Overlay(Document(data={}, file=document.file))
    folder = os.path.dirname(document.file)
    bases = data.get(KEY)
    plain = bases is None or isinstance(bases, str)
    if not plain and not (isinstance(bases, list) and all(isinstance(item, str) for item in bases)):
        message = f"`{KEY}` is the name of a file, or a list of names"
        found.findings.append(_error("config-defaults", document, message, "write a file's name"))
        bases = None
    for name in listed(bases):
        path = os.path.join(folder, name)
        known = _of_release(name, path, files)
        if known:
            if found.document.data:
                message = (
                    f"`{KEY}` names {name}, a file of the release, after a file of yours that it would cover"
                )
                found.findings.append(
                    _error("config-order", document, message, "name the release's files first")
                )
            found.base.append(known)
        elif os.path.abspath(path) in chain:
            found.findings.append(_error("config-circle", document, f"{name} builds on itself", ""))
        elif len(read) >= MAX_READ or len(chain) > MAX_CHAIN:
            if not any(one.code == "config-many" for one in found.findings):
                message = f"more than {MAX_READ} files, or {MAX_CHAIN} one below the other, are built on"
                found.findings.append(_error("config-many", document, message, "put them into fewer files"))
            break
        else:
            read.append(path)
            _take(found, document, name, path, files, chain, read)
    _merge(found, document, {key: value for key, value in data.items() if key != KEY})
    return found


def _take(
    found: Overlay,
    document: Document,
    name: str,
    path: str,
    files: Mapping[str, Mapping[str, Json]],
    chain: tuple[str, ...],
    read: list[str],
) -> None:
    """Lay one of the user's files over what was found so far."""
    try:
        below = read_yaml(Path(path))
    except NotFound:
        close = closest(os.path.basename(name), map(posixpath.basename, files))
        hint = (
            f"did you mean {close}, a file of the release?"
            if close
            else "write a path from this file's folder"
        )
        place = os.path.normpath(path)
        message = f"`{KEY}` names {name}, which is neither a file at {place} nor one of the release"
        found.findings.append(_error("config-unknown", document, message, hint))
        return
    except Invalid as error:
        found.findings.append(_error(error.code, document, error.message, error.hint))
        return
    found.findings += below.findings
    if below.data is not None and not isinstance(below.data, dict):
        message = f"{name} holds no keys with values"
        found.findings.append(_error("yaml-root", document, message, "write `key: value` lines"))
        return
    here, there = os.path.realpath(os.path.dirname(chain[0])), os.path.realpath(path)
    if os.path.commonpath([here, os.path.dirname(there)]) != here:
        message = (
            f"`{KEY}` builds on {name}, which lies outside of the experiment: it counts, and is no part of it"
        )
        hint = "copy it in, so that the experiment says all of itself"
        found.findings.append(Finding("config-outside", "note", message, hint, KEY, document.file))
    inner = _unroll(below, files, (*chain, os.path.abspath(path)), read)
    found.findings += inner.findings
    found.base += [item for item in inner.base if item not in found.base]
    found.deleted += [item for item in inner.deleted if item not in found.deleted]
    _merge(found, inner.document, inner.document.data)


def _merge(found: Overlay, over: Document, data: Mapping[str, Json]) -> None:
    into = found.document
    for name, item in data.items():
        if isinstance(item, dict) and REPLACES in item:
            item = dict(item)
            if item.pop(REPLACES):
                into.data.pop(name, None)
                found.deleted.append(name)
        into.data[name] = _over(into.data.get(name), item)
    into.lines |= over.lines
    into.raw |= over.raw
    into.places |= over.places or dict.fromkeys(over.lines, over.file)


def _over(below: Json, item: Json) -> Json:
    if not isinstance(item, dict) or not isinstance(below, dict):
        return item
    return {**below, **{name: _over(below.get(name), value) for name, value in item.items()}}


def _of_release(name: str, path: str, files: Mapping[str, Mapping[str, Json]]) -> str:
    """The file of the release that a name means; empty where it means one of the user's own. A copy of the
    release's file at that place is the release's file as long as nothing was changed in it."""
    known = release_file(name, files)
    if not known or not os.path.exists(path):
        return known
    try:
        data = read_yaml(Path(path)).data
    except (Invalid, NotFound):
        return ""
    return known if isinstance(data, dict) and same(data, files[known]) else ""


def same(data: Mapping[str, Json], kept: Mapping[str, Json]) -> bool:
    """Whether a file says what the release's own says."""
    from tuneport.compiler.layers import flatten

    rest = {key: value for key, value in data.items() if key != KEY}
    theirs = dict(leaves(kept["tree"]))
    return listed(data.get(KEY)) == listed(kept.get(KEY)) and dict(flatten(rest, {})) == theirs


def release_file(name: str, files: Mapping[str, Mapping[str, Json]]) -> str:
    """The file of the release that a name means: in full, by the end of its path, or by a path that ends with
    it; empty where it means none, or several."""
    tail = posixpath.normpath(name.replace(os.sep, "/"))
    while tail.startswith("../"):
        tail = tail[3:]
    tail = tail.lstrip("/")
    if tail in files:
        return tail
    longer = [file for file in files if file.endswith(f"/{tail}")]
    shorter = [file for file in files if f"/{tail}".endswith(f"/{file}")]
    found = longer or shorter
    return found[0] if len(found) == 1 else ""


def _error(code: str, document: Document, message: str, hint: str) -> Finding:
    return Finding(code, "error", message, hint, KEY, document.file, document.line((KEY,)))
