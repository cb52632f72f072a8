"""Every code that Tuneport can say has one heading on the findings pages, and no heading is left over."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE = "".join(path.read_text("utf-8") for path in sorted(ROOT.glob("docs/findings*.md")))
SOURCES = sorted([*ROOT.glob("core/src/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")])
CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*\Z")
# Calls whose argument at this position is a code; where a keyword `code` is given, that is one, too.
CALLS = {
    "Finding": 0,
    "_Refused": 0,
    "ComposeError": 0,
    "_say": 0,
    "say": 0,
    "finding": 0,
    "_error": 0,
    "check": 2,
}
# A code of ownership.py is an element of a tuple; the lock's findings put a prefix before another code.
PLAIN = {"identity-key", "platform-key"}
PREFIXED = {
    "lock-" + code
    for code in (
        "framework-unknown",
        "manifest-broken",
        "manifest-circle",
        "manifest-missing",
        "method-unknown",
        "release-unknown",
    )
}


def in_source(path: Path) -> Iterator[str]:
    """The codes in a module: what is passed as a code, is called `code`, or is a default of that name."""
    tree = ast.parse(path.read_text("utf-8"))
    named = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            position = CALLS.get(name)
            if name == "check" and ast.unparse(node.func) != "schemas.check":
                position = None
            if position is not None and len(node.args) > position:
                yield from _texts(node.args[position])
            for keyword in node.keywords:
                if keyword.arg == "code":
                    value = keyword.value
                    yield from _texts(named.get(value.id, value) if isinstance(value, ast.Name) else value)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "code" for target in targets) and node.value:
                yield from _texts(node.value)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
                if argument.arg == "code" and default is not None:
                    yield from _texts(default)
        elif isinstance(node, ast.Constant) and node.value in PLAIN:
            yield str(node.value)
        elif isinstance(node, ast.Dict):  # {"code": …} of a JSON document
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "code":
                    yield from _texts(value)


def _texts(node: ast.expr) -> Iterator[str]:
    """Text that an expression may be: a literal, or one of the branches of a condition."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.match(node.value):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _texts(value)


def in_rules(path: Path) -> Iterator[str]:
    document = yaml.safe_load(path.read_text("utf-8"))
    for group in ("rules", "inert"):
        for entry in document.get(group, ()):
            yield entry.get("code", "inert-key")


def of_launchers(path: Path) -> Iterator[str]:
    for launcher in yaml.safe_load(path.read_text("utf-8")).get("launchers", {}).values():
        yield from (rule["code"] for rule in launcher.get("rules", ()))


def of_variants(path: Path) -> Iterator[str]:
    variants = yaml.safe_load(path.read_text("utf-8")).get("variants", {})
    yield from ([variants["code"]] if "code" in variants else [])


@cache
def said() -> dict[str, list[str]]:
    """Code -> the files that say it."""
    found: dict[str, list[str]] = {}
    for path in SOURCES:
        for code in in_source(path):
            found.setdefault(code, []).append(str(path.relative_to(ROOT)))
    for path in sorted(ROOT.glob("manifests/tuneport_manifests/*/rules/*.yaml")):
        for code in in_rules(path):
            found.setdefault(code, []).append(str(path.relative_to(ROOT)))
    for path in sorted(ROOT.glob("manifests/tuneport_manifests/*/framework.yaml")):
        for code in of_launchers(path):
            found.setdefault(code, []).append(str(path.relative_to(ROOT)))
    for path in sorted(ROOT.glob("manifests/tuneport_manifests/*/methods/*.yaml")):
        for code in of_variants(path):
            found.setdefault(code, []).append(str(path.relative_to(ROOT)))
    for code in PREFIXED:
        found.setdefault(code, []).append("core/src/tuneport/experiment/lock.py")
    return found


def headings() -> list[str]:
    return re.findall(r"^### `([^`]+)`$", PAGE, re.M)


def test_every_code_has_one_heading() -> None:
    counts = Counter(headings())
    repeated = [code for code, count in counts.items() if count > 1]
    assert not repeated
    missing = {code: sorted(set(places)) for code, places in sorted(said().items()) if code not in counts}
    assert not missing, missing


def test_no_heading_is_left_over() -> None:
    assert not sorted(set(headings()) - set(said()))


def test_every_heading_has_a_paragraph() -> None:
    parts = re.split(r"^### `([^`]+)`$", PAGE, flags=re.M)
    thin = []
    for code, body in zip(parts[1::2], parts[2::2], strict=True):
        text = re.split(r"\n##? ", body)[0].strip()
        if len(text.split()) < 6 or "…TODO" in text:
            thin.append(code)
    assert not thin, thin


def test_the_collector_sees_what_commands_say() -> None:
    """Codes that other tests and pages meet at run time are among those that were collected."""
    found = said()
    for code in ("usage", "internal", "interrupted", "io", "key-unknown", "lock-stale", "yaml-tag"):
        assert code in found, code


def test_generated_pages_are_fresh() -> None:
    spec = spec_from_file_location("reference_pages", ROOT / "tools/reference_pages.py")
    assert spec is not None
    assert spec.loader is not None
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    known = {path.parent.name for path in ROOT.glob("manifests/tuneport_manifests/*/framework.yaml")}
    assert set(tool.FRAMEWORKS) == known
    stale = [name for name, content in tool.pages().items() if (ROOT / name).read_text("utf-8") != content]
    assert not stale, "run python tools/reference_pages.py"
