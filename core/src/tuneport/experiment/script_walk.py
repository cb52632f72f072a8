"""Follows the parsers of a script through its syntax tree: assignments, calls, loops over literals.

All branches are taken and functions are followed into, so the flags found are those of every way through
the file. What this cannot follow is reported, never guessed. Work is bounded by a count of nodes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tuneport.experiment import script_values as values
from tuneport.experiment.script_values import ADDER, OUTSIDE, PARSER, UNKNOWN, Symbol
from tuneport.types import Json

MAX_STEPS = 60_000
MAX_DEPTH = 60
MAX_CALLS = 12
MAX_FLAGS = 1_000
_PARSER_CLASS = Symbol("argparse.ArgumentParser")
_ADDS = ("add_argument", "add_argument_group", "add_mutually_exclusive_group")
_PARSES = ("parse_args", "parse_known_args", "parse_intermixed_args", "parse_known_intermixed_args")
_WORDS = {"ArgumentParser", *_ADDS, *_PARSES}
_Def: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class _Scope:
    parent: _Scope | None
    names: dict[str, Any] = field(default_factory=dict)
    returned: list[Any] = field(default_factory=list)

    def get(self, name: str) -> Any:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return Symbol(f"builtins.{name}") if name in values.BUILTINS else UNKNOWN


@dataclass(frozen=True, slots=True, eq=False)
class _Function:
    node: _Def
    scope: _Scope
    owner: Any = None
    """What a method is bound to; None for plain functions."""


class _TooMuchError(Exception):
    pass


def walk(tree: ast.Module, facts: dict[str, Json]) -> None:
    """Fill `facts` (see `scripts.read_flags`) from the module."""
    walker = _Walker(facts)
    try:
        walker.block(tree.body, _Scope(None), sure=True)
        walker.leftovers()
    except _TooMuchError:
        walker.undecided(0, "there is too much of it to follow")
    if not walker.parsers:
        walker.undecided(0, "it makes no argparse.ArgumentParser that can be read here")
    facts["complete"] = not facts["undecided"]


class _Walker:
    def __init__(self, facts: dict[str, Json]) -> None:
        self.facts = facts
        self.steps = 0
        self.depth = 0
        self.parsers = 0
        self.functions: list[_Function] = []
        self.methods: dict[str, list[_Function]] = {}
        self.entered: set[_Def] = set()
        self.calls: list[_Def] = []
        self.attributes: set[str] = set()
        """Names of attributes that hold a parser, of whatever object."""

    def undecided(self, line: int, why: str) -> None:
        text = f"line {line}: {why}" if line else why
        if text not in self.facts["undecided"] and len(self.facts["undecided"]) < 20:
            self.facts["undecided"].append(text)

    def step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise _TooMuchError

    def leftovers(self) -> None:
        """Functions that nothing in the file was seen to call: a decorator or another file may."""
        for function in self.functions:  # grows while functions inside functions are found
            if function.node not in self.entered and self.mentions(function.node):
                self.enter(function, dict.fromkeys(_parameters(function.node), OUTSIDE))

    def mentions(self, node: ast.AST) -> bool:
        """Whether anything below a node looks like argparse."""
        for child in ast.walk(node):
            self.step()
            if (child.attr if isinstance(child, ast.Attribute) else getattr(child, "id", "")) in _WORDS:
                return True
        return False

    # Statements

    def block(self, body: Iterable[ast.stmt], scope: _Scope, *, sure: bool) -> None:
        """Walk statements; `sure` where they run exactly once, in order."""
        for node in body:
            self.step()
            self.statement(node, scope, sure)

    def statement(self, node: ast.stmt, scope: _Scope, sure: bool) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                scope.names[node.name] = function = _Function(node, scope)
                self.functions.append(function)
            case ast.ClassDef():
                self.class_(node, scope)
            case ast.Import():
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    scope.names[alias.asname or top] = Symbol(alias.name if alias.asname else top)
            case ast.ImportFrom():
                for alias in node.names:
                    name = f"{'.' * node.level}{node.module or ''}.{alias.name}"
                    scope.names[alias.asname or alias.name] = Symbol(name)
            case ast.Assign():
                value = self.value(node.value, scope)
                for target in node.targets:
                    self.assign(target, value, scope, sure)
            case ast.AnnAssign(value=ast.expr() as right):
                self.assign(node.target, self.value(right, scope), scope, sure)
            case ast.AugAssign():
                values.spoil(self.value(node.target, scope))
                self.value(node.value, scope)
                self.assign(node.target, UNKNOWN, scope, True)
            case ast.For() | ast.AsyncFor():
                self.loop(node, scope)
            case ast.Return():
                scope.returned.append(self.value(node.value, scope) if node.value else None)
            case ast.Delete():
                for target in node.targets:
                    self.assign(target, UNKNOWN, scope, True)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    entered = self.value(item.context_expr, scope)
                    if item.optional_vars is not None:
                        self.assign(item.optional_vars, entered, scope, sure)
                self.block(node.body, scope, sure=sure)
            case _:
                for child in _expressions(node):
                    self.value(child, scope)
                for body in _blocks(node):
                    self.block(body, scope, sure=False)

    def loop(self, node: ast.For | ast.AsyncFor, scope: _Scope) -> None:
        items = self.value(node.iter, scope)
        known = isinstance(items, list | dict) and len(items) <= values.MAX_ITEMS
        for item in list(items) if known else [UNKNOWN]:
            self.assign(node.target, item, scope, True)
            self.block(node.body, scope, sure=known)
        self.block(node.orelse, scope, sure=False)

    def class_(self, node: ast.ClassDef, scope: _Scope) -> None:
        parser = any(self.value(base, scope) == _PARSER_CLASS for base in node.bases)
        scope.names[node.name] = _PARSER_CLASS if parser else UNKNOWN
        for item in node.body:
            if not isinstance(item, _Def):
                continue
            if parser and (item.name in _WORDS or item.name == "convert_arg_line_to_args"):
                self.undecided(item.lineno, f"{node.name} changes what {item.name} does")
            static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in item.decorator_list)
            method = _Function(item, scope, None if static else PARSER if parser else OUTSIDE)
            self.functions.append(method)
            self.methods.setdefault(item.name, []).append(method)
            if parser and item.name == "__init__":
                names = _parameters(item)
                self.enter(method, dict.fromkeys(names, UNKNOWN) | dict.fromkeys(names[:1], PARSER))

    def assign(self, target: ast.expr, value: Any, scope: _Scope, sure: bool) -> None:
        match target:
            case ast.Name():
                before = scope.names.get(target.id, value)
                scope.names[target.id] = value if sure or values.same(before, value) else UNKNOWN
            case ast.Tuple() | ast.List():
                exact = isinstance(value, list) and len(value) == len(target.elts)
                exact = exact and not any(isinstance(element, ast.Starred) for element in target.elts)
                for index, element in enumerate(target.elts):
                    self.assign(element, value[index] if exact else UNKNOWN, scope, sure)
            case ast.Starred():
                self.assign(target.value, UNKNOWN, scope, sure)
            case ast.Attribute() if value is PARSER:
                self.attributes.add(target.attr)
            case ast.Subscript():
                values.spoil(self.value(target.value, scope))

    # Expressions

    def value(self, node: ast.expr, scope: _Scope) -> Any:
        """The value of an expression as far as it can be told; calls in it are followed."""
        self.step()
        if self.depth >= MAX_DEPTH:
            if self.mentions(node):
                self.undecided(node.lineno, "it is nested too deeply to follow")
            return UNKNOWN
        self.depth += 1
        try:
            return self.expression(node, scope)
        finally:
            self.depth -= 1

    def expression(self, node: ast.expr, scope: _Scope) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return scope.get(node.id)
            case ast.Attribute():
                return self.attribute(node, self.value(node.value, scope))
            case ast.Call():
                return self.call(node, scope)
            case ast.List() | ast.Tuple() | ast.Set():
                items = self.items(node.elts, scope)
                return UNKNOWN if items is None else items
            case ast.Dict():
                return self.mapping(node, scope)
            case ast.UnaryOp(op=ast.USub()):
                return values.combine(ast.Sub(), 0, self.value(node.operand, scope))
            case ast.BinOp():
                left, right = self.value(node.left, scope), self.value(node.right, scope)
                return values.combine(node.op, left, right)
            case ast.JoinedStr():
                return values.join([self.value(part, scope) for part in node.values])
            case ast.FormattedValue(conversion=-1, format_spec=None):
                return self.value(node.value, scope)
            case ast.Compare(ops=[ast.Eq() | ast.NotEq() as op], comparators=[right_side]):
                found = values.equal(self.value(node.left, scope), self.value(right_side, scope))
                return found if found is UNKNOWN or isinstance(op, ast.Eq) else not found
            case ast.IfExp():
                test = self.value(node.test, scope)
                one, other = self.value(node.body, scope), self.value(node.orelse, scope)
                if isinstance(test, bool):
                    return one if test else other
                return one if values.same(one, other) else UNKNOWN
            case ast.NamedExpr():
                value = self.value(node.value, scope)
                self.assign(node.target, value, scope, False)
                return value
        inner = _Scope(scope)
        if isinstance(node, ast.Lambda):
            inner.names = dict.fromkeys(_parameters(node), OUTSIDE)
        for generator in getattr(node, "generators", ()):
            self.value(generator.iter, inner)
            self.assign(generator.target, UNKNOWN, inner, True)
        for child in _expressions(node):
            self.value(child, inner)
        return UNKNOWN

    def items(self, nodes: Sequence[ast.expr], scope: _Scope) -> list[Any] | None:
        """The values of elements or arguments; None where a starred one is unknown or there are too many."""
        found: list[Any] = []
        whole = True
        for node in nodes:
            value = self.value(node.value if isinstance(node, ast.Starred) else node, scope)
            if not isinstance(node, ast.Starred):
                found.append(value)
            elif isinstance(value, list) and UNKNOWN not in value:
                found.extend(value)
            else:
                whole = False
        return found if whole and len(found) <= values.MAX_ITEMS else None

    def mapping(self, node: ast.Dict, scope: _Scope) -> Any:
        found: dict[Any, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            name = self.value(key, scope) if key is not None else None
            value = self.value(item, scope)
            if key is None and isinstance(value, dict):
                found |= value
            elif key is not None and isinstance(name, str | int):
                found[name] = value
            else:
                found[UNKNOWN] = UNKNOWN
        return found if len(found) <= values.MAX_ITEMS else UNKNOWN

    def attribute(self, node: ast.Attribute, owner: Any) -> Any:
        if node.attr == "add_argument":
            if owner not in (PARSER, OUTSIDE):
                self.undecided(node.lineno, "flags are added to a parser that is not made here")
            return ADDER
        if isinstance(owner, Symbol):
            return Symbol(f"{owner.name}.{node.attr}"[:200])
        return PARSER if node.attr in self.attributes else UNKNOWN

    # Calls

    def call(self, node: ast.Call, scope: _Scope) -> Any:
        owner, name = None, ""
        if isinstance(node.func, ast.Attribute):
            owner, name = self.value(node.func.value, scope), node.func.attr
            function = self.attribute(node.func, owner)
            if function is ADDER and owner is OUTSIDE and isinstance(node.func.value, ast.Name):
                scope.names[node.func.value.id] = PARSER  # so it is one
        else:
            function = self.value(node.func, scope)
        args = self.items(node.args, scope)
        words = self.words(node, scope, skip=("help", "metavar") if function is ADDER else ())
        if function is ADDER:
            return self.add_argument(node, args, words)
        if function == _PARSER_CLASS:
            return self.parser(node, words)
        if name in _PARSES:
            return self.parse(node, owner, args)
        if owner in (PARSER, OUTSIDE) and name in _ADDS:
            return PARSER
        if owner is PARSER:
            return self.method(node, name, words or {})
        if isinstance(owner, str | list | dict):
            return values.method_of(owner, name, args or ())
        if len(self.methods.get(name, ())) == 1:
            function = self.methods[name][0]
        if isinstance(function, _Function):
            known = args is not None and words is not None
            return self.enter(function, self.bind(function, args or [], words or {}) if known else {})
        if isinstance(function, Symbol) and function.name.startswith("builtins."):
            return values.builtin(function, args or ())
        self.escaped(node, [*(args or ()), *(words or {}).values()], whole=args is not None)
        return UNKNOWN

    def words(self, node: ast.Call, scope: _Scope, skip: Sequence[str]) -> dict[str, Any] | None:
        """Keyword arguments by name; None where a `**` argument is unknown."""
        found: dict[str, Any] = {}
        known = True
        for keyword in node.keywords:
            if keyword.arg in skip:
                continue
            value = self.value(keyword.value, scope)
            if keyword.arg is not None:
                found[keyword.arg] = value
            elif isinstance(value, dict) and UNKNOWN not in value:
                found |= {key: item for key, item in value.items() if isinstance(key, str)}
            else:
                known = False
        return found if known else None

    def add_argument(self, node: ast.Call, args: list[Any] | None, words: dict[str, Any] | None) -> Any:
        self.parsers += 1
        if args is None or not all(isinstance(arg, str) for arg in args):
            self.undecided(node.lineno, "the name of a flag is computed")
        elif args and args[0].startswith("-"):
            for name, fact in values.flags_of(args, words or {}, node.lineno, sure=words is not None).items():
                self.facts["flags"].setdefault(name, fact)
            if len(self.facts["flags"]) > MAX_FLAGS:
                raise _TooMuchError
        else:
            name = args[0] if args else (words or {}).get("dest", "")
            if isinstance(name, str) and name not in self.facts["positionals"]:
                self.facts["positionals"].append(name)
        return UNKNOWN

    def parser(self, node: ast.Call, words: dict[str, Any] | None) -> Any:
        self.parsers += 1
        parents = (words or {}).get("parents", [])
        if words is None or not isinstance(parents, list) or any(parent is not PARSER for parent in parents):
            self.undecided(node.lineno, "the parser is made from something that is not known here")
        elif "prefix_chars" in words or "fromfile_prefix_chars" in words:
            self.undecided(node.lineno, "the parser has prefix characters of its own")
        elif words.get("allow_abbrev") is False:
            self.facts["abbrev"] = False
        return PARSER

    def method(self, node: ast.Call, name: str, words: dict[str, Any]) -> Any:
        if name in ("add_subparsers", "add_parser"):
            self.undecided(node.lineno, "the script has subcommands")
            return PARSER
        if name == "set_defaults":
            for flag, fact in self.facts["flags"].items():
                dest = fact.get("dest", flag)
                if dest in words and fact["action"] == "store":
                    fact.pop("default", None)
                    value = values.plain(words[dest])
                    if value is not UNKNOWN:
                        fact["default"] = value
        return UNKNOWN

    def parse(self, node: ast.Call, owner: Any, args: list[Any] | None) -> Any:
        if isinstance(node.func, ast.Attribute) and "known" in node.func.attr:
            self.facts["strict"] = False
        if owner not in (PARSER, OUTSIDE):
            self.undecided(node.lineno, "arguments are read by a parser that is not made here")
        if args and isinstance(args[0], list):
            self.undecided(node.lineno, "arguments are read from a list in the file")
        return UNKNOWN

    def escaped(self, node: ast.Call, given: Sequence[Any], *, whole: bool) -> None:
        """A call of something outside the file: what it is given may have changed afterwards."""
        inner = [item for value in given if isinstance(value, list) for item in value]
        if any(value is PARSER or value is ADDER for value in (*given, *inner)) or not whole:
            name = _dotted(node.func)
            if whole or self.mentions(node):
                self.undecided(node.lineno, f"{name} gets the parser and is not defined in this file")
        for value in given:
            values.spoil(value)

    def bind(self, function: _Function, args: list[Any], words: dict[str, Any]) -> dict[str, Any]:
        """Parameter names of a function to the values that a call gives them."""
        spec = function.node.args
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        given = args if function.owner is None else [function.owner, *args]
        bound: dict[str, Any] = dict(zip(names, given, strict=False))
        for name, default in zip(reversed(names), reversed(spec.defaults), strict=False):
            bound.setdefault(name, self.value(default, function.scope))
        for argument, preset in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            bound[argument.arg] = self.value(preset, function.scope) if preset is not None else UNKNOWN
        known = {*names, *(a.arg for a in spec.kwonlyargs)}
        bound |= {name: value for name, value in words.items() if name in known}
        if spec.vararg:
            bound[spec.vararg.arg] = given[len(names) :]
        if spec.kwarg:
            bound[spec.kwarg.arg] = {name: value for name, value in words.items() if name not in known}
        return bound

    def enter(self, function: _Function, bound: dict[str, Any]) -> Any:
        """Walk a function's body with its parameters bound; what it returns, where there is one answer."""
        node = function.node
        if node in self.calls or len(self.calls) >= MAX_CALLS:
            return UNKNOWN
        self.entered.add(node)
        scope = _Scope(function.scope, dict.fromkeys(_parameters(node), UNKNOWN) | bound)
        self.calls.append(node)
        try:
            self.block(node.body, scope, sure=True)
        finally:
            self.calls.pop()
        first = scope.returned[0] if scope.returned else None
        return first if all(values.same(first, other) for other in scope.returned) else UNKNOWN


def _parameters(node: _Def | ast.Lambda) -> list[str]:
    spec = node.args
    extra = [a for a in (spec.vararg, spec.kwarg) if a is not None]
    return [a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *extra)]


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Expressions directly below a node, through the helper nodes of the grammar."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.keyword | ast.comprehension | ast.match_case | ast.arguments):
            yield from _expressions(child)


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        inner = getattr(node, part, [])
        if inner and isinstance(inner[0], ast.stmt):
            yield inner
        else:
            yield from (item.body for item in inner)


def _dotted(node: ast.expr) -> str:
    """The name of what is called, shortened; `a function` where it has none."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < 4:
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id])) if isinstance(node, ast.Name) else "a function"
