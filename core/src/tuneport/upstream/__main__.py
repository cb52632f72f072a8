"""`python -m tuneport.upstream FRAMEWORK RELEASE ROOT… --entry MODULE --artefact FILE --out FILE`.

`--parser MODULE` instead of `--entry` where the module adds its flags to an argparse parser itself.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuneport.errors import TuneportError
from tuneport.upstream.argparse_flags import scan_parser
from tuneport.upstream.dataclasses import scan_entry
from tuneport.upstream.sources import Sources


def surface(
    framework: str,
    release: str,
    sources: Sources,
    entries: Sequence[str],
    artefacts: Sequence[Path],
    assume: Mapping[str, bool] | None = None,
    parsers: Sequence[str] = (),
) -> tuple[dict[str, Any], list[str]]:
    """A surface document, and the `entry: key` pairs whose default only the host decides.

    Args:
        entries: modules that parse dataclasses. parsers: those that make an argparse parser themselves.
    """
    scans = {entry: scan_entry(sources, entry, assume) for entry in entries}
    scans |= {entry: scan_parser(sources, entry) for entry in parsers}
    document = {
        "framework": framework,
        "release": release,
        "artefacts": [artefact(path) for path in artefacts],
        "entries": {
            entry: {"parser": "argparse" if entry in parsers else "dataclasses", "keys": scan.keys}
            for entry, scan in scans.items()
        },
    }
    return document, [f"{entry}: {name}" for entry, scan in scans.items() for name in scan.unknown]


def artefact(wheel: Path) -> dict[str, str]:
    """Name, version and SHA-256 of a wheel, the first two read from its file name."""
    match = re.match(r"(?P<name>[^-]+)-(?P<version>[^-]+)-.+\.whl$", wheel.name)
    if match is None:
        raise SystemExit(f"{wheel} is not named like a wheel")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return {"name": match["name"].replace("_", "-"), "version": match["version"], "sha256": digest}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tuneport.upstream", description=__doc__)
    parser.add_argument("framework")
    parser.add_argument("release")
    parser.add_argument("roots", nargs="+", type=Path, metavar="ROOT", help="folder that holds packages")
    parser.add_argument("--entry", action="append", default=[], help="module that parses dataclasses")
    parser.add_argument("--parser", action="append", default=[], help="module that makes an argparse parser")
    parser.add_argument(
        "--artefact", action="append", default=[], type=Path, help="wheel the roots came from"
    )
    parser.add_argument("--assume", action="append", default=[], help="name that holds on the pinned runtime")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        document, unknown = surface(
            options.framework,
            options.release,
            Sources([root.resolve() for root in options.roots]),
            options.entry,
            options.artefact,
            dict.fromkeys(options.assume, True),
            options.parser,
        )
    except TuneportError as error:
        sys.stderr.write(f"{error.message}\n" + (f"  hint: {error.hint}\n" if error.hint else ""))
        return error.exit_code
    for line in unknown:
        sys.stderr.write(f"default left out, the host decides it: {line}\n")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(dumps(document), "utf-8")
    return 0


def dumps(document: Mapping[str, Any]) -> str:
    """JSON with one key of a surface, or one list of names, per line, so that two releases can be compared
    by eye."""
    lists = document.get("lists", {})
    if lists:
        document = {**document, "lists": {name: f"@{name}@" for name in lists}}
    entries = {
        name: {**entry, "keys": {key: f"@{name}@{key}@" for key in entry["keys"]}}
        for name, entry in document["entries"].items()
    }
    text = json.dumps({**document, "entries": entries}, indent=1, ensure_ascii=False)
    for name, value in lists.items():
        text = text.replace(json.dumps(f"@{name}@"), json.dumps(value, ensure_ascii=False), 1)
    for name, entry in document["entries"].items():
        for key, value in entry["keys"].items():
            text = text.replace(json.dumps(f"@{name}@{key}@"), json.dumps(value, ensure_ascii=False), 1)
    return text + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
