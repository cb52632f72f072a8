"""The examples, and what `tp plugin new` writes, stand on the documented contract alone."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tuneport import scaffolds, types

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/plugins.md").read_text("utf-8")
TABLE = PAGE.partition("## What a plugin may import")[2].partition("\n## ")[0]
ROWS = dict(re.findall(r"^\| `(tuneport[a-z_.]*)` \| (.*) \|$", TABLE, re.M))
EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/pyproject.toml"))


def allowed(module: str, name: str) -> bool:
    """Whether the page lets a plugin take `name` of `module`; an empty name is the module itself."""
    said = ROWS.get(module)
    if said is None:
        return False
    if module == "tuneport.testing":
        return not name or name in importlib.import_module(module).__all__
    words = re.findall(r"`([A-Za-z_.]+)`", said)
    return said.startswith(("all of it", "what the [Python API]")) or not name or name in words


def imported(source: str) -> Iterator[tuple[str, str]]:
    """(module, name) of everything of the core that a file imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield (whole, "") if whole in ROWS else (node.module, alias.name)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def undocumented(source: str) -> list[str]:
    core = [(module, name) for module, name in imported(source) if module.partition(".")[0] == "tuneport"]
    return [f"{module} {name}".rstrip() for module, name in core if not allowed(module, name)]


def test_the_table_names_what_there_is() -> None:
    assert len(ROWS) >= 8
    for module, said in ROWS.items():
        found = importlib.import_module(module)
        if module in ("tuneport.compiler.adapter", "tuneport.experiment.create"):
            assert all(hasattr(found, name) for name in re.findall(r"`([A-Za-z_]+)`", said))


def test_the_table_of_types_names_their_fields() -> None:
    part = PAGE.partition("### The types")[2].partition("\n| `kind`")[0]
    rows = dict(re.findall(r"^\| `([A-Z][A-Za-z]+)` \| (.*) \|$", part, re.M))
    recorded = json.loads((ROOT / "core/src/tuneport/testing/contract.json").read_text("utf-8"))["types"]
    given = {name for name in recorded if hasattr(types, name)}  # the rest are of fleets
    assert given - set(rows) == {"Composed", "Key", "Param"}  # their docstrings are the reference
    for name, said in rows.items():
        while (plain := re.sub(r"\([^()]*\)", "", said)) != said:
            said = plain
        words = set(re.findall(r"`([a-z_]+)`", said))
        fields = {field for field, *_ in recorded[name][1:]}
        assert fields <= words, name
        assert all(hasattr(getattr(types, name), word) for word in words - fields), name


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_imports_the_contract_alone(name: str) -> None:
    files = sorted((ROOT / "examples" / name).rglob("*.py"))
    assert files
    assert {str(path): said for path in files if (said := undocumented(path.read_text("utf-8")))} == {}


@pytest.mark.parametrize("kind", scaffolds.KINDS)
def test_a_scaffold_imports_the_contract_alone(kind: str, tmp_path: Path) -> None:
    name, extends = ("trl/careful", "sft") if kind == "method" else ("lines", "")
    written = scaffolds.write(name, kind, tmp_path / "made", extends)
    files = [path for path in written if path.suffix == ".py"]
    assert files
    assert {str(path): said for path in files if (said := undocumented(path.read_text("utf-8")))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import tuneport.registry.catalog",
        "from tuneport.registry import catalog",
        "from tuneport.compiler.adapter import locations",
        "from tuneport.experiment.create import write_atomic",
        "from tuneport.testing import hostile",
        "def f():\n    from tuneport.workflow import judge",
        "from tuneport import workflow",
    ],
)
def test_anything_else_is_found(source: str) -> None:
    assert undocumented(source)
