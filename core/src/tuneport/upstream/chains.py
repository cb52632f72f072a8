"""`python -m tuneport.upstream.chains FRAMEWORK RELEASE ROOT --package NAME --programs FOLDER --out FILE`.

The surface of a release whose programs read one YAML file with `--config`, which names the files that it
builds on, and then take overrides. It keeps the facts of every such file, of every class that declares the
shape of the whole, and of what each program's code could read. Nothing is imported.
"""

from __future__ import annotations

import argparse
import ast
import posixpath
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tuneport.errors import TuneportError
from tuneport.experiment.yamlread import read_yaml
from tuneport.upstream.__main__ import artefact
from tuneport.upstream.hydra import dumps
from tuneport.upstream.hydra_tree import read_file
from tuneport.upstream.names import names_in, reached
from tuneport.upstream.sources import Sources, trees
from tuneport.upstream.typed_configs import TypedConfigs

MODEL = "MasterConfig"


def surface(
    framework: str,
    release: str,
    root: Path,
    package: str,
    programs: str,
    artefacts: Sequence[dict[str, str]],
    model: str = MODEL,
) -> dict[str, Any]:
    """The surface document.

    Args:
        programs: folder of the programs and their files, below `root`.
        model: the name by which each program calls the class of its whole configuration.

    Raises:
        Invalid: one of its files holds what no dotted key can say.
    """
    sources = Sources([root])
    classes = TypedConfigs(sources)
    entries: dict[str, dict[str, Any]] = {}
    reads: dict[str, set[str]] = {}
    for path, tree in trees(root, programs):
        module = path.relative_to(root).with_suffix("").as_posix().replace("/", ".")
        config = _default_file(path, tree, root)
        found = sources.find(module, model)
        if not config or found is None or not isinstance(found.node, ast.ClassDef):
            continue
        name = f"{found.module}.{found.node.name}"
        classes.reach(name)
        entries[module] = {"config": config, "path": [programs], "chain": True, "class": name}
        reads[module] = names_in(reached(sources, module, package), fields=False)
    sections = {field for entry in entries.values() for field in classes.table[entry["class"]]["fields"]}
    files = dict(_files(root, programs, sections))
    known = set(_parts(files.values()))
    known |= {field for spec in classes.table.values() for field in spec.get("fields", {})}
    everything = set().union(*reads.values())
    for module, entry in entries.items():
        entry["unread"] = sorted(known - reads[module])
    return {
        "framework": framework,
        "release": release,
        "artefacts": list(artefacts),
        "entries": entries,
        "resolvers": _resolvers(sources, package),
        "files": files,
        "classes": dict(sorted(classes.table.items())),
        "names": " ".join(sorted(everything)),
    }


def _files(root: Path, programs: str, sections: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, what a surface keeps) of every file that could be a program's configuration: one that builds on
    others, or has sections of one. Files of other kinds stand beside them."""
    for path in sorted((root / programs).rglob("*.yaml")):
        name = path.relative_to(root).as_posix()
        data = read_yaml(path).data
        if isinstance(data, dict) and ("defaults" in data or len(sections & data.keys()) > 1):
            yield name, read_file(path, name)


def _parts(files: Any) -> Iterator[str]:
    """Every name of a key in some files."""
    waiting = [content["tree"] for content in files]
    while waiting:
        for key, item in waiting.pop().items():
            yield key
            if isinstance(item, dict):
                waiting.append(item)


def _default_file(path: Path, tree: ast.Module, root: Path) -> str:
    """The file that a program reads where its command line names none; empty where it takes no `--config`."""
    takes = False
    found = ""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name, words = ast.unparse(node.func).rpartition(".")[2], [_text(word) for word in node.args]
        takes = takes or (name == "add_argument" and "--config" in words)
        if name == "join" and len(words) > 1 and words[-1].endswith(".yaml") and all(words[1:]):
            place = posixpath.join(path.parent.relative_to(root).as_posix(), *words[1:])
            found = found or posixpath.normpath(place)
    return found if takes and (root / found).is_file() else ""


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


_OPERATIONS = {"a * b": "product", "a / b": "quotient", "max(a, b)": "maximum"}


def _resolvers(sources: Sources, package: str) -> dict[str, str]:
    """The resolvers of two numbers that the package registers: name -> what is done with them."""
    found: dict[str, str] = {}
    for _, tree in trees(sources.roots[0], package):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("register_new_resolver"):
                name, function = _text(node.args[0]), node.args[1]
                body = ast.unparse(function.body) if isinstance(function, ast.Lambda) else ""
                if name and body in _OPERATIONS:
                    found[name] = _OPERATIONS[body]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tuneport.upstream.chains", description=__doc__)
    parser.add_argument("framework")
    parser.add_argument("release")
    parser.add_argument("root", type=Path, help="folder that holds the release's source tree")
    parser.add_argument("--package", required=True, help="top-level package that the programs import")
    parser.add_argument("--programs", required=True, help="folder of the programs and their YAML files")
    parser.add_argument("--model", default=MODEL, help="what the programs call their configuration's class")
    parser.add_argument("--artefact", action="append", default=[], type=Path, help="archive it came from")
    parser.add_argument("--commit", default="", help="commit of the source tree, where there is no archive")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    artefacts = [artefact(path) for path in options.artefact]
    if options.commit:
        artefacts.append({"name": options.framework, "version": options.release, "commit": options.commit})
    try:
        root, package, programs = options.root.resolve(), options.package, options.programs
        document = surface(
            options.framework, options.release, root, package, programs, artefacts, options.model
        )
    except TuneportError as error:
        sys.stderr.write(f"{error.message}\n" + (f"  hint: {error.hint}\n" if error.hint else ""))
        return error.exit_code
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(dumps(document), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
