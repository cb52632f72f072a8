"""What a command says of parameters, hardware, places and environment, as an experiment writes it."""

from __future__ import annotations

import json
import os.path
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneport.checks.surface import ancestor
from tuneport.compiler import convert
from tuneport.dialects.hydra.choices import CONFIG
from tuneport.dialects.hydra.render import equal
from tuneport.experiment import joint, values
from tuneport.experiment.command_line import Invocation
from tuneport.experiment.hardware import NODE_GPUS
from tuneport.experiment.secrets import ADVICE, is_secret
from tuneport.registry.plugins import Hooks
from tuneport.shell.gaps import open_
from tuneport.types import Context, Json, Method, Param, Pool, Request, Topology

if TYPE_CHECKING:
    from tuneport.linter import Checked

SERIES = "gpu"
"""The series where nobody says which: the person who plans knows."""
MAX_COPIED = 1024 * 1024
OURS = ("config.yaml", "job.yaml", "recipe.lock.json", "main.py", "eval.py")
"""Files that an experiment gives a meaning: one of the same name elsewhere is not it."""
_MACHINE = {"HOME", "HOSTNAME", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL", "SHLVL", "TERM", "USER", "_"}


def parameters(
    config: Mapping[str, Json],
    context: Context,
    method: Method,
    held: Collection[str] = (),
    *,
    once: bool = True,
) -> dict[str, tuple[Json, tuple[str, ...]]]:
    """The parameters that say exactly what some of the native keys say: name -> (value, the keys).

    Args:
        held: keys that must stay as they are.
        once: a key is said by one parameter only, so that the experiment does not say it twice.
    """
    hooks = Hooks(method.framework, [])
    base = context._replace(method=method, request=Request(native=context.request.native), linted=False)
    before = hooks.bind_args(base).values
    free = {key: value for key, value in config.items() if key not in held and _plain(value)}
    found: dict[str, tuple[Json, tuple[str, ...]]] = {}
    for param in sorted(method.params.values(), key=lambda param: -len(param.keys)):
        for value in _candidates(param, base, free):
            if any(values.check({param.name: value}, method, "params")):
                continue
            asked = base._replace(request=base.request._replace(params={param.name: value}))
            wrote = hooks.bind_args(asked).values
            new = {k: v for k, v in wrote.items() if k not in before or not equal(before[k], v)}
            if new and all(key in free and equal(free[key], item) for key, item in new.items()):
                found[param.name] = (value, tuple(new))
                if once:
                    free = {key: item for key, item in free.items() if key not in new}
                break
    lists = {key: value for key, value in config.items() if key not in held and isinstance(value, list)}
    found |= joint.parameters(lists, base, found)
    return {name: found[name] for name in method.params if name in found}


def _plain(value: Json) -> bool:
    """Whether a value holds no interpolation: a parameter's text stands for itself."""
    if isinstance(value, str):
        return "${" not in value and value != "???"
    if isinstance(value, dict):
        return False
    return all(map(_plain, value)) if isinstance(value, list) else value is not None


def _candidates(param: Param, context: Context, free: Mapping[str, Json]) -> Iterator[Json]:
    """Values of a parameter that may have led to what the keys hold."""
    cases = context.method.spec.get("variants", {}).get("cases", {})
    keys = [*param.keys, *(key for case in cases.values() for key in case.get(param.name, ()))]
    tried: list[Json] = []
    for key in dict.fromkeys(keys):
        if key not in free:
            continue
        back = [_word(word) for word, native in param.values.items() if equal(native, free[key])]
        back += [value] if (value := convert.canonical(context, param, free[key])) is not None else []
        for value in (*back, free[key]):
            if not any(equal(value, other) for other in tried):
                tried.append(value)
                yield value


def _word(text: str) -> Json:
    """The parameter's value of a translation, which is keyed by its JSON text, or by itself for text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


class Pools:
    """The hardware that a command asks for, as flags or, where those cannot say it, as pools and roles."""

    def __init__(self, checked: Checked, method: Method) -> None:
        context, spec = checked.context, method.spec
        self.flags: dict[str, str] = {}
        self.resources: dict[str, Json] = {}
        self.left: list[tuple[str, str]] = []
        topology: Mapping[str, str] = spec.get("topology", {})
        main = context.topology.pools[0] if context.topology.pools else None
        if main is None:
            sizes = [context.config.get(topology.get(name, "")) for name in ("nodes", "gpus_per_node")]
            nodes, gpus = (size if isinstance(size, int) and size > 0 else 1 for size in sizes)
            main = Pool("main", SERIES, nodes, gpus)
        keys = {topology[name] for name in ("nodes", "gpus_per_node") if name in topology}
        pools, roles = [main], dict.fromkeys(spec.get("roles", ["main"]), main.name)
        for role in spec.get("roles", ["main"])[1:]:
            found = _beside(context, method, role, main)
            own = [size for key in found.values() if type(size := context.own.get(key)) is int and size > 0]
            if len(own) == 2:
                pools.append(Pool(role, main.series, own[0], own[1]))
                roles[role] = role
                keys |= set(found.values())
        self.keys = frozenset(keys)
        total = main.nodes * main.gpus_per_node
        if len(pools) > 1:
            self.resources = {"pools": [_pool(pool) for pool in pools], "roles": roles}
        elif main.gpus_per_node == NODE_GPUS or (main.nodes == 1 and total <= NODE_GPUS):
            self.flags["--profile"] = f"{main.series}:{total}"
        else:
            self.resources = {"pools": [_pool(main)]}
        where = "resources in job.yaml" if self.resources else "--profile"
        self.left = [(key, f"comes from {where}") for key in sorted(keys) if key in context.own]


def _pool(pool: Pool) -> dict[str, Json]:
    return {
        "name": pool.name, "series": pool.series, "nodes": pool.nodes, "gpus_per_node": pool.gpus_per_node,
    }  # fmt: skip


def _beside(context: Context, method: Method, role: str, main: Pool) -> dict[str, str]:
    """The keys that say how large the pool of a role is, where it has one of its own: found by asking the
    framework's adapter with sizes that nothing else has."""
    odd = {10007: "nodes", 10009: "gpus_per_node"}
    pools = (main, Pool("beside", main.series, 10007, 10009))
    roles = {**dict.fromkeys(method.spec.get("roles", ()), main.name), role: "beside"}
    asked = context._replace(method=method, topology=Topology(pools, roles), linted=False)
    bound = Hooks(method.framework, []).topology(asked).values
    found = {odd[v]: key for key, v in bound.items() if isinstance(v, int) and v in odd}
    return {name: found[name] for name in odd.values() if name in found}


def platform_keys(method: Method) -> list[str]:
    """Keys in which a plan may differ from the command: what the platform, or the request, writes."""
    spec = method.spec
    found = [*spec.get("platform", {}), *spec.get("append", {}), *spec.get("reserved", {})]
    found += [binding["key"] for binding in spec.get("bind", {}).values()]
    return [*found, *spec.get("topology", {}).values()]


def left_open(context: Context) -> list[str]:
    """Keys that the command had to set and did not: whatever an experiment says there is no change."""
    keys = context.release.keys.values()
    return [key.name for key in keys if key.required and not key.add and key.name not in context.own]


def has_place(name: str, context: Context) -> bool:
    """Whether config.yaml can hold a key that was added: it is known, or lies in a mapping that takes any."""
    composed = context.release.composed
    above = [name[:at] for at, sign in enumerate(name) if sign == "."]
    free = composed is not None and any(branch in composed.free for branch in above)
    any_key = composed is not None and composed.open
    return any_key or name in context.release.keys or free or ancestor(name, context.release.keys) is not None


def location_text(value: Json) -> str:
    """Places as the flags take them."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


@dataclass(slots=True)
class Named:
    """What becomes of the files that settings name. `copied` come along (name -> place), `places` are the
    settings that get a full path instead, `left` are keys whose file stays behind; both with the reason."""

    copied: dict[str, Path] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)


def named_files(config: Mapping[str, Json]) -> Named:
    """The files that settings name, seen from the working directory: an experiment brings the small ones
    below it along, and names others by their full path."""
    found = Named()
    here = Path.cwd().resolve()
    for key, value in config.items():
        if not isinstance(value, str) or "\0" in value or os.path.isabs(value):
            continue
        name = os.path.normpath(value)
        path = Path(name)
        if not os.path.lexists(path):
            continue
        if name in OURS or (name.startswith("..") and value.startswith(".")):
            found.places[key] = os.path.abspath(value)
        elif not os.path.splitext(value)[1] or not (path.is_file() or path.is_symlink()):
            continue
        elif not path.exists():
            found.left[key] = f"{value} is a link to nothing"
        elif not path.resolve().is_relative_to(here):
            found.left[key] = f"{value} is a link that leaves the working directory"
        elif path.stat().st_size > MAX_COPIED:
            found.left[key] = f"{value} is larger than {MAX_COPIED >> 20} MiB"
        elif not os.access(path, os.R_OK):
            found.left[key] = f"{value} cannot be read"
        else:
            found.copied[name] = path.absolute()
    return found


def choices(context: Context) -> dict[str, Json]:
    """Which files make up the configuration, and what is taken out of it."""
    composed = context.release.composed
    chosen = dict(composed.chosen) if composed else {}
    found: dict[str, Json] = {}
    if CONFIG in chosen:
        found["config"] = chosen.pop(CONFIG)
    if chosen:
        found["groups"] = chosen
    if context.request.native.get("delete"):
        found["delete"] = list(context.request.native["delete"])
    return found


def environment(
    run: Invocation, method: Method, given: Mapping[str, str]
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """(the variables that the command sets, what is left of them with the reason)."""
    ours = method.spec.get("launch", {}).get("env", {})
    kept: dict[str, str] = {}
    left: list[tuple[str, str]] = []
    for name, value in run.env.items():
        if name in ours:
            left.append((name, "Tuneport sets this variable"))
        elif name in _MACHINE or (name in given and given[name] == value):
            continue
        elif is_secret(name):
            left.append((name, ADVICE))
        elif open_(value):
            left.append((name, "its value is known only where the script runs"))
        else:
            kept[name] = str(value)
    return kept, left


def yaml_text(title: str, tree: Mapping[str, Json]) -> str:
    """YAML in the order given, with a comment on top."""
    import yaml

    head = "".join(f"# {line}\n" for line in title.splitlines())
    body = yaml.dump(
        tree, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=100, default_flow_style=False
    )
    return head + (body if tree else "")


def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is yaml's
            return True

    def sequence(dumper: Any, items: list[Json]) -> Any:
        flat = not any(isinstance(item, dict | list) for item in items)
        return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=flat)

    Dumper.add_representer(list, sequence)
    return Dumper
