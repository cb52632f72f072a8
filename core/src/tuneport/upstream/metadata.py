"""What a distribution says of itself: name, version, what it asks for, and what it can be started by."""

from __future__ import annotations

import ast
import configparser
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tuneport.upstream.sources import Sources
from tuneport.upstream.static import UNKNOWN, evaluate


@dataclass(slots=True)
class Metadata:
    """`requirements`: canonical name -> specifier and marker, as `>=4.56; extra == 'x'`; `entry_points`:
    `console_scripts: NAME` -> `module:object`."""

    name: str = ""
    version: str = ""
    requires_python: str = ""
    requirements: dict[str, str] = field(default_factory=dict)
    entry_points: dict[str, str] = field(default_factory=dict)


def read_metadata(root: Path) -> Metadata:
    """The metadata of an unpacked wheel or source tree; what is said nowhere stays empty."""
    for path in (*sorted(root.glob("*.dist-info/METADATA")), root / "PKG-INFO"):
        if path.is_file():
            found = _headers(path)
            for points in (path.with_name("entry_points.txt"), *root.glob("*.egg-info/entry_points.txt")):
                found.entry_points |= _points(points)
            return found
    found = _project(root / "pyproject.toml")
    _setup(root, found)
    return found


def _headers(path: Path) -> Metadata:
    message = HeaderParser().parsestr(path.read_text("utf-8", "replace"))
    found = Metadata(str(message["Name"] or ""), str(message["Version"] or ""))
    found.requires_python = str(message["Requires-Python"] or "")
    found.requirements = requirements(map(str, message.get_all("Requires-Dist") or ()))
    return found


def requirements(lines: Iterable[str]) -> dict[str, str]:
    """Canonical name -> specifier and marker. A name that several lines have keeps all, joined by ` | `."""
    found: dict[str, str] = {}
    for line in lines:
        try:
            item = Requirement(line)
        except InvalidRequirement:
            continue
        text = f"{item.specifier}" + (f"; {item.marker}" if item.marker else "")
        name = canonicalize_name(item.name)
        found[name] = text if name not in found else " | ".join(sorted({*found[name].split(" | "), text}))
    return dict(sorted(found.items()))


def _points(path: Path) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        parser.read_string(path.read_text("utf-8", "replace"))
    except (OSError, configparser.Error):
        return {}
    return {f"{group}: {name}": value for group in parser.sections() for name, value in parser[group].items()}


def _project(path: Path) -> Metadata:
    try:
        document = tomllib.loads(path.read_text("utf-8", "replace"))
    except (OSError, tomllib.TOMLDecodeError, RecursionError):
        return Metadata()
    project = _table(document, "project")
    found = Metadata(str(project.get("name", "")), str(project.get("version", "")))
    found.requires_python = str(project.get("requires-python", ""))
    lines = [str(line) for line in project.get("dependencies", ())]
    for extra, more in _table(project, "optional-dependencies").items():
        lines += [_with_extra(str(line), extra) for line in more]
    found.requirements = requirements(lines)
    for name, target in _table(project, "scripts").items():
        found.entry_points[f"console_scripts: {name}"] = str(target)
    for group, points in _table(project, "entry-points").items():
        found.entry_points |= {f"{group}: {name}": str(target) for name, target in points.items()}
    return found


def _table(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _with_extra(line: str, extra: str) -> str:
    text, _, marker = line.partition(";")
    return f"{text}; ({marker}) and extra == '{extra}'" if marker else f"{text}; extra == '{extra}'"


def _setup(root: Path, found: Metadata) -> None:
    """What `setup.py` hands to `setup()` as plain values, where nothing else says it."""
    sources = Sources([root])
    try:
        tree = sources.tree("setup")
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree) if tree else ():
        if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] != "setup":
            continue
        words = {word.arg: evaluate(sources, "setup", word.value) for word in node.keywords if word.arg}
        known = {name: value for name, value in words.items() if value is not UNKNOWN}
        found.name = found.name or str(known.get("name", ""))
        found.version = found.version or str(known.get("version", ""))
        found.requires_python = found.requires_python or str(known.get("python_requires", ""))
        lines = known.get("install_requires", [])
        found.requirements = found.requirements or requirements(map(str, lines))
        points = known.get("entry_points")
        for group, items in points.items() if isinstance(points, dict) else ():
            for item in items if isinstance(items, list) else ():
                name, _, target = str(item).partition("=")
                found.entry_points.setdefault(f"{group}: {name.strip()}", target.strip())
