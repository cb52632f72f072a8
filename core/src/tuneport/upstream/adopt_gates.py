"""Which rules and parameters of a framework hold for a release that nobody has read yet.

A rule names the file and the symbol where upstream decides. What that symbol says of the rule's keys is
compared, statement by statement and without line numbers or comments, with what it says in the releases on
either side: where it is the same, the rule's state is the same. Everything else is a person's to decide.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from tuneport.checks import programs
from tuneport.registry import catalog
from tuneport.types import Json, Key

_SOURCE = re.compile(r"(?P<file>[\w./-]+\.py)(?:, (?P<symbol>[A-Za-z_][\w.]*))?")
_CFG = re.compile(r"\bcfg\.([A-Za-z_][\w.]*)")
How = Literal["same code", "other package", "no such key", "both sides", "apart", "neighbour"]
"""What a verdict stands on; the last three are no proof, and at `apart` the releases beside it disagree.
`other package`: the code is in a package that is not part of the release, and is pinned as it was."""
PROVED = ("same code", "other package", "no such key")


@dataclass(frozen=True, slots=True)
class Side:
    """A release that is known: its code, the reasons of its gates, the keys of each entry, and what its
    distributions ask for (name -> specifier; empty where its code cannot be had)."""

    version: str
    roots: tuple[Path, ...]
    gates: Mapping[str, Mapping[str, str]]
    keys: Mapping[str, Mapping[str, Key]]
    requirements: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a rule or parameter (`kind`, `name`) applies. `reason` is the gate's sentence where it does
    not; `place` is where to look in the new release."""

    kind: Literal["rules", "params"]
    name: str
    applies: bool
    how: How
    reason: str = ""
    place: str = ""


def rules(
    framework: str,
    version: str,
    keys: Mapping[str, Mapping[str, Key]],
    roots: Sequence[Path],
    sides: Sequence[Side],
) -> list[Verdict]:
    """A verdict for each rule and each inert entry with a code of its own.

    Args:
        keys: entry -> native key, of the new release.
        sides: the nearest known releases, the one before first.
    """
    files = _Files()
    found: dict[str, Verdict] = {}
    for topic, entries in _topics(framework).items():
        there = {name for entry in entries for name in keys.get(entry, {})}
        checks, inert = catalog.all_rules(framework, topic)
        for rule in [*checks, *inert]:
            code = str(rule.get("code", ""))
            if code:
                verdict = _rule(rule, version, there, roots, sides, files)
                found[code] = _both(found[code], verdict) if code in found else verdict
    return list(found.values())


def _both(one: Verdict, other: Verdict) -> Verdict:
    """The verdict on a code that several topics have: proved where it is proved, and alike, for each one."""
    worst = max(one, other, key=lambda verdict: get_args(How).index(verdict.how))
    if one.applies == other.applies:
        return worst
    gated = other if one.applies else one
    return replace(gated, how="neighbour", place=f"{one.place}; {other.place}")


def _topics(framework: str) -> dict[str, set[str]]:
    """Topic of rules -> the entries of the methods that it applies to."""
    topics: dict[str, set[str]] = {}
    for method_id, _, problem in catalog.methods(framework):
        if problem:
            continue
        spec = catalog.resolved(framework, method_id.partition("/")[2])
        for topic in spec.get("rules", ()):
            topics.setdefault(topic, set()).update({spec.get("entry", ""), *spec.get("entries", ())} - {""})
    for method in programs.unrun(framework):
        for topic in method.spec.get("rules", ()):
            topics.setdefault(topic, set()).add(method.spec["entry"])
    return topics


def _rule(
    rule: Mapping[str, Json],
    version: str,
    there: set[str],
    roots: Sequence[Path],
    sides: Sequence[Side],
    files: _Files,
) -> Verdict:
    code, key = str(rule["code"]), str(rule.get("key", ""))
    if (
        key
        and there
        and not _has(key, there)
        and any(_has(key, one.keys[entry]) for one in sides for entry in one.keys)
    ):
        return Verdict("rules", code, False, "no such key", f"{version} has no {key}")
    names = {key.rpartition(".")[2]} | {
        name.rpartition(".")[2]
        for text in ("when", "require", "unless")
        for name in _CFG.findall(str(rule.get(text, "")))
    }
    places = [
        (match["file"], match["symbol"] or "") for match in _SOURCE.finditer(str(rule.get("source", "")))
    ]
    here = [files.said(roots, file, symbol, names) for file, symbol in places]
    place = "; ".join(f"{file}, {symbol}" if symbol else file for file, symbol in places)
    same = [
        side
        for side in sides
        if here
        and all(here)
        and here == [files.said(side.roots, file, symbol, names) for file, symbol in places]
    ]
    states = {code not in side.gates["rules"] for side in same}
    if len(states) == 1:
        return _as(same[0], code, states.pop(), "same code", place, version)
    both = {code not in side.gates["rules"] for side in sides}
    packages = {path.name for root in roots for path in root.iterdir()}
    if places and len(both) == 1 and not any(file.partition("/")[0] in packages for file, _ in places):
        return _as(sides[0], code, both.pop(), "other package", place, version)
    how: How = "neighbour" if len(sides) == 1 else "both sides" if len(both) == 1 else "apart"
    return _as(sides[0], code, code not in sides[0].gates["rules"], how, place)


def _as(side: Side, code: str, applies: bool, how: How, place: str, proved: str = "") -> Verdict:
    """As a side has it; what its reason says of that release is true of the one that it is `proved` of."""
    reason = "" if applies else side.gates["rules"].get(code, "")
    reason = reason.replace(side.version, proved) if proved else reason
    return Verdict("rules", code, applies, how, reason, place)


def params(
    framework: str, version: str, keys: Mapping[str, Mapping[str, Key]], sides: Sequence[Side]
) -> list[Verdict]:
    """A verdict for each parameter that binds a key which is gone, or that a release beside lacks."""
    found: dict[str, Verdict] = {}
    for method_id, _, problem in catalog.methods(framework):
        if problem:
            continue
        spec = catalog.resolved(framework, method_id.partition("/")[2])
        there = keys.get(str(spec.get("entry", "")))
        for name, item in spec.get("params", {}).items():
            bound = item.get("keys") or ([item["key"]] if "key" in item else [])
            was = [side.keys.get(str(spec.get("entry", "")), {}) for side in sides]
            gone = [
                key for key in bound if there and not _has(key, there) and any(_has(key, one) for one in was)
            ]
            gated = [side for side in sides if name in side.gates["params"]]
            if gone:
                reason = f"{version} has no {', '.join(gone)}"
                found[name] = Verdict("params", name, False, "no such key", reason, method_id)
            elif gated and name not in found:
                how: How = "neighbour"
                if len(sides) > 1:
                    how = "both sides" if len(gated) == len(sides) else "apart"
                reason = sides[0].gates["params"].get(name, "")
                found[name] = Verdict("params", name, not reason, how, reason, method_id)
    return list(found.values())


def _has(key: str, there: Collection[str]) -> bool:
    """Whether keys have one of a name, a branch of it, or a free mapping above it."""
    return key in there or any(name.startswith(f"{key}.") or key.startswith(f"{name}.") for name in there)


class _Files:
    """What symbols say of some names, each file parsed once."""

    def __init__(self) -> None:
        self._trees: dict[Path, ast.Module | None] = {}

    def said(self, roots: Sequence[Path], file: str, symbol: str, names: set[str]) -> tuple[str, ...]:
        """The statements of a symbol that mention one of the names, as plain syntax; of a compound statement,
        its condition and what it raises. All of the symbol where none does; nothing where it is not there.
        """
        path = next((root / file for root in roots if (root / file).is_file()), None)
        tree = self._tree(path) if path is not None else None
        node = _find(tree, symbol) if tree is not None else None
        if node is None:
            return ()
        return tuple(_statements(node, names)) or (ast.dump(node),)

    def _tree(self, path: Path) -> ast.Module | None:
        if path not in self._trees:
            try:
                self._trees[path] = ast.parse(path.read_bytes())
            except (OSError, SyntaxError, ValueError, RecursionError):
                self._trees[path] = None
        return self._trees[path]


def _find(tree: ast.Module, symbol: str) -> ast.AST | None:
    here: ast.AST = tree
    for name in filter(None, symbol.split(".")):
        inside = [node for node in ast.walk(here) if getattr(node, "name", "") == name and node is not here]
        inside = [
            node for node in inside if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        if not inside:
            return None
        here = inside[0]
    return here


def _statements(node: ast.AST, names: set[str]) -> Iterator[str]:
    for inner in ast.walk(node):
        if not isinstance(inner, ast.stmt) or inner is node:
            continue
        if not hasattr(inner, "body"):
            if _mentions(inner, names):
                yield ast.dump(inner)
            continue
        heads = [
            part for name in ("test", "iter", "items", "subject") if (part := getattr(inner, name, None))
        ]
        parts = [one for part in heads for one in (part if isinstance(part, list) else [part])]
        if any(_mentions(part, names) for part in parts):
            yield " ".join(map(ast.dump, parts))
            yield from (ast.dump(one) for one in ast.walk(inner) if isinstance(one, ast.Raise))


def _mentions(node: ast.AST, names: set[str]) -> bool:
    for inner in ast.walk(node):
        word = getattr(inner, "attr", None) or getattr(inner, "id", None) or getattr(inner, "arg", None)
        if word in names or (isinstance(inner, ast.Constant) and inner.value in names):
            return True
    return False
