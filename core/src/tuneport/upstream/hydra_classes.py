"""The classes that `_target_` keys name: their fields, types, and the choices that their code checks."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from tuneport.upstream.annotations import members
from tuneport.upstream.sources import Definition, Sources
from tuneport.upstream.static import UNKNOWN, evaluate

_WRAPPERS = ("Optional", "Union")


class Classes:
    """Class name -> `{source, bases, fields, choices}` of everything that is reached from some names."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.table: dict[str, dict[str, Any]] = {}

    def reach(self, target: str) -> None:
        """Take in the class of a `_target_`, its bases, and the classes of its fields; a name that is no
        class of the sources is left out."""
        if target in self.table:
            return
        module, _, name = target.rpartition(".")
        found = self.sources.find(module, name)
        if found is None or not self._is_one(found):
            return
        assert isinstance(found.node, ast.ClassDef)
        own = f"{found.module}.{found.node.name}"
        if own != target:
            self.table[target] = {"bases": [own]}
        self._take(found, own)

    def _is_one(self, found: Definition) -> bool:
        """Whether a definition is a class whose fields count."""
        return isinstance(found.node, ast.ClassDef) and _is_dataclass(found.node)

    def _take(self, found: Definition, own: str) -> None:
        if own in self.table:
            return
        node = found.node
        assert isinstance(node, ast.ClassDef)
        spec = self.table[own] = {"source": self.sources.label(found.module, node)}
        bases = [self._named(found.module, base) for base in node.bases]
        spec["bases"] = [name for name in bases if name]
        spec["fields"] = dict(self._fields(found))
        spec["choices"] = dict(_checked(self.sources, found))
        for name in ("bases", "fields", "choices"):
            if not spec[name]:
                del spec[name]

    def _named(self, module: str, node: ast.expr) -> str:
        """The full name of a dataclass of the sources, which is taken in too; empty for any other."""
        found = self.sources.find(module, ast.unparse(node).rpartition(".")[2])
        if found is None or not self._is_one(found):
            return ""
        assert isinstance(found.node, ast.ClassDef)
        name = f"{found.module}.{found.node.name}"
        self._take(found, name)
        return name

    def _fields(self, found: Definition) -> Iterator[tuple[str, dict[str, Any]]]:
        assert isinstance(found.node, ast.ClassDef)
        for node in found.node.body:
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            if "ClassVar" in ast.unparse(node.annotation):
                continue
            spec = self._field(found.module, node)
            if spec is not None:
                yield node.target.id, spec

    def _field(self, module: str, node: ast.AnnAssign) -> dict[str, Any] | None:
        kinds = members(self.sources, module, node.annotation)
        inner = next(filter(None, (self._named(module, name) for name in _names(node.annotation))), "")
        types = dict.fromkeys("dict" if inner and m.kind == "any" else m.kind for m in kinds)
        choices = [choice for member in kinds for choice in member.choices]
        default, known = self._default(module, node.value)
        if known is False:
            return None
        if default is None:
            types["null"] = None
        spec: dict[str, Any] = {"types": sorted(types)}
        if inner:
            spec["class"] = inner
        if choices and UNKNOWN not in choices:
            spec["choices"] = choices
        if default is not UNKNOWN and not inner:
            spec["default"] = default
        spec["source"] = self.sources.label(module, node)
        return spec

    def _default(self, module: str, value: ast.expr | None) -> tuple[Any, bool | None]:
        """(default or UNKNOWN, False where the field is no argument)."""
        if value is None:
            return UNKNOWN, None
        if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "field":
            words = {word.arg: word.value for word in value.keywords if word.arg}
            if "init" in words and evaluate(self.sources, module, words["init"]) is False:
                return UNKNOWN, False
            if "default" in words:
                return evaluate(self.sources, module, words["default"]), True
            factory = words.get("default_factory")
            if isinstance(factory, ast.Lambda):
                return evaluate(self.sources, module, factory.body), True
            text = ast.unparse(factory) if factory is not None else ""
            return {"list": [], "dict": {}}.get(text, UNKNOWN), True
        return evaluate(self.sources, module, value), True


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def _names(annotation: ast.expr) -> Iterable[ast.expr]:
    """The plain names of an annotation that may be classes: itself, or the members of a union."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return _names(ast.parse(annotation.value, mode="eval").body)
    if isinstance(annotation, ast.BinOp):
        return [*_names(annotation.left), *_names(annotation.right)]
    if isinstance(annotation, ast.Subscript):
        if ast.unparse(annotation.value).rpartition(".")[2] not in _WRAPPERS:
            return ()
        inner = annotation.slice
        return [n for item in (inner.elts if isinstance(inner, ast.Tuple) else [inner]) for n in _names(item)]
    return [annotation] if isinstance(annotation, ast.Name | ast.Attribute) else ()


def _checked(sources: Sources, found: Definition) -> Iterator[tuple[str, dict[str, Any]]]:
    """Fields whose value a method compares with a fixed list, failing otherwise: `assert self.x in …`,
    `if self.x not in …: raise`. A check that only some condition reaches is left to the rules."""
    assert isinstance(found.node, ast.ClassDef)
    for method in found.node.body:
        if not isinstance(method, ast.FunctionDef) or method.name != "__post_init__":
            continue
        names: dict[str, Any] = {}
        for node in method.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                names[node.targets[0].id] = evaluate(sources, found.module, node.value, names)
            test, wanted = _test(node)
            if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], wanted) or len(test.ops) > 1:
                continue
            left = test.left
            if isinstance(left, ast.Attribute) and ast.unparse(left.value) == "self":
                values = evaluate(sources, found.module, test.comparators[0], names)
                values = list(values) if isinstance(values, dict) else values
                if isinstance(values, list) and UNKNOWN not in values:
                    label = sources.label(found.module, node)
                    yield left.attr, {"choices": values, "choices_from": label}


def _test(node: ast.stmt) -> tuple[ast.expr | None, type[ast.cmpop]]:
    if isinstance(node, ast.Assert):
        return node.test, ast.In
    if isinstance(node, ast.If) and any(isinstance(inner, ast.Raise) for inner in node.body):
        return node.test, ast.NotIn
    return None, ast.In
