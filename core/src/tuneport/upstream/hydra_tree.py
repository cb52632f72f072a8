"""Reads folders of Hydra configuration files into the facts that a surface keeps of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuneport.errors import Invalid
from tuneport.experiment.yamlread import Document, read_yaml
from tuneport.upstream.sources import Sources
from tuneport.upstream.static import evaluate

_PACKAGE = re.compile(r"^\s*#\s*@package\s+(\S+)\s*$")


def entries(sources: Sources, package: str) -> dict[str, dict[str, str]]:
    """Every module of `package` whose main function Hydra configures: its folder of files and the
    name of the one that is composed where no other is asked for."""
    found: dict[str, dict[str, str]] = {}
    for root in sources.roots:
        for path in sorted((root / package).rglob("*.py")):
            if "hydra" not in path.read_text("utf-8", "replace"):
                continue
            module = path.relative_to(root).with_suffix("").as_posix().replace("/", ".")
            call = _decorator(sources, module)
            if call is None:
                continue
            words = {word.arg: evaluate(sources, module, word.value) for word in call.keywords if word.arg}
            folder, config = words.get("config_path"), words.get("config_name")
            if isinstance(folder, str) and isinstance(config, str):
                place = _relative(path.parent.relative_to(root).as_posix(), folder)
                found[module] = {"folder": place, "config": config.removesuffix(".yaml")}
    return found


def read_folder(root: Path, folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`folder/group/name`, what a surface keeps) of every file below a folder; generated ones, whose
    name starts with an underscore, are left out.

    Raises:
        Invalid: a file is not the plain YAML that Hydra reads.
    """
    for path in sorted((root / folder).rglob("*.yaml")):
        if path.name.startswith("_"):
            continue
        name = path.relative_to(root).with_suffix("").as_posix()
        yield name, read_file(path, name)


def read_file(path: Path, name: str) -> dict[str, Any]:
    """What a surface keeps of one file.

    Raises:
        Invalid: it is not a mapping in plain YAML.
    """
    document = read_yaml(path)
    problem = next(iter(document.findings), None)
    if problem is not None or not isinstance(document.data, dict | None):
        raise Invalid(f"{path}: {problem.message if problem else 'not a mapping'}", code="hydra-file")
    data: dict[str, Any] = dict(document.data or {})
    kept: dict[str, Any] = {}
    package = _header(path)
    if package is not None:
        kept["package"] = package
    defaults = data.pop("defaults", None)
    if defaults is not None:
        kept["defaults"] = defaults
    search = _search_path(data)
    if search:
        kept["searchpath"] = search
    kept["tree"] = _branch(document, data, (), name)
    return kept


def _header(path: Path) -> str | None:
    for line in path.read_text("utf-8").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            return None
        match = _PACKAGE.match(line)
        if match:
            return match[1]
    return None


def _search_path(data: Mapping[str, Any]) -> list[str]:
    """Folders that a primary file brings in, as paths in the artefact; a relative `file://` is one where
    the program is started from the artefact's root."""
    hydra = data.get("hydra")
    written = hydra.get("searchpath", []) if isinstance(hydra, dict) else []
    found = []
    for text in written:
        scheme, _, rest = text.partition("://")
        if scheme == "pkg":
            found.append(rest.replace(".", "/"))
        elif scheme == "file" and not rest.startswith("/"):
            found.append(rest)
    return found


def _branch(document: Document, data: Mapping[str, Any], path: tuple[str | int, ...], name: str) -> Any:
    branch: dict[str, Any] = {}
    for key, value in data.items():
        if "." in key or not key:
            raise Invalid(f"{name}: the key {key!r} has no dotted name", code="hydra-file")
        here = (*path, key)
        if isinstance(value, dict) and value:
            branch[key] = _branch(document, value, here, name)
        else:
            branch[key] = [value, document.line(here)]
    return branch


def _decorator(sources: Sources, module: str) -> ast.Call | None:
    tree = sources.tree(module)
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "hydra.main":
                    return decorator
    return None


def _relative(base: str, folder: str) -> str:
    parts = base.split("/")
    for part in folder.split("/"):
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
