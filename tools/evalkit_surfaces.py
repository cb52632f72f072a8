"""Writes the surfaces of evalkit's releases from unpacked wheels, which are read and never imported.

    python tools/evalkit_surfaces.py lm-eval-0.4.13 LM_EVAL_FOLDER lm_eval-0.4.13-….whl
    python tools/evalkit_surfaces.py evalscope-1.14.1 EVALSCOPE_FOLDER evalscope-1.14.1-….whl

Flags come from the argparse parsers; where one has no default of its own, the class that takes the parsed
values has it. `lists` are the names that the harness has registered: tasks, and those that run generated
code.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tuneport.experiment.scripts import read_flags
from tuneport.upstream.__main__ import artefact, dumps
from tuneport.upstream.sources import Sources
from tuneport.upstream.static import UNKNOWN, evaluate

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "manifests/tuneport_manifests/evalkit/surfaces"
# What upstream's own actions and types make of words, by their name: how the values are written, and what
# they may be.
CONVERTERS: dict[str, dict[str, Any]] = {
    "MergeDictAction": {"converter": "pairs", "types": ["dict"]},
    "SplitArgs": {"converter": "commas", "types": ["list", "str"]},
    "try_parse_json": {"converter": "json-file", "types": ["dict", "str"]},
    "request_caching_arg_to_dict": {
        "types": ["str"],
        "default": None,
        "choices": ["true", "refresh", "delete"],
        "const": "true",
    },
    "_int_or_none_list_arg_type": {"converter": "int-list", "types": ["int", "list"]},
    "<lambda>": {"converter": "truth", "types": ["bool"], "const": True},
    "upper": {"types": ["str"]},
    "ParseStrArgsAction": {"converter": "json-or-pairs", "types": ["dict"]},
    "loads": {"converter": "json", "types": ["dict"]},
}
HARNESSES = {
    "lm-eval": {
        "entry": "lm_eval",
        "parser": "lm_eval._cli.run",
        "config": ("lm_eval.config.evaluate_config", "EvaluatorConfig"),
    },
    "evalscope": {
        "entry": "evalscope.cli.cli",
        "parser": "evalscope.arguments",
        "config": ("evalscope.config", "TaskConfig"),
    },
}


def surface(release: str, root: Path, wheel: Path) -> dict[str, Any]:
    """The surface document of one release."""
    name = release.rpartition("-")[0]
    harness = HARNESSES[name]
    sources = Sources([root.resolve()])
    lists = (
        lm_eval_lists(root / "lm_eval/tasks")
        if name == "lm-eval"
        else evalscope_lists(sources, root / "evalscope/benchmarks")
    )
    keys = flags(sources, harness["parser"], defaults(sources, *harness["config"]))
    return {
        "framework": "evalkit",
        "release": release,
        "artefacts": [artefact(wheel)],
        "lists": lists,
        "entries": {harness["entry"]: {"parser": "argparse", "keys": keys}},
    }


def flags(sources: Sources, module: str, known: dict[str, Any]) -> dict[str, Any]:
    """Key -> facts of each flag that the parser of a module has."""
    path = sources.path(module)
    assert path is not None
    facts = read_flags(path.read_text("utf-8"), path.name)
    calls = {call.lineno: call for call in ast.walk(sources.tree(module)) if _adds(call)}  # type: ignore[attr-defined, arg-type]
    if len(calls) != len(facts["flags"]):
        raise SystemExit(f"{module} adds {len(calls)} flags, and {len(facts['flags'])} of them were read")
    found = {}
    for name, fact in facts["flags"].items():
        found[name] = _key(sources, module, name, fact, calls[fact["line"]], known)
    return found


def _adds(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "add_argument"
    )


def _key(
    sources: Sources, module: str, name: str, fact: dict[str, Any], call: ast.Call, known: dict[str, Any]
) -> dict[str, Any]:
    words = {word.arg: word.value for word in call.keywords if word.arg}
    special = CONVERTERS.get(_called(words.get("action"))) or CONVERTERS.get(_called(words.get("type"))) or {}
    types = list(special.get("types", [kind for kind in fact["types"] if kind != "null"]))
    default = evaluate(sources, module, words["default"]) if "default" in words else fact.get("default")
    if default in (None, UNKNOWN, "{}") or "SUPPRESS" in ast.unparse(
        words.get("default", ast.Constant(None))
    ):
        default = known.get(name)
    if "default" in special:
        default = special["default"]
    if name == "batch_size":  # a word, whose default is a number
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
    short = [
        item.value for item in call.args if isinstance(item, ast.Constant) and not item.value.startswith("--")
    ]
    key |= {"also": short} if short else {}
    return {**key, "source": f"{sources.label(module, ast.Pass()).rpartition(':')[0]}:{fact['line']}"}


def _called(node: ast.expr | None) -> str:
    """The last name of a class or function that is handed over, also through `partial`."""
    if isinstance(node, ast.Call) and node.args:
        return _called(node.args[0])
    if isinstance(node, ast.Lambda):
        return "<lambda>"
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def defaults(sources: Sources, module: str, name: str) -> dict[str, Any]:
    """Field -> default of a class, as far as it is a plain value."""
    tree = sources.tree(module)
    assert tree is not None
    (node,) = [item for item in tree.body if isinstance(item, ast.ClassDef) and item.name == name]
    found: dict[str, Any] = {}
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name) or item.value is None:
            continue
        value = item.value
        if isinstance(value, ast.Call):
            words = {word.arg: word.value for word in value.keywords}
            factory = _called(words.get("default_factory"))
            empty: dict[str, Any] = {"dict": {}, "list": []}
            if factory in empty:
                found[item.target.id] = empty[factory]
                continue
            value = words.get("default", ast.Constant(None))
        plain = evaluate(sources, module, value)
        if plain is not UNKNOWN:
            found[item.target.id] = plain
    found["seed"] = found.get("seed") or [0, 1234, 1234, 1234]
    return found


class _Loader(yaml.SafeLoader):
    """`!function` stays text."""


_Loader.add_multi_constructor("!", lambda _loader, tag, _node: f"!{tag}")  # type: ignore[no-untyped-call]


def lm_eval_lists(folder: Path) -> dict[str, list[str]]:
    """Names that `--tasks` takes, as lm_eval/tasks/_index.py collects them, and those that are unsafe
    code."""
    tasks, unsafe = set[str](), set[str]()
    members: dict[str, set[str]] = {}
    for path in sorted(folder.glob("**/*.yaml"), key=lambda item: item.as_posix()):
        config = _config(path)
        name = config.get("group") if "group" in config and "class" not in config else config.get("task")
        if not isinstance(name, str):
            continue
        tasks.add(name)
        tags = config.get("tag") or []
        if "group" in config:
            members.setdefault(name, set()).update(_names(config.get("task", [])))
            continue
        for tag in [tags] if isinstance(tags, str) else tags:
            tasks.add(tag)
            members.setdefault(tag, set()).add(name)
        if config.get("unsafe_code"):
            unsafe.add(name)
    while more := {group for group, inside in members.items() if inside & unsafe and group not in unsafe}:
        unsafe |= more
    return {
        "tasks": sorted(tasks),
        "unsafe": sorted(unsafe),
        "models": _engines(folder.parent / "models/__init__.py"),
    }


def _engines(path: Path) -> list[str]:
    """Keys of the mapping of engines."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODEL_MAPPING":
            return sorted(ast.literal_eval(node.value))
    raise SystemExit(f"{path} has no MODEL_MAPPING")


def _names(tasks: Any) -> Iterator[str]:
    for item in tasks if isinstance(tasks, list) else [tasks]:
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            yield from _names(item.get("task", item.get("group", [])))


def _config(path: Path) -> dict[str, Any]:
    try:
        config = yaml.load(path.read_text("utf-8"), _Loader)
    except (yaml.YAMLError, OSError):
        return {}
    if not isinstance(config, dict):
        return {}
    included = config.pop("include", [])
    merged: dict[str, Any] = {}
    for name in [included] if isinstance(included, str) else included:
        merged |= _config(path.parent / name)
    return {**merged, **config}


def evalscope_lists(sources: Sources, folder: Path) -> dict[str, list[str]]:
    """Names that `--datasets` takes: those of every BenchmarkMeta."""
    found = set[str]()
    for path in sorted(folder.rglob("*.py")):
        module = ".".join(("evalscope.benchmarks", *path.relative_to(folder).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            words = (
                node.keywords if isinstance(node, ast.Call) and _called(node.func) == "BenchmarkMeta" else []
            )
            for word in words:
                if word.arg == "name":
                    name = evaluate(sources, module, word.value)
                    if not isinstance(name, str):
                        raise SystemExit(f"{path}: the name {ast.unparse(word.value)} is not known")
                    found.add(name)
    return {"tasks": sorted(found)}


if __name__ == "__main__":
    made = surface(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
    OUT.mkdir(parents=True, exist_ok=True)
    lists = made["lists"]
    text = dumps({**made, "lists": {name: f"@{name}@" for name in lists}})
    for name, values in lists.items():
        text = text.replace(json.dumps(f"@{name}@"), json.dumps(values, ensure_ascii=False), 1)
    (OUT / f"{sys.argv[1]}.json").write_text(text, "utf-8")
    print(f"{sys.argv[1]}: { ({name: len(values) for name, values in lists.items()}) }")
