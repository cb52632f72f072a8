"""Promises about the tree itself: sizes, words, layering that linters do not see."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_NAMES = "verl openrlhf nemo[-_]?rl trl deepspeed vllm sglang megatron evalkit evalscope lm.?eval ms-?swift"
FRAMEWORKS = rf"\b({_NAMES.replace(' ', '|')})\b"


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, check=True
    )
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def lines(path: Path) -> int:
    return path.read_text("utf-8").count("\n")


def test_modules_can_be_read_in_one_sitting() -> None:
    sources = [p for p in tracked("*.py") if "/tests/" not in f"/{p}" and "templates" not in p.parts]
    sizes = {str(path.relative_to(ROOT)): lines(path) for path in sources}
    assert len(sizes) > 50
    assert not {name: size for name, size in sizes.items() if size > 600}
    assert statistics.median(sizes.values()) < 120


def test_the_core_names_no_framework() -> None:
    named = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in tracked("core/src/*.py", "core/src/**/*.py")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(FRAMEWORKS, line, re.IGNORECASE)
    ]
    assert not named


def test_the_core_compares_no_versions() -> None:
    """What differs between releases is data. Their order, and the ranges that plugins and pins say, are read
    as the packaging library has them."""
    known = {"registry/catalog.py"}
    found = {
        str(path.relative_to(ROOT / "core/src/tuneport"))
        for path in tracked("core/src/*.py", "core/src/**/*.py")
        if "packaging.version" in path.read_text("utf-8")
    }
    assert found <= known


def test_code_of_a_framework_says_why_it_is_no_manifest() -> None:
    """In the second line, so that whoever adds to it asks first whether data would do."""
    sources = [p for p in tracked("plugins/*/src/*/*.py") if not p.parent.name.startswith("tuneport_fleet")]
    modules = {path: ast.parse(path.read_text("utf-8")) for path in sources}
    code = {path: tree for path, tree in modules.items() if path.name != "__init__.py" or tree.body[1:]}
    assert len(code) > 30
    docs = {path: (ast.get_docstring(tree) or "").splitlines() for path, tree in code.items()}
    assert not [path for path, doc in docs.items() if not re.match(r"No manifest: .{20,}", "".join(doc[1:2]))]


@pytest.mark.parametrize(
    "pattern",
    [
        r"/work/(main|shared|tp-cache)",
        r"\b(files\.)?python" + r"hosted\.org",
        r"\bpypi" + r"\.org",
        r"\bregistry\.npm" + r"js\.org",
        r"\bdeb\.deb" + r"ian\.org",
    ],
)
def test_no_file_names_this_machine_or_a_package_registry(pattern: str) -> None:
    found = []
    for path in tracked("."):
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        if re.search(pattern, text):
            found.append(str(path.relative_to(ROOT)))
    assert not found


def test_data_packages_hold_data() -> None:
    python = [
        str(path.relative_to(ROOT))
        for path in tracked("manifests/*.py", "manifests/**/*.py", "schemas/*.py", "schemas/**/*.py")
        if "templates" not in path.parts
    ]
    assert sorted(python) == [
        "manifests/tuneport_manifests/__init__.py",
        "schemas/tuneport_schemas/__init__.py",
    ]
    for name in python:
        assert lines(ROOT / name) == 1


def test_nothing_dangerous_is_called() -> None:
    """ruff refuses most of these; silencing it must not be enough."""
    banned = (
        r"shell=True|os\.system\(|(?<![.\w])eval\(|(?<![.\w])exec\(|\bpickle\b"
        r"|yaml\.(load|unsafe_load|full_load)\("
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked("core/src/**/*.py", "plugins/*/src/**/*.py")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(banned, line) and not line.lstrip().startswith(("#", '"'))
    ]
    assert not found


def test_every_distribution_has_the_same_floor_and_licence() -> None:
    for path in tracked("pyproject.toml", "*/pyproject.toml", "plugins/*/pyproject.toml"):
        text = path.read_text("utf-8")
        assert 'requires-python = ">=3.11"' in text, path
        assert 'license = "Apache-2.0"' in text, path
