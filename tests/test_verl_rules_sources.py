"""Every file and symbol that a rule, key, method or adapter of verl names is in the release's wheel."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tuneport_verl
from tuneport.registry import catalog, surfaces

sys.path.insert(0, str(Path(__file__).parent))
from hydra_reference import wheel
from verl_commands import PROGRAMS, RELEASES, program

NAMED = re.compile(r"(?:verl (?P<release>\S+) )?(?P<file>verl/\S+?\.(?:py|yaml))(?:, (?P<symbols>.+))?\Z")
OTHERS = (
    "torch ",
    "vllm ",
    "ray ",
    "megatron-core ",
    "hydra-core ",
    "transformers ",
    "the model's config.json",
)


def sources() -> Iterator[tuple[str, str, str]]:
    """(release, what names it, source)."""
    known = [catalog.method(row[0]) for row in catalog.methods("verl")]
    known += [program(RELEASES[0], entry) for entry in PROGRAMS]
    topics = sorted({topic for method in known for topic in method.spec["rules"]})
    for release in RELEASES:
        checks, inert = catalog.rules("verl", release, topics)
        for rule in checks:
            yield release, rule["code"], rule["source"]
        for rule in inert:
            yield release, rule["key"], rule["source"]
        for entry, keys in surfaces.release("verl", release).spec["keys"].items():
            for key, item in keys.items():
                yield release, f"{entry} {key}", item["source"]
        for method, _, _ in catalog.methods("verl"):
            for item in symbols_of(catalog.method(method, release).spec["explain"]):
                yield release, method, f"{item['file']}, {item['symbol']}"
        for path in sorted(Path(tuneport_verl.__file__).parent.glob("*.py")):
            for found in re.finditer(r'"(verl/[^"]+)"', path.read_text("utf-8")):
                yield release, path.name, found[1]


def symbols_of(told: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    """The places in the release that a method, and each choice that it explains, names."""
    yield from told.get("symbols", ())
    for values in told.get("options", {}).values():
        for item in values.values():
            yield from item.get("symbols", ())


def places(source: str) -> Iterator[re.Match[str]]:
    """The places in the wheel that a source names; others must be of a package that is known here."""
    for part in source.split("; "):
        found = NAMED.match(part)
        if found:
            yield found
        else:
            assert part.startswith(OTHERS), part


@cache
def symbols(path: Path) -> frozenset[str]:
    """The dotted names of everything that a module defines."""
    found: set[str] = set()

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            names: list[str] = []
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names = [child.name]
            elif isinstance(child, ast.Assign):
                names = [target.id for target in child.targets if isinstance(target, ast.Name)]
            elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
                names = [child.target.id]
            found.update(prefix + name for name in names)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                walk(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.If | ast.Try):
                walk(child, prefix)

    walk(ast.parse(path.read_text("utf-8")), "")
    return frozenset(found)


@pytest.mark.parametrize("release", RELEASES)
def test_every_source_is_there(release: str) -> None:
    _, tree = wheel("verl", release)
    count, missing = 0, []
    for of, name, source in sources():
        if of != release:
            continue
        for place in places(source):
            if place["release"] not in (None, release):
                continue
            count += 1
            path = tree / place["file"]
            wanted = (place["symbols"] or "").replace(" and ", ", ").split(", ") if place["symbols"] else []
            if not path.is_file():
                missing.append(f"{name}: {place['file']}")
            elif path.suffix == ".py":
                missing += [f"{name}: {place['file']}, {one}" for one in wanted if one not in symbols(path)]
            else:
                text = path.read_text("utf-8")
                missing += [f"{name}: {one}" for one in wanted if f"{one.rpartition('.')[2]}:" not in text]
    assert not missing, missing
    assert count > 300
