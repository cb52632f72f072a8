"""Classes that declare the shape of a mapping, read by syntax: TypedDict, pydantic models, dataclasses."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, TypeGuard

from tuneport.upstream.annotations import members
from tuneport.upstream.hydra_classes import Classes
from tuneport.upstream.sources import Definition, Sources
from tuneport.upstream.static import UNKNOWN, evaluate

_MAPPINGS = ("TypedDict", "BaseModel")
_DEFAULTS = ("default", "default_factory", "factory")
_WRAPPERS = ("NotRequired", "Required", "Optional", "Union", "Annotated", "ReadOnly")


class TypedConfigs(Classes):
    """Class name -> what a surface keeps of it. A field that is a union of such classes gets a class of its
    own, called after all of them, which has every field that any of them declares. `aliased` are places of
    fields that a file calls otherwise: the table has the name that the class gives them."""

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        self.aliased: list[str] = []

    def _is_one(self, found: Definition) -> bool:
        node = found.node
        if not isinstance(node, ast.ClassDef):
            return False
        if super()._is_one(found):
            return True
        for base in node.bases:
            name = ast.unparse(base).rpartition(".")[2]
            if name in _MAPPINGS:
                return True
            parent = self.sources.find(found.module, name)
            if parent is not None and parent.node is not node and self._is_one(parent):
                return True
        return False

    def _take(self, found: Definition, own: str) -> None:
        known = own in self.table
        super()._take(found, own)
        assert isinstance(found.node, ast.ClassDef)
        if known:
            return
        words = {word.arg: ast.unparse(word.value) for word in found.node.keywords}
        if "forbid" in words.get("extra", ""):
            self.table[own]["closed"] = True
        if words.get("total") == "False":  # a TypedDict none of whose own keys need be there
            for spec in self.table[own].get("fields", {}).values():
                spec.pop("required", None)

    def _field(self, module: str, node: ast.AnnAssign) -> dict[str, Any] | None:
        kinds = members(self.sources, module, node.annotation, aliases=True)
        inner = self._inner(module, node.annotation)
        types = dict.fromkeys("dict" if inner and m.kind == "any" else m.kind for m in kinds)
        choices = list(dict.fromkeys(choice for member in kinds for choice in member.choices))
        default = _default(self, module, node.value)
        if default is None:
            types["null"] = None
        spec: dict[str, Any] = {"types": sorted(types)}
        if inner:
            spec["class"] = inner
        if (
            choices
            and UNKNOWN not in choices
            and all(member.choices or member.kind == "null" for member in kinds)
        ):
            spec["choices"] = choices
        if default is not UNKNOWN and not inner:
            spec["default"] = default
        if _is_unset(node.value) and not _optional(node.annotation):
            spec["required"] = True
        spec["source"] = self.sources.label(module, node)
        if _has_alias(node):
            self.aliased.append(f"{spec['source']} {ast.unparse(node.target)}")
        return spec

    def _inner(self, module: str, annotation: ast.expr) -> str:
        """The class of a field, or the one made of several; empty where it holds something else."""
        found = list(dict.fromkeys(filter(None, (self._named(module, name) for name in _parts(annotation)))))
        if len(found) < 2:
            return next(iter(found), "")
        name = " | ".join(found)
        if name not in self.table:
            self.table[name] = {"fields": self._merged(found)}
        return name

    def _merged(self, names: list[str]) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for name in names:
            for field, spec in self.every(name).items():
                before = merged.get(field)
                merged[field] = spec if before is None else _either(before, spec)
        for field, spec in merged.items():
            if any(field not in self.every(name) for name in names) and "required" in spec:
                merged[field] = {key: value for key, value in spec.items() if key != "required"}
        return merged

    def every(self, name: str) -> dict[str, Any]:
        """Declared fields of a class of the table, inherited ones included."""
        spec: dict[str, Any] = self.table.get(name, {})
        found: dict[str, Any] = {}
        for base in spec.get("bases", ()):
            found |= self.every(base)
        return {**found, **spec.get("fields", {})}


def _either(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """One field as two classes of a union declare it."""
    both = {**left, "types": sorted({*left["types"], *right["types"]})}
    both.pop("choices", None)
    if "choices" in left and "choices" in right:
        both["choices"] = list(dict.fromkeys([*left["choices"], *right["choices"]]))
    if "required" not in right:
        both.pop("required", None)
    return both


def _default(classes: TypedConfigs, module: str, value: ast.expr | None) -> Any:
    """The default of a field, UNKNOWN where it has none that can be read."""
    if value is None:
        return UNKNOWN
    if _is_unset(value):
        return UNKNOWN
    if _is_field(value):
        words = {word.arg: word.value for word in value.keywords if word.arg}
        if "default" in words or value.args:
            return evaluate(classes.sources, module, words.get("default") or value.args[0])
        factory = words.get("default_factory")
        if isinstance(factory, ast.Lambda):
            return evaluate(classes.sources, module, factory.body)
        return {"list": [], "dict": {}}.get(ast.unparse(factory) if factory else "", UNKNOWN)
    return evaluate(classes.sources, module, value)


def _is_field(value: ast.expr | None) -> TypeGuard[ast.Call]:
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in ("field", "Field")


def _is_unset(value: ast.expr | None) -> bool:
    """Whether a field has no default, so that it must be given: `x: int`, `= Field(ge=0)`, `= Field(...)`."""
    if not _is_field(value):
        return value is None
    given = [*value.args[:1], *(word.value for word in value.keywords if word.arg in _DEFAULTS)]
    more = any(word.arg is None for word in value.keywords)  # **options may hold one
    return not more and all(isinstance(one, ast.Constant) and one.value is ... for one in given)


def _has_alias(field: ast.AnnAssign) -> bool:
    """Whether a field of a pydantic model is read under another name than the class gives it."""
    return any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] == "Field"
        and any(word.arg in ("alias", "validation_alias") for word in node.keywords)
        for node in ast.walk(field)
    )


def _optional(annotation: ast.expr) -> bool:
    return (
        isinstance(annotation, ast.Subscript)
        and ast.unparse(annotation.value).rpartition(".")[2] == "NotRequired"
    )


def _parts(annotation: ast.expr) -> Iterator[ast.expr]:
    """The plain names of an annotation that may be classes: itself, or the members of a union."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        yield from _parts(ast.parse(annotation.value, mode="eval").body)
    elif isinstance(annotation, ast.BinOp):
        yield from _parts(annotation.left)
        yield from _parts(annotation.right)
    elif isinstance(annotation, ast.Subscript):
        if ast.unparse(annotation.value).rpartition(".")[2] in _WRAPPERS:
            inner = annotation.slice
            for item in inner.elts if isinstance(inner, ast.Tuple) else [inner]:
                yield from _parts(item)
    elif isinstance(annotation, ast.Name | ast.Attribute):
        yield annotation
