"""Checks an existing command line: which method it is, what it sets, and what is wrong with that.

It goes through the same checks as an experiment. What the platform would write itself may of course be
written here, so nobody's ownership is judged.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tuneport.checks import rules as rules_module
from tuneport.checks import surface
from tuneport.compiler.adapter import native_value
from tuneport.compiler.layers import Layers
from tuneport.dialects.hydra.interpolate import resolved
from tuneport.dialects.hydra.read import Applied, apply, choices, take_apart
from tuneport.dialects.hydra.surface import tree_of
from tuneport.errors import Invalid, NotFound, TuneportError
from tuneport.experiment import command_line
from tuneport.experiment import facts as facts_module
from tuneport.experiment.command_line import Invocation
from tuneport.experiment.findings import ordered
from tuneport.registry import catalog
from tuneport.types import (
    Context,
    Finding,
    Json,
    Location,
    Method,
    Origin,
    Pool,
    Release,
    Request,
    Topology,
)

NOWHERE = Path(os.devnull)  # a command has no experiment folder
COMMAND = Origin("command line")
ADDED = Origin("native.append")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known beside the command itself."""

    framework: str = ""
    version: str = ""
    method: str = ""
    nodes: int = 0
    gpus_per_node: int = 0
    facts: Mapping[str, Json] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checked:
    """What a command is and what was found in it. `method` is empty where it is none that is known."""

    framework: str
    release: str
    entry: str
    method: str
    findings: tuple[Finding, ...]
    undecided: tuple[str, ...]
    context: Context


def check(words: Sequence[str], asked: Asked) -> Checked:
    """Findings for a command, given as the words that a shell would hand to the operating system.

    Raises:
        Invalid: it is no command that can be checked. NotFound: no framework here has its entry point.
    """
    run = command_line.take_apart(words)
    return check_arguments(run, asked)


def check_arguments(run: Invocation, asked: Asked) -> Checked:
    """Findings for a program and its arguments; see `check`."""
    framework, entry = _entry(run, asked)
    version = asked.version or catalog.default_release(framework)
    findings: list[Finding] = []
    parsed = take_apart(run.arguments)
    findings += parsed.findings
    path = parsed.flags.get("config_path", "")
    if "config_dir" in parsed.flags or (path and path.strip("./") not in ("config", "")):
        message = "the command reads configuration files of its own, which are not judged here"
        findings.append(Finding("config-foreign", "note", message, "", "--config-path"))
    tree = tree_of(catalog.surface(framework, version), entry)
    wanted, overrides, found = choices(parsed, tree)
    findings += found
    try:
        release = catalog.release(framework, version, entry, wanted)
    except Invalid as error:
        if not error.findings:
            raise
        # What the other words do depends on the files that they meet: nothing fair can be said of them.
        findings += error.findings
        release = catalog.release(framework, version, entry)
        return _unjudged(framework, release, entry, findings)
    applied = apply(overrides, release.keys)
    findings += applied.findings
    env = {**asked.env, **run.env}
    return _judge(framework, release, entry, run, asked, applied, findings, env)


def _unjudged(framework: str, release: Release, entry: str, findings: list[Finding]) -> Checked:
    method = Method(framework, framework, "", {}, {}, "")
    context = Context(method, release, Request(), Topology(()), {}, {}, {}, {}, {}, linted=True)
    return Checked(framework, release.version, entry, "", tuple(ordered(findings)), (), context)


def _judge(
    framework: str,
    release: Release,
    entry: str,
    run: Invocation,
    asked: Asked,
    applied: Applied,
    findings: list[Finding],
    env: dict[str, str],
) -> Checked:
    layers = Layers(release.keys)
    for name, value in applied.own.items():
        layers.set(name, value, ADDED if name in applied.added else COMMAND)
    layers.drop(applied.deleted)
    absent = {name for name, key in release.keys.items() if key.add and name not in layers.own}
    config = resolved(layers.effective(), (), {**asked.facts.get("env", {}), **env}, absent)
    method = _method(framework, release.version, entry, asked.method, config)
    request = _request(method, layers.own, config, env, applied.deleted)
    facts, seen = facts_module.gather(request, NOWHERE, asked.facts, [])
    context = Context(
        method=method,
        release=release,
        request=request,
        topology=_topology(method, run, asked, layers.own),
        facts=facts,
        config=config,
        own=dict(layers.own),
        origins=dict(layers.origins),
        files={},
        linted=True,
    )
    judged = {finding.key for finding in findings if finding.severity == "error"}
    findings += [finding for finding in seen if finding.code not in ("data-not-here", "model-not-here")]
    findings += surface.check(context, {}, judged)
    undecided: list[str] = []
    if method.spec:
        checks, inert = catalog.rules(framework, release.version, method.spec.get("rules", []))
        said, undecided = rules_module.apply(context, checks, inert)
        findings += said
        findings += _hook_findings(context)
    name = "" if method.id == framework else method.id
    return Checked(
        framework, release.version, entry, name, tuple(ordered(findings)), tuple(undecided), context
    )


def _entry(run: Invocation, asked: Asked) -> tuple[str, str]:
    """(framework, entry point) of a program."""
    for framework in [asked.framework] if asked.framework else catalog.frameworks():
        version = asked.version or catalog.default_release(framework)
        try:
            entries = catalog.surface(framework, version).get("entries", {})
        except TuneportError:
            if asked.framework:
                raise
            continue
        for name, item in entries.items():
            file = name.replace(".", "/") + ".py"
            called = run.module.endswith("/" + file) or run.module == file
            if "config" in item and (name == run.module if not run.is_file else called):
                return framework, name
    known = f" of {asked.framework}" if asked.framework else ""
    raise NotFound(
        f"no entry point{known} is called {run.module!r}",
        code="entry-unknown",
        hint="--framework-version names the release; its entry points are in `tp methods`",
    )


def _method(framework: str, version: str, entry: str, wanted: str, config: Mapping[str, Json]) -> Method:
    """The method that a command runs: the one whose identity holds, the one that pins most first. Where
    none does, one of the same entry point is borrowed for its rules, without its identity."""
    if wanted:
        return catalog.method(wanted, version)
    best: tuple[int, Method] | None = None
    spare: Method | None = None
    for method in _candidates(framework, version, entry):
        identity = method.spec.get("identity", {})
        if all(config.get(key) == value for key, value in identity.items()):
            if best is None or len(identity) > best[0]:
                best = (len(identity), method)
        elif spare is None:
            spare = method
    if best is not None:
        return best[1]
    if spare is not None:
        others = [method.spec.get("rules", ()) for method in _candidates(framework, version, entry)]
        shared = [topic for topic in spare.spec.get("rules", ()) if all(topic in rules for rules in others)]
        return replace(spare, id=framework, spec={**spare.spec, "identity": {}, "rules": shared})
    return Method(framework, framework, "", {}, {}, "")


@lru_cache(maxsize=64)
def _candidates(framework: str, version: str, entry: str) -> tuple[Method, ...]:
    """The methods that an entry point can run."""
    names = [name for name, _, problem in catalog.methods(framework) if not problem]
    found = [catalog.method(name, version) for name in names]
    return tuple(m for m in found if entry in (m.spec.get("entry"), *m.spec.get("entries", ())))


def _request(
    method: Method,
    own: Mapping[str, Json],
    config: Mapping[str, Json],
    env: Mapping[str, str],
    deleted: list[str],
) -> Request:
    """The request that would have led to these settings."""
    found: dict[str, Location | None] = {}
    for flag, binding in method.spec.get("bind", {}).items():
        value = config.get(binding["key"])
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, str) and value and binding["key"] in own:
            here = os.path.exists(value) or value.startswith("/")
            found[flag] = Location("path", os.path.abspath(value)) if here else Location("hub", value)
    params: dict[str, Json] = {}
    for name, param in method.params.items():
        if any(key in own for key in param.keys):
            value = config.get(param.keys[0])
            back = {str(native_value(param, word)): word for word in param.schema.get("enum", ())}
            params[name] = back.get(str(value), value)
    return Request(
        model=found.get("model"),
        train_data=found.get("train_data"),
        validation_data=found.get("validation_data"),
        params=params,
        env=env,
        native={"delete": deleted},
    )


def _topology(method: Method, run: Invocation, asked: Asked, own: Mapping[str, Json]) -> Topology:
    """Hardware: what was said beside the command, then its launcher, then its own settings. The release's
    defaults say nothing about the machines that somebody has."""
    declared = asked.facts.get("topology", {})
    launched = method.spec.get("launch", {}).get("launcher", "none") != "none"
    keys = {} if launched else method.spec.get("topology", {})

    def number(*candidates: Any) -> int:
        return next((n for n in candidates if isinstance(n, int) and not isinstance(n, bool) and n > 0), 0)

    nodes = number(asked.nodes, declared.get("nodes"), run.nodes, own.get(keys.get("nodes", "")))
    gpus = number(
        asked.gpus_per_node,
        declared.get("gpus_per_node"),
        run.per_node,
        own.get(keys.get("gpus_per_node", "")),
    )
    if not gpus:
        return Topology(())
    return Topology((Pool("main", str(declared.get("series", "gpu")), nodes or 1, gpus),), {})


def _hook_findings(context: Context) -> list[Finding]:
    from tuneport.registry.plugins import Hooks

    try:
        return list(Hooks(context.method.framework, []).validate(context))
    except TuneportError as error:
        return [Finding(error.code, "error", error.message, error.hint)]
