"""`python -m tuneport.upstream.hydra FRAMEWORK RELEASE ROOT --package NAME --artefact FILE --out FILE`.

The surface of a release that Hydra configures. It keeps the facts of every file of the tree and of every
class that a `_target_` names; what an entry and its group choices amount to is composed when it is read,
so each fact is written once however many entries and choices share it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuneport.errors import TuneportError
from tuneport.upstream.__main__ import artefact
from tuneport.upstream.hydra_classes import Classes
from tuneport.upstream.hydra_tree import entries, read_folder
from tuneport.upstream.names import built, names
from tuneport.upstream.sources import Sources
from tuneport.upstream.subcommands import subcommands


def surface(
    framework: str,
    release: str,
    sources: Sources,
    package: str,
    artefacts: Sequence[Path],
    programs: Sequence[str] = (),
    builder: str = "",
) -> dict[str, Any]:
    """The surface document of `package`.

    Args:
        programs: packages of it that are run with argparse subcommands; they become entries too.
        builder: the function that makes objects of typed branches; without one all of them count as made.

    Raises:
        Invalid: a file of a tree is not what Hydra reads.
    """
    starts = entries(sources, package)
    files: dict[str, Any] = {}
    waiting = [start["folder"] for start in starts.values()]
    done: set[str] = set()
    while waiting:
        folder = waiting.pop(0)
        if folder in done:
            continue
        done.add(folder)
        for root in sources.roots:
            for name, content in read_folder(root, folder):
                files[name] = content
                waiting += content.get("searchpath", [])
    classes = Classes(sources)
    for content in files.values():
        for target in _targets(content["tree"]):
            classes.reach(target)
    return {
        "framework": framework,
        "release": release,
        "artefacts": [artefact(path) for path in artefacts],
        "entries": {
            **{n: {"config": start["config"], "path": [start["folder"]]} for n, start in starts.items()},
            **{
                n: {"keys": keys} for program in programs for n, keys in subcommands(sources, program).items()
            },
        },
        "files": dict(sorted(files.items())),
        "classes": dict(sorted(classes.table.items())),
        **({"built": built(sources.roots[0], package, builder)} if builder else {}),
        "names": " ".join(names(root, package) for root in sources.roots),
    }


def _targets(branch: Mapping[str, Any]) -> Iterator[str]:
    for key, item in branch.items():
        if isinstance(item, dict):
            yield from _targets(item)
        elif key == "_target_" and isinstance(item[0], str):
            yield item[0]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tuneport.upstream.hydra", description=__doc__)
    parser.add_argument("framework")
    parser.add_argument("release")
    parser.add_argument("root", type=Path, help="folder that holds the unpacked wheel")
    parser.add_argument("--package", required=True, help="top-level package to look for entry points in")
    parser.add_argument("--program", action="append", default=[], help="package with argparse subcommands")
    parser.add_argument("--builder", default="", help="function that makes objects of typed branches")
    parser.add_argument("--artefact", action="append", default=[], type=Path, help="wheel the root came from")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        sources = Sources([options.root.resolve()])
        artefacts, programs = options.artefact, options.program
        document = surface(
            options.framework, options.release, sources, options.package, artefacts, programs, options.builder
        )
    except TuneportError as error:
        sys.stderr.write(f"{error.message}\n" + (f"  hint: {error.hint}\n" if error.hint else ""))
        return error.exit_code
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(dumps(document), "utf-8")
    return 0


def dumps(document: Mapping[str, Any]) -> str:
    """JSON with one leaf or field a line, so that two releases can be compared by eye."""
    return "".join(_lines(document, 0)) + "\n"


def _lines(value: Any, depth: int) -> Iterator[str]:
    if not isinstance(value, dict) or not any(isinstance(item, dict | list) for item in value.values()):
        yield json.dumps(value, ensure_ascii=False)
        return
    pad = " " * (depth + 1)
    yield "{\n"
    for number, (key, item) in enumerate(value.items()):
        yield ("" if number == 0 else ",\n") + f"{pad}{json.dumps(key, ensure_ascii=False)}: "
        field = isinstance(item, dict) and "types" in item and isinstance(item["types"], list)
        if field and "source" in item:
            yield json.dumps(item, ensure_ascii=False)
        else:
            yield from _lines(item, depth + 1)
    yield "\n" + " " * depth + "}"


if __name__ == "__main__":
    raise SystemExit(main())
