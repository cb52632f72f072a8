"""The configuration keys of an entry script that parses dataclasses from its command line."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuneport.errors import Invalid
from tuneport.upstream.annotations import Member, members
from tuneport.upstream.sources import Definition, Sources
from tuneport.upstream.static import UNKNOWN, condition, evaluate

_TRUE = ("yes", "true", "t", "y", "1")


@dataclass(frozen=True, slots=True)
class Field:
    """One dataclass field as written: `default` is UNKNOWN where only the host decides it."""

    name: str
    members: tuple[Member, ...]
    default: Any
    has_default: bool
    from_factory: bool
    metadata: Mapping[str, Any]
    source: str


@dataclass(slots=True)
class Scan:
    """What an entry parses: `keys` as a surface file holds them, the names whose default is unknown, and why
    it was not read in full, where it was not."""

    keys: dict[str, dict[str, Any]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)


def scan_entry(sources: Sources, entry: str, assume: Mapping[str, bool] | None = None) -> Scan:
    """Every key that the parser built by module `entry` accepts.

    Args:
        assume: truth of host-dependent names (`is_torch_available`) in `if`s around fields and defaults.

    Raises:
        Invalid: the entry or one of its dataclasses is not in the source roots.
    """
    scan = Scan()
    for definition in entry_dataclasses(sources, entry):
        for item in class_fields(sources, definition, assume or {}):
            scan.keys[item.name] = _key(item)
            if item.default is UNKNOWN:
                scan.unknown.append(item.name)
    return scan


def entry_dataclasses(sources: Sources, entry: str) -> list[Definition]:
    """The dataclasses that the entry hands to its parser (`…Parser((A, B))`), in that order."""
    tree = sources.tree(entry)
    if tree is None:
        raise Invalid(f"no source root holds the module {entry}", code="entry-not-found")
    for scope in [*(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)), tree]:
        names = _parsed_names(scope)
        if names:
            return [_resolve(sources, entry, scope, name) for name in names]
    raise Invalid(f"{entry} builds no parser out of dataclasses", code="entry-without-parser")


def class_fields(sources: Sources, definition: Definition, assume: Mapping[str, bool]) -> list[Field]:
    """Fields of a dataclass, inherited ones included, in the order that dataclasses give them.

    Raises:
        Invalid: a base class is in none of the source roots.
    """
    node = definition.node
    if not isinstance(node, ast.ClassDef):
        raise Invalid(f"{definition.module} defines no such class", code="class-not-found")
    fields: dict[str, Field] = {}
    for base in reversed(node.bases):
        name = ast.unparse(base)
        if name.split(".")[-1] in ("object", "Generic", "ABC", "Protocol"):
            continue
        parent = sources.find(definition.module, name)
        if parent is None:
            raise Invalid(
                f"{node.name} in {definition.module} inherits {name}, which no source root holds",
                code="base-not-found",
                hint="add the root folder of the package that defines it",
            )
        fields |= {item.name: item for item in class_fields(sources, parent, assume)}
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        for item in _own_fields(sources, definition, assume):
            fields[item.name] = item
    return list(fields.values())


def _parsed_names(scope: ast.AST) -> list[str]:
    groups: dict[str, list[str]] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple | ast.List):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    groups[target.id] = [ast.unparse(item) for item in node.value.elts]
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Parser"):
            given = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "dataclass_types")]
            for value in given:
                if isinstance(value, ast.Tuple | ast.List):
                    return [ast.unparse(item) for item in value.elts]
                if isinstance(value, ast.Name) and value.id in groups:
                    return groups[value.id]
    return []


def _resolve(sources: Sources, entry: str, scope: ast.AST, name: str) -> Definition:
    for node in ast.walk(scope):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    found = sources.find(sources.absolute(entry, node), alias.name)
                    if found is not None:
                        return found
    found = sources.find(entry, name)
    if found is None:
        raise Invalid(f"{entry} parses {name}, which no source root holds", code="class-not-found")
    return found


def _own_fields(sources: Sources, definition: Definition, assume: Mapping[str, bool]) -> Iterator[Field]:
    assert isinstance(definition.node, ast.ClassDef)
    names: dict[str, Any] = {}
    for node in _reached(definition.node.body, assume, names):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = evaluate(sources, definition.module, node.value, names)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            item = _field(sources, definition.module, node, names)
            if item is not None:
                yield item


def _reached(
    body: Sequence[ast.stmt], assume: Mapping[str, bool], names: dict[str, Any]
) -> Iterator[ast.stmt]:
    """The statements that run under the assumptions; what an undecided `if` assigns becomes UNKNOWN."""
    for node in body:
        if not isinstance(node, ast.If):
            yield node
            continue
        holds = condition(node.test, assume)
        if holds is not None:
            yield from _reached(node.body if holds else node.orelse, assume, names)
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign):
                names.update({t.id: UNKNOWN for t in inner.targets if isinstance(t, ast.Name)})


def _field(sources: Sources, module: str, node: ast.AnnAssign, names: Mapping[str, Any]) -> Field | None:
    assert isinstance(node.target, ast.Name)
    if "ClassVar" in ast.unparse(node.annotation):
        return None
    options: dict[str, ast.expr] = {}
    default: Any = None
    value = node.value
    has_default = from_factory = False
    if isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] == "field":
        options = {k.arg: k.value for k in value.keywords if k.arg}
        if "default" in options:
            default, has_default = evaluate(sources, module, options["default"], names), True
        elif "default_factory" in options:
            default, has_default, from_factory = (
                _made(sources, module, options["default_factory"]),
                True,
                True,
            )
    elif value is not None:
        default, has_default = evaluate(sources, module, value, names), True
    if "init" in options and evaluate(sources, module, options["init"]) is False:
        return None
    metadata = evaluate(sources, module, options["metadata"], names) if "metadata" in options else {}
    return Field(
        name=node.target.id,
        members=members(sources, module, node.annotation),
        default=default,
        has_default=has_default,
        from_factory=from_factory,
        metadata=metadata if isinstance(metadata, dict) else {},
        source=sources.label(module, node),
    )


def _made(sources: Sources, module: str, factory: ast.expr) -> Any:
    if isinstance(factory, ast.Lambda):
        return evaluate(sources, module, factory.body)
    return {"list": [], "dict": {}}.get(ast.unparse(factory), UNKNOWN)


def _key(item: Field) -> dict[str, Any]:
    """A field as the Hugging Face argument parser holds it, quirks included.

    That parser keeps one member of a union: choices of an enumeration count even beside `str`, text
    beside `bool` is read as a truth value, and a plain default of a list is dropped.
    """
    kept = _kept(item.members)
    types = [member.kind for member in item.members]
    choices = item.metadata.get("choices", UNKNOWN)
    if choices is UNKNOWN and kept is not None:
        choices = list(kept.choices) if kept.choices and kept.kind != "list" else UNKNOWN
    default = item.default
    if kept is not None and kept.kind == "list" and not item.from_factory and item.has_default:
        default = None
    if kept is not None and kept.kind == "bool":
        types = [kind for kind in types if kind != "str"]
        default = default.lower() in _TRUE if isinstance(default, str) else default
    if item.metadata.get("const") is True:
        types.append("bool")  # the bare flag stands for True
    has_default = item.has_default
    if not has_default and types == ["bool"]:
        default, has_default = False, True
    if has_default and default is None:
        types.append("null")
    key: dict[str, Any] = {"types": sorted(set(types))}
    if has_default and default is not UNKNOWN:
        key["default"] = default
    if choices is not UNKNOWN:
        key["choices"] = choices
    if not has_default:
        key["required"] = True
    key |= _command_line(item, kept, key)
    key["source"] = item.source
    return key


def _command_line(item: Field, kept: Member | None, key: dict[str, Any]) -> dict[str, Any]:
    """How the parser reads a key's words, where its types do not show it."""
    found: dict[str, Any] = {}
    kinds = [kind for kind in key["types"] if kind != "null"]
    reads = "" if kept is None else "str" if kept.choices and kept.kind != "list" else kept.kind
    if reads in ("dict", "any", "null", "") or (kept is not None and kept.item == "tuple"):
        reads = "nothing"
    if kinds != [reads]:
        found["reads"] = reads
    if reads == "list" and kept is not None and kept.item not in ("", "str"):
        found["items"] = kept.item
    if item.metadata.get("const") is True:
        found["bare"] = True
    return found


def _kept(union: Sequence[Member]) -> Member | None:
    """The member by which the parser reads text, as its union rules choose it."""
    kinds = [member.kind for member in union]
    if len(union) == 1:
        return union[0]
    if "null" not in kinds:
        return union[0] if kinds[1] == "str" and not union[1].choices else union[1]
    if any(member.kind == "bool" and not member.choices for member in union):
        return next(member for member in union if member.kind == "bool")
    return union[0] if kinds[1] == "null" else union[1]
