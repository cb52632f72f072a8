"""Flags of an argparse parser whose values a class then holds: a flag without a default has the class's."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from tuneport.errors import Invalid
from tuneport.experiment.scripts import read_flags
from tuneport.upstream.dataclasses import Scan
from tuneport.upstream.sources import Sources
from tuneport.upstream.static import UNKNOWN, evaluate


def scan_flags(sources: Sources, spec: Mapping[str, Any]) -> Scan:
    """Every flag that a module's parser takes.

    Args:
        spec: `parser` (the module), `config` (the class, by its full name), `values` (what the release's own
            converters and actions make of words, by their last name: converter, types, choices, const,
            default), `text` (flags whose words stay text whatever their default is), `defaults` (of flags
            that the class works out itself).

    Raises:
        Invalid: the module is not there, or not all of its flags can be read.
    """
    module = spec["parser"]
    path, tree = sources.path(module), sources.tree(module)
    if path is None or tree is None:
        raise Invalid(f"no source root holds the module {module}", code="entry-not-found")
    facts = read_flags(path.read_text("utf-8"), path.name)
    calls = {node.lineno: node for node in ast.walk(tree) if isinstance(node, ast.Call) and _adds(node)}
    if len(calls) != len(facts["flags"]):
        message = f"{module} adds {len(calls)} flags, and {len(facts['flags'])} of them can be read"
        raise Invalid(message, code="entry-undecided")
    held = _defaults(sources, spec.get("config", "")) | spec.get("defaults", {})
    scan = Scan()
    for name, fact in facts["flags"].items():
        scan.keys[name] = _key(sources, spec, name, fact, calls[fact["line"]], held)
        if scan.keys[name].get("default") is UNKNOWN:
            del scan.keys[name]["default"]
            scan.unknown.append(name)
    return scan


def _adds(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"


def _key(
    sources: Sources,
    spec: Mapping[str, Any],
    name: str,
    fact: Mapping[str, Any],
    call: ast.Call,
    held: Mapping[str, Any],
) -> dict[str, Any]:
    module, values = spec["parser"], spec.get("values", {})
    words = {word.arg: word.value for word in call.keywords if word.arg}
    special = values.get(called(words.get("action"))) or values.get(called(words.get("type"))) or {}
    types = list(special.get("types", [kind for kind in fact["types"] if kind != "null"]))
    given = words.get("default")
    default = fact.get("default") if given is None else evaluate(sources, module, given)
    suppressed = given is not None and "SUPPRESS" in ast.unparse(given)
    if default in (None, UNKNOWN, "{}") or suppressed:
        default = held.get(name)
    default = special.get("default", default)
    if name in spec.get("text", ()):
        types = ["str"]
    if "const" in words and "converter" not in special and "const" not in special:
        special = {**special, "const": evaluate(sources, module, words["const"])}
        types = ["bool", *types]
    key: dict[str, Any] = {"types": [*types, *(["null"] if default is None else [])], "default": default}
    choices = evaluate(sources, module, words["choices"]) if "choices" in words else None
    key |= {"choices": choices} if isinstance(choices, list) else {}
    key |= {word: special[word] for word in ("choices", "const", "converter") if word in special}
    if fact["action"] not in ("store", "custom"):
        key["action"] = fact["action"]
    if "nargs" in fact:
        key["nargs"] = fact["nargs"]
    if fact["style"] != f"--{name}":
        key["style"] = fact["style"]
    options = [item.value for item in call.args if isinstance(item, ast.Constant)]
    short = [option for option in options if not str(option).startswith("--")]
    key |= {"also": short} if short else {}
    return {**key, "source": f"{sources.label(module, call).rpartition(':')[0]}:{fact['line']}"}


def called(node: ast.expr | None) -> str:
    """The last name of a class or function that is handed over, also through `partial`."""
    if isinstance(node, ast.Call) and node.args:
        return called(node.args[0])
    if isinstance(node, ast.Lambda):
        return "<lambda>"
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _defaults(sources: Sources, full: str) -> dict[str, Any]:
    """Field -> default of a class, as far as it is a plain value."""
    module, _, name = full.rpartition(".")
    found = sources.find(module, name) if full else None
    held: dict[str, Any] = {}
    for item in found.node.body if found is not None and isinstance(found.node, ast.ClassDef) else ():
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name) or item.value is None:
            continue
        assert found is not None
        value = item.value
        if isinstance(value, ast.Call):
            words = {word.arg: word.value for word in value.keywords}
            factory = called(words.get("default_factory"))
            empty: dict[str, Any] = {"dict": {}, "list": []}
            if factory in empty:
                held[item.target.id] = empty[factory]
                continue
            value = words.get("default", ast.Constant(None))
        plain = evaluate(sources, found.module, value)
        if plain is not UNKNOWN:
            held[item.target.id] = plain
    return held
