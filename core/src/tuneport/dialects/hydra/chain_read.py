"""An existing argument list of a program that reads a chain of YAML files and then overrides."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from tuneport.checks.undecided import UNDECIDED
from tuneport.compiler.layers import flatten
from tuneport.dialects.hydra.chain import NO_FILE
from tuneport.dialects.hydra.choices import CONFIG
from tuneport.dialects.hydra.parse import Override
from tuneport.dialects.hydra.read import Applied, Words, apply, placed, read_overrides
from tuneport.errors import Invalid, NotFound
from tuneport.experiment.overlays import release_file, same, unroll
from tuneport.experiment.yamlread import Document, read_yaml
from tuneport.shell.gaps import open_, word
from tuneport.types import EMPTY, Finding, Json, Key

_DOCS = "hydra-core 1.3 hydra/core/override_parser/overrides_parser.py"


@dataclass(slots=True)
class Read:
    """`config` names the release's files that the command builds on, as `catalog.release` takes them
    (UNDECIDED where that is not known); `document` holds the user's own files over those; `missing` is a file
    that is not here."""

    config: Json = ""
    document: Document = field(default_factory=lambda: Document(data={}))
    deleted: list[str] = field(default_factory=list)
    words: Words = field(default_factory=Words)
    findings: list[Finding] = field(default_factory=list)
    missing: str = ""


class _Stop(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Stop(message)


def read(arguments: Sequence[str], files: Mapping[str, Mapping[str, Json]]) -> Read:
    """Take an argument list apart: the file that it names, and the overrides.

    Args:
        files: the files of the release, by name.
    """
    found = Read()
    parser = _Parser(add_help=False)
    parser.add_argument(CONFIG)
    try:
        parsed, rest = parser.parse_known_args(list(arguments))
    except _Stop as refusal:
        found.findings.append(Finding("hydra-flag", "error", str(refusal)[:200], "", CONFIG))
        return found
    overrides: list[str] = []
    for text in rest:
        if text.startswith("-"):
            message = f"{text[:80]!r} is no flag of the program, which takes {CONFIG} alone, and no override"
            bare = text.lstrip("-")[:80]
            hint = f"write {bare}" if "=" in bare else f"an override is key=value, and a file {CONFIG} FILE"
            finding = Finding("hydra-flag", "error", message, hint, text[:80], source=_DOCS)
            found.findings.append(placed(finding, text))
        else:
            overrides.append(text)
    read_overrides(overrides, found.words)
    found.findings += found.words.findings
    for one in [one for one in found.words.overrides if one.package is not None]:
        message = f"{one.text[:80]!r} looks like a choice of files, but there is no group {one.key!r}"
        found.findings.append(
            placed(Finding("group-unknown", "error", message, "", one.key, source=_DOCS), one.text)
        )
        found.words.overrides.remove(one)
    if parsed.config is not None:
        _file(parsed.config, files, found)
    return found


def _file(name: str, files: Mapping[str, Mapping[str, Json]], found: Read) -> None:
    if open_(name):
        found.config = UNDECIDED
        return
    known = release_file(name, files)
    try:
        document = read_yaml(Path(name))
    except NotFound:
        found.config, found.missing = (known, "") if known else ("", name)
        return
    except Invalid as error:
        found.findings.append(Finding(error.code, "error", error.message, error.hint, CONFIG, name))
        found.missing = name
        return
    found.findings += document.findings
    if not isinstance(document.data, dict):
        if not document.findings:
            message = f"{name} holds no keys with values"
            found.findings.append(
                Finding("yaml-root", "error", message, "write `key: value` lines", CONFIG, name)
            )
        found.missing = name
        return
    if known and same(document.data, files[known]):
        found.config = known
        return
    below = unroll(document, files)
    found.config = ",".join(below.base) or NO_FILE
    found.document, found.deleted = below.document, below.deleted
    found.findings += below.findings


def applied(found: Read, keys: Mapping[str, Key], moves: Mapping[str, str] = EMPTY) -> Applied:
    """What the user's files and then the overrides do to the composed keys; `moves` as for `read.apply`."""
    seeds: list[Override] = []
    places = {}
    for name in found.deleted:
        if any(key.startswith(f"{name}.") for key in keys):
            seeds.append(Override(f"~{name}", "~", name, None, "none"))
    for path, value in flatten(found.document.data, keys):
        name = ".".join(path)
        places[name] = word("", found.document.place(path), found.document.line(path))
        seeds.append(Override(name, "++", name, None, "value", value))
    result = apply([*seeds, *found.words.overrides], keys, moves)
    given = Counter(one.key for one in found.words.overrides)
    result.added -= {name for name in places if not given[name]}
    result.places = {**{name: place for name, place in places.items() if not given[name]}, **result.places}
    result.findings = [
        f for f in result.findings if f.code != "key-repeated" or given[f.key] > 1 or f.key not in places
    ]
    return result
