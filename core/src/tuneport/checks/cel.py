"""CEL for rules: bounded before it is compiled, and three-valued: true, false or undecided.

The engine is the Rust one of `common-expression-language`. Its package imports a whole command line,
so the extension module alone is loaded. Tests hold it to Google's C++ implementation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any

from tuneport.checks import simple
from tuneport.experiment.yamlread import Document
from tuneport.types import Finding, Json

MAX_SOURCE = 2048
MAX_BRACKETS = 32
MAX_ITERATIONS = 10_000
MAX_COPIES = 5_000_000
"""The engine copies what a name stands for, to its last element, wherever the name is written."""
VARIABLES = ("cfg", "own", "params", "topology", "data", "model", "teacher", "env", "files", "request")

FUNCTIONS = frozenset(
    {"contains", "double", "duration", "dyn", "endsWith", "int", "matches", "size", "startsWith"}
    | {"string", "timestamp", "type", "uint"}
)
"""What the engine has beside operators and macros; any other call would stay undecided for ever."""

_TYPES = {"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"}
# Any call whose first argument is a name and not the only one is taken for a macro: none may slip through.
_MACRO = r"\.\s*[A-Za-z_][A-Za-z0-9_]*\s*(\()\s*([A-Za-z_][A-Za-z0-9_]*)\s*,"
_TEXT = r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
# What would make _TEXT lose track of where text ends, and with it the bounds below.
_ODD = r"""[A-Za-z0-9_]"|//|`|'"""
_CONFIG_PATH = r"\bcfg((?:\.[A-Za-z_][A-Za-z0-9_]*)+)\s*(\()?"
_WHOLE_CONFIG = r"(?<![.\w])cfg(?!\.[A-Za-z_]|\w)"
_NAME = r"(?<![.\w])[A-Za-z_]\w*(?!\w|\s*\()"
# A pattern that is compiled in no time: the engine compiles it anew for every element.
_PATTERN = r"""\.\s*matches\s*\((?!\s*(?:"[^"\\{]*"|'[^'\\{]*')\s*\))"""
_PATTERN_COST = 50_000
_PLACEHOLDER = r"\{([A-Za-z_][A-Za-z0-9_.\[\]-]*)\}"


class Undecided(Exception):
    """The rule's inputs are not known (or it is too large to evaluate); the text says why."""


class Rules:
    """Evaluates expressions over one set of variables, converted once.

    Args:
        sources: the expressions that will be asked, where all are known: the engine copies its variables
            for each of them, so it is given no more of `cfg` than they name.
    """

    def __init__(self, variables: Mapping[str, Json], sources: tuple[str, ...] = ()) -> None:
        self._given = {name: variables.get(name, {}) for name in VARIABLES}
        self._plan = simple.planned(sources, config_paths) if sources else None

    @cached_property
    def _context(self) -> tuple[Any, int, int]:
        """The engine's variables, the length of the longest list in them, and how much they hold."""
        paths = self._plan.open_paths(self._given) if self._plan else None
        asked = self._given if paths is None else {**self._given, "cfg": _pruned(self._given["cfg"], paths)}
        named = {name: _cel_value(value) for name, value in asked.items()}
        longest = max(_longest(value) for value in named.values())
        return _engine().Context(variables=named), longest, sum(map(_weight, named.values()))

    def holds(self, source: str) -> bool:
        """The value of a boolean expression.

        Raises:
            Undecided: an input is absent, has an unexpected type, or the work is out of bounds.
        """
        said = simple.decided(self._plan.trees.get(source), self._given) if self._plan else simple.OPEN
        if isinstance(said, simple.Missing):
            raise Undecided(repr(said.name))
        return said if isinstance(said, bool) else self._evaluated(source)

    def _evaluated(self, source: str) -> bool:
        context, longest, weight = self._context
        depth = macro_depth(source)
        # Adding lists is the one way to make longer ones than there are.
        longest = max(longest, source.count(",")) * (1 + source.count("+"))
        if depth and longest**depth > MAX_ITERATIONS:
            raise Undecided(f"more than {MAX_ITERATIONS} steps")
        if _copies(source, longest, depth, weight) > MAX_COPIES:
            raise Undecided("more values than are worth copying")
        program = _program(source)
        try:
            result = program.execute(context)
        except BaseException as error:  # the engine's panics are BaseExceptions
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise Undecided(" ".join(str(error).split())[:120]) from None
        if not isinstance(result, bool):
            raise Undecided("it is not a true-or-false expression")
        return result

    def fill(self, text: str) -> str:
        """`text` with each declared `{path}` replaced by what it is; nothing else is interpreted."""
        return re.sub(_PLACEHOLDER, lambda match: self._show(match[1]), text)

    def _show(self, path: str) -> str:
        for root in (self._given["cfg"], self._given):
            here: Json = root
            for part in path.split("."):
                here = here.get(part, _ABSENT) if isinstance(here, dict) else _ABSENT
                if here is _ABSENT:
                    break
            if here is not _ABSENT:
                here = _cel_value(here)
                shown = str(here) if not isinstance(here, bool) else str(here).lower()
                shown = shown or "''"  # a sentence with nothing where the value belongs says nothing
                return shown if len(shown) <= 120 else shown[:120] + "…"
        return "?"


_ABSENT: Json = object()


@lru_cache(maxsize=64)
def config_paths(sources: tuple[str, ...]) -> tuple[tuple[str, ...], ...] | None:
    """The paths of `cfg` that some expressions name, longer ones before what holds them; None where one
    of them takes `cfg` as a whole."""
    found: set[tuple[str, ...]] = set()
    for source in sources:
        bare = re.sub(_TEXT, '""', source)
        if re.search(_WHOLE_CONFIG, bare):
            return None
        for match in re.finditer(_CONFIG_PATH, bare):
            parts = tuple(match[1].split(".")[1:])
            found.add(parts[:-1] if match[2] else parts)
    return None if () in found else tuple(sorted(found, reverse=True))


def _pruned(tree: Mapping[str, Json], paths: Sequence[tuple[str, ...]]) -> dict[str, Json]:
    """The part of a tree that lies on or below some paths."""
    kept: dict[str, Json] = {}
    for path in paths:
        here: Json = tree
        into = kept
        for number, part in enumerate(path):
            if part not in here:
                break
            here = here[part]
            if number == len(path) - 1 or not isinstance(here, dict):
                into[part] = here
                break
            into = into.setdefault(part, {})
    return kept


def bounds(source: str) -> str:
    """Why the expression may not even be compiled; empty where it may."""
    if len(source) > MAX_SOURCE:
        return f"longer than {MAX_SOURCE} characters"
    bare = re.sub(_TEXT, '""', source)
    if re.search(_ODD, bare) or "'''" in source or '"""' in source:
        return "raw, byte, triple-quoted or unended text, backticks or a comment"
    if max(bare.count(opening) for opening in "([{") > MAX_BRACKETS:
        return f"more than {MAX_BRACKETS} brackets"
    if any(bare.count(sign) > 4 * MAX_BRACKETS for sign in "+-!?|&*/%"):
        return "too many operators"
    return ""


@lru_cache(maxsize=4096)
def macro_depth(source: str) -> int:
    """How deep list macros nest in the expression."""
    if not re.search(_MACRO, source):
        return 0
    bare = re.sub(_TEXT, '""', source)
    opens = {match.start(1) for match in re.finditer(_MACRO, bare)}
    depth, deepest, stack = 0, 0, []
    for position, sign in enumerate(bare):
        if sign == "(":
            stack.append(position in opens)
            depth += stack[-1]
            deepest = max(deepest, depth)
        elif sign == ")" and stack:
            depth -= stack.pop()
    return deepest


def _copies(source: str, longest: int, depth: int, weight: int) -> int:
    """How many values the engine copies at most, where the variables hold `weight` of them."""
    once, each, makes, grown, slow = _names(source)
    made = (weight + len(source) // 16) * grown
    visits: int = longest**depth
    # A list that a loop makes is copied whole with every element that joins it.
    return once * made + visits * (longest if makes else 1) * each * made + visits * slow * _PATTERN_COST


@lru_cache(maxsize=4096)
def _names(source: str) -> tuple[int, int, bool, int, int]:
    """How often an expression names what may be large, outside its loops and in them; whether a loop makes
    a list, how much larger than the variables that may be; and how many patterns in loops are slow."""
    bare = re.sub(_TEXT, '""', source)
    loops = {match.start(1): match[2] for match in re.finditer(_MACRO, bare)}
    makes = {match.end() - 1 for match in re.finditer(r"\.\s*(?:map|filter)\s*\(", bare)} & loops.keys()
    large = {*VARIABLES}
    # What a loop goes through is small, but for what an expression has put together from variables.
    if makes or re.search(r"\[[^\]]*(?<![.\w])[A-Za-z_]", bare):
        large |= {*loops.values()}
    once = each = 0
    grown = 1
    stack: list[tuple[int, int]] = []  # where each open bracket is, and how many names came before it
    for match in re.finditer(rf"[()]|{_NAME}", bare):
        if match[0] == "(":
            stack.append((match.start(), once + each))
        elif match[0] == ")" and stack:
            start, before = stack.pop()
            if start in makes:
                grown *= max(1, once + each - before - 1)  # less the one that says what the loop's name is
        elif match[0] in large:
            within = any(start in loops for start, _before in stack)
            once, each = once + (not within), each + within
    slow = len(re.findall(_PATTERN, source)) if loops else 0
    return once, each, bool(makes), grown, slow


def rule_problems(document: Document) -> list[Finding]:
    """What is wrong with the expressions of a rules file; each is compiled, none is run."""
    found = []
    doc = document.data if isinstance(document.data, dict) else {}
    for group, fields in (("rules", ("when", "require")), ("inert", ("unless",))):
        listed = doc.get(group)
        for number, rule in enumerate(listed if isinstance(listed, list) else ()):
            for name in fields:
                source = rule.get(name) if isinstance(rule, dict) else None
                why = _why(source) if isinstance(source, str) else ""
                if why:
                    line = document.line((group, number, name))
                    text = f"{group}[{number}].{name}: {why}"
                    found.append(Finding("rule-expression", "error", text, "", name, document.file, line))
    return found


def reading_problems(document: Document) -> list[Finding]:
    """What is wrong with the expressions of a method's `data`."""
    data = document.data.get("data") if isinstance(document.data, dict) else None
    single = isinstance(data, dict)
    found = []
    for number, reading in enumerate([data] if single else data if isinstance(data, list) else ()):
        asked = reading if isinstance(reading, dict) else {}
        dropped = asked.get("dropped")
        sources = {name: asked.get(name) for name in ("when", "validation")}
        for name, source in {**sources, **(dropped if isinstance(dropped, dict) else {})}.items():
            why = _why(source) if isinstance(source, str) else ""
            if why:
                path = ("data", name) if single else ("data", number, name)
                line = document.line(path)
                found.append(
                    Finding("rule-expression", "error", f"data.{name}: {why}", "", name, document.file, line)
                )
    return found


def _why(source: str) -> str:
    why = bounds(source)
    if why:
        return why
    try:
        bound = {match[2] for match in re.finditer(_MACRO, re.sub(_TEXT, '""', source))}
        named = _program(source).references()
    except BaseException as error:  # as above
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return " ".join(str(error).split())[:300]
    unknown = set(named["variables"]) - bound - set(VARIABLES) - _TYPES
    missing = {name for name in named["functions"] if name.isalnum()} - FUNCTIONS
    if missing:
        return f"unknown function {', '.join(sorted(missing))}"
    return f"unknown variable {', '.join(sorted(unknown))}" if unknown else ""


@cache
def _program(source: str) -> Any:
    why = bounds(source)
    if why:
        raise Undecided(why)
    try:
        return _engine().compile(source)
    except ValueError as error:
        raise Undecided(" ".join(str(error).split())[:120]) from None


@cache
def _engine() -> Any:
    from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, PathFinder
    from pathlib import Path

    package = PathFinder.find_spec("cel")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for suffix in EXTENSION_SUFFIXES:
            path = Path(folder) / f"cel{suffix}"
            if path.exists():
                loader = ExtensionFileLoader("cel", str(path))
                module = loader.create_module(ModuleSpec("cel", loader, origin=str(path)))
                loader.exec_module(module)
                return module
    import cel  # a build without a separate extension file

    return cel


def _cel_value(value: Json) -> Json:
    if isinstance(value, dict):
        return {_cel_value(str(key)): _cel_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cel_value(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return float(value) if abs(value) < 10**300 else float("inf")
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if value is None or isinstance(value, bool | int | float):
        return value
    return f"<{getattr(value, 'ref', value)}>"


def _longest(value: Json) -> int:
    if isinstance(value, dict):
        return max([len(value), *map(_longest, value.values())], default=0)
    if isinstance(value, list):
        return max([len(value), *map(_longest, value)], default=0)
    return 1


def _weight(value: Json) -> int:
    """How much is copied with a value: each that it holds, and each 64 characters of a text."""
    if isinstance(value, dict):
        return 1 + sum(_weight(item) for item in value.values())
    if isinstance(value, list):
        return 1 + sum(map(_weight, value))
    return 1 + len(value) // 64 if isinstance(value, str) else 1
