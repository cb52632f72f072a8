"""Applies a method's rules and inert entries to an effective configuration."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tuneport.checks.cel import Rules, Undecided
from tuneport.checks.undecided import touches
from tuneport.types import Context, Finding, Json, Location, Pool

Rule = Mapping[str, Json]


def variables(context: Context) -> dict[str, Json]:
    """What an expression may name; see docs/manifests.md, "Expressions"."""
    request, facts, pool = context.request, context.facts, _leading(context)
    topology: dict[str, Json] = {}
    if pool is not None:
        gpus = 0 if pool.series == "cpu" else pool.nodes * pool.gpus_per_node
        topology = {
            **facts.get("topology", {}),
            "nodes": pool.nodes,
            "gpus_per_node": pool.gpus_per_node,
            "gpus": gpus,
            "processes": pool.nodes * pool.gpus_per_node,
            "series": pool.series,
            "pools": len(context.topology.pools),
        }
    return {
        "cfg": nested(_settings(context)),
        "own": sorted(context.own),
        "params": dict(request.params),
        "topology": topology,
        "data": facts.get("data", {}),
        "model": facts.get("model", {}),
        "teacher": facts.get("teacher", {}),
        "env": {**facts.get("env", {}), **request.env},
        "files": sorted(context.files),
        "request": {
            "linted": context.linted,
            "method": context.method.id,
            "image": request.image,
            "fleet": request.fleet,
            "model": _text(request.model),
            "train_data": _text(request.train_data),
            "validation_data": _text(request.validation_data),
        },
    }


def _settings(context: Context) -> Mapping[str, Json]:
    """The effective configuration without the names under which groups of settings are chosen: such a name
    would hide what its group holds."""
    composed, config = context.release.composed, context.config
    groups = composed.groups if composed else ()
    chosen = [name for name in groups if isinstance(context.own.get(name), str)]
    hiding = {name for name in chosen if any(key.startswith(f"{name}.") for key in config)}
    return {key: value for key, value in config.items() if key not in hiding} if hiding else config


def _text(location: Location | None) -> str:
    """A location as an expression has it, empty only where none was given: the whole of a dataset version or
    of a job's output is called by its name."""
    return location.value or location.owner if location is not None else ""


def _leading(context: Context) -> Pool | None:
    """The pool that the method's first role is on: what a rule calls the hardware."""
    roles, pools = context.method.spec.get("roles", ()), context.topology.pools
    name = context.topology.roles.get(roles[0]) if roles else None
    return next((pool for pool in pools if pool.name == name), pools[0] if pools else None)


def nested(flat: Mapping[str, Json]) -> dict[str, Json]:
    """Dotted keys as a tree. A key below another key's plain value stays under its dotted name."""
    tree: dict[str, Json] = {}
    known: dict[str, dict[str, Json]] = {"": tree}  # branches met so far, by their dotted name
    for key, value in flat.items():
        parent, _, last = key.rpartition(".")
        here = known.get(parent)
        if here is None:
            here = _branch(tree, parent)
            if here is None:
                here, last = tree, key
            else:
                known[parent] = here
        if isinstance(value, dict):
            before = here.get(last)
            value = _mine(value)
            if isinstance(before, dict):
                value, known = {**value, **before}, {"": tree}  # what was known below is another's now
            here[last] = value
        else:
            if isinstance(here.get(last), dict):
                known = {"": tree}
            here[last] = value
    return tree


def _branch(tree: dict[str, Json], name: str) -> dict[str, Json] | None:
    """The mapping of a dotted name, made where it is not there; None where a plain value is in its way."""
    here = tree
    for part in name.split("."):
        below = here.setdefault(part, {})
        if not isinstance(below, dict):
            return None
        here = below
    return here


def _mine(value: Json) -> Json:
    """A mapping that keys below it may be written into without touching the one that was given."""
    return {name: _mine(item) for name, item in value.items()} if isinstance(value, dict) else value


def apply(
    context: Context,
    checks: Sequence[Rule],
    inert: Sequence[Rule],
    unknown: Collection[str] = (),
    more: Collection[str] = (),
) -> tuple[list[Finding], list[str]]:
    """(findings, what could not be decided). A rule is silent where its `when` is not true.

    Args:
        unknown: keys whose value nobody knows; a rule that reads one is not decided.
        more: other variables of expressions of which that is true.
    """
    if not checks and not inert:
        return [], []
    asked = (*checks, *inert)
    sources = tuple(rule[part] for rule in asked for part in ("when", "require", "unless") if part in rule)
    engine = Rules(variables(context), sources)
    findings, undecided = [], []
    open_ = unknown or more
    for rule in checks:
        if open_ and touches(_sources(rule), unknown, more):
            undecided.append(f"{rule['code']}: it reads a setting that is not known")
            continue
        try:
            if "when" in rule and not engine.holds(rule["when"]):
                continue
            if engine.holds(rule["require"]):
                continue
        except Undecided as reason:
            undecided.append(f"{rule['code']}: {reason}")
            continue
        findings.append(_finding(context, engine, rule, rule["code"], rule["severity"]))
    said = set()
    for rule in inert:
        keys = [key for key in _covered(rule, context) if key not in said]
        if not keys or (open_ and touches(_sources(rule), unknown, more)):
            continue
        try:
            if engine.holds(rule["unless"]):
                continue
        except Undecided as reason:
            undecided.append(f"{rule.get('code', 'inert-key')} {rule['key']}: {reason}")
            continue
        said.update(keys)  # of several reasons why a key does nothing, the first is enough
        code = rule.get("code", "inert-key")
        findings += [_finding(context, engine, {**rule, "key": key}, code, "warning") for key in keys]
    return findings, undecided


def _sources(rule: Rule) -> list[str]:
    return [rule[part] for part in ("when", "require", "unless") if part in rule]


def _covered(rule: Rule, context: Context) -> Iterator[str]:
    """The keys that somebody set and an inert entry speaks of: one, or with `.*` all of a section."""
    name: str = rule["key"]
    section = name.removesuffix("*") if name.endswith(".*") else ""
    for key in [key for key in context.own if key.startswith(section)] if section else [name]:
        holder = _holder(context, key)
        if holder and key not in rule.get("except", ()) and _asked(context, holder):
            yield key


def _holder(context: Context, key: str) -> str:
    """The key that was set: the one that is meant, or one whose mapping has it inside; empty where none."""
    if key in context.own:
        return key
    above, _, last = key.rpartition(".")
    inside = context.own.get(above)
    return above if isinstance(inside, dict) and last in inside else ""


def _asked(context: Context, key: str) -> bool:
    """Whether a person set the key: a default that happens to be inert is nobody's mistake."""
    return context.origins[key].layer not in _QUIET


_QUIET = ("method defaults", "identity", "platform", "topology")


def _finding(context: Context, engine: Rules, rule: Rule, code: str, severity: str) -> Finding:
    key = rule.get("key", "")
    origin = context.origins.get(key) or context.origins.get(key.rpartition(".")[0])
    name = _as_asked(context, key)
    message = engine.fill(rule["say"])
    if code == "inert-key":
        message = f"`{name}` is set but {message}"
    return Finding(
        code,
        severity,  # type: ignore[arg-type] # the schema allows the three words only
        message,
        engine.fill(rule.get("hint", "")),
        name,
        origin.file if origin else "",
        origin.line if origin else 0,
        rule["source"],
    )


def _as_asked(context: Context, key: str) -> str:
    """A key by the name its author used: the parameter, where a parameter set it."""
    origin = context.origins.get(key)
    if origin is not None and origin.layer in ("--set", "job.yaml"):
        for name in context.request.params:
            param = context.method.params.get(name)
            if param is not None and key in param.keys:
                return name
    return key
