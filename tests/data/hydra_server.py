"""Answers questions with the real Hydra and OmegaConf: one JSON object a line in, one out.

Runs in an environment of its own (see tests/hydra_reference.py); imports nothing of Tuneport.
"""

import json
import math
import os
import re
import sys
import warnings
from importlib.machinery import ModuleSpec, NamespaceLoader
from importlib.util import module_from_spec

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, ListConfig, OmegaConf

warnings.simplefilter("ignore")
PARSER = OverridesParser.create()


def plain(value):
    """JSON that keeps what JSON cannot say: floats by their text, keys that are no text."""
    if isinstance(value, float):
        if math.isnan(value):
            return {"$float": "nan"}
        return {"$float": repr(value)}
    if isinstance(value, dict):
        return {"$dict": [[plain(key), plain(item)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def leaves(node, prefix=""):
    for key in node:
        name = f"{prefix}{key}"
        raw = node._get_node(key)
        open_branch = isinstance(raw, DictConfig) and not (
            raw._is_none() or raw._is_missing() or raw._is_interpolation() or len(raw) == 0
        )
        if open_branch:
            yield from leaves(raw, name + ".")
        elif isinstance(raw, DictConfig | ListConfig):
            whole = raw._is_none() or raw._is_interpolation()
            yield name, raw._value() if whole else OmegaConf.to_container(raw, resolve=False)
        else:
            yield name, raw._value()


def hollow(root, package):
    """Make `pkg://` folders of a release findable without running any of its code."""
    parts = package.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        folder = os.path.join(root, *parts[:count])
        spec = ModuleSpec(name, NamespaceLoader(name, [folder], None), is_package=True)
        spec.submodule_search_locations = [folder]
        sys.modules[name] = module_from_spec(spec)


def do_compose(case):
    GlobalHydra.instance().clear()
    os.chdir(case.get("cwd", "/"))
    for package in case.get("packages", []):
        hollow(case["cwd"], package)
    with initialize_config_dir(case["folder"], version_base=None):
        config = compose(case["config"], overrides=case.get("overrides", []))
    if case.get("tree"):
        return plain(OmegaConf.to_container(config, resolve=False))
    if case.get("resolve"):
        return plain(OmegaConf.to_container(config, resolve=True))
    return [[name, plain(value)] for name, value in leaves(config)]


def do_parse(case):
    override = PARSER.parse_override(case["text"])
    value = override.value()
    kind = override.value_type.name if override.value_type else None
    if kind not in (None, "ELEMENT"):
        value = None
    return {
        "type": override.type.name,
        "key": override.key_or_group,
        "package": override.package,
        "kind": kind,
        "value": plain(value),
    }


def do_set(case):
    """The value that arrives at `key` of a small configuration, after one override."""
    override = PARSER.parse_override(case["text"])
    config = OmegaConf.create(case.get("config") or {})
    OmegaConf.update(config, override.key_or_group, override.value(), merge=True, force_add=True)
    return {"key": override.key_or_group, "value": plain(OmegaConf.to_container(config, resolve=True))}


def do_resolve(case):
    for name in [name for name in os.environ if name.startswith("TP_")]:
        del os.environ[name]
    os.environ.update(case.get("env", {}))
    config = OmegaConf.create(case["config"])
    found = {}
    for key in case["keys"]:
        try:
            value = OmegaConf.select(config, key, throw_on_missing=True)
            if isinstance(value, DictConfig | ListConfig):
                value = OmegaConf.to_container(value, resolve=True, throw_on_missing=False)
            found[key] = {"value": plain(value)}
        except Exception as error:
            found[key] = {"error": type(error).__name__}
    return found


ACTIONS = {"compose": do_compose, "parse": do_parse, "set": do_set, "resolve": do_resolve}

for line in sys.stdin:
    asked = json.loads(line)
    try:
        answer = {"ok": ACTIONS[asked["do"]](asked)}
    except Exception as failure:
        text = re.sub(r"\s+", " ", str(failure))[:500]
        answer = {"error": type(failure).__name__, "message": text}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
