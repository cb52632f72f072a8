"""From what was written and asked to the effective configuration, its findings and the launch plan.

Pure: the facts have been gathered, the catalog has been read; the same input gives the same output.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tuneport.checks import columns, composed, ownership, rules, sections, surface
from tuneport.checks import request as request_checks
from tuneport.compiler import convert
from tuneport.compiler.adapter import native_value
from tuneport.compiler.layers import NATIVE_LAYERS, Layers, from_document
from tuneport.compiler.plan import ref_from_json
from tuneport.errors import TuneportError
from tuneport.experiment.findings import failed, ordered
from tuneport.experiment.yamlread import Document
from tuneport.registry.plugins import Hooks
from tuneport.types import (
    EMPTY,
    Context,
    Finding,
    Json,
    Key,
    LaunchPlan,
    Method,
    Origin,
    Release,
    Request,
    Topology,
)

# Consumed by the platform: no framework ever sees these keys of config.yaml.
CONSUMED = frozenset({"data.train.dataset", "data.validation.dataset"})


class Inputs(NamedTuple):
    """Everything the compilation may depend on. `today` (YYYY-MM-DD) decides findings alone, not the plan."""

    method: Method
    release: Release
    config: Document
    request: Request
    topology: Topology
    facts: Mapping[str, Json]
    files: Mapping[str, str]
    rules: tuple[list[dict[str, Json]], list[dict[str, Json]]]
    param_origins: Mapping[str, str]
    appended: Mapping[str, tuple[Json, Origin]] = EMPTY
    today: str = ""


class Compiled(NamedTuple):
    """`plan` is None where a finding is an error or no hardware was named."""

    context: Context
    layers: Layers
    findings: tuple[Finding, ...]
    undecided: tuple[str, ...]
    plan: LaunchPlan | None


def compile_request(inputs: Inputs, hooks: Hooks, earlier: tuple[Finding, ...] = ()) -> Compiled:
    """Apply every layer, run every check, and launch where nothing is wrong.

    Args:
        earlier: findings about the files and the request; an error among them means no plan.
    """
    findings = list(earlier)
    context, layers, closed = _configured(inputs, hooks, findings)
    raw = {".".join(map(str, path)): text for path, text in inputs.config.raw.items()}
    findings += sections.check(context)
    judged = _judged(inputs.method, findings) | sections.owned(context)
    findings += surface.check(context, raw, judged, closed=closed)
    checks, inert = inputs.rules
    said, undecided = rules.apply(context, checks, inert)
    findings = [*composed.softened(context, findings, said), *said]
    findings += columns.check(context)
    findings += _hook_findings(hooks.validate, context)
    findings += _deprecation(context.release, inputs.today)

    plan = None
    if not failed(findings) and inputs.topology.pools:
        try:
            plan = hooks.launch(context)
        except TuneportError as error:
            more = getattr(error, "findings", ())
            findings += more or [Finding(error.code, "error", error.message, error.hint)]
    said = ordered(convert.once(findings, context))
    return Compiled(context, layers, tuple(said), tuple(undecided), plan)


def compile_aside(
    inputs: Inputs, hooks: Hooks, uses: Iterable[str], earlier: tuple[Finding, ...] = ()
) -> Compiled:
    """The configuration for a job about a trained model. What was written and asked is judged, and the
    policies are asked; whether the experiment could be trained so is not.

    Args:
        uses: what the job takes of model, train_data and validation_data.
    """
    context, layers, _ = _configured(inputs, hooks, [])
    found = [
        *earlier,
        *request_checks.check_aside(inputs.method, inputs.request, uses),
        *_hook_findings(hooks.permit, context),
    ]
    return Compiled(context, layers, tuple(ordered(found)), (), None)


def _configured(inputs: Inputs, hooks: Hooks, findings: list[Finding]) -> tuple[Context, Layers, bool]:
    """(the context with every layer applied, the layers, whether the surface is complete); what is wrong with
    the layers is added to `findings`."""
    release, closed = _with_script_surface(inputs, findings)
    layers = Layers(release.keys)
    user = _lower_layers(inputs, release, layers, findings)
    given = [name for name in inputs.method.spec.get("bind", {}) if getattr(inputs.request, name, None)]
    findings += ownership.check(inputs.method, user, layers.own, given)
    composes = release.composed is not None
    findings += request_checks.check(
        inputs.method, inputs.request, inputs.topology, inputs.files, composed=composes
    )
    context = _context(inputs, release, layers)
    findings += convert.check(context)

    bindings = hooks.bind_args(context)
    origins = {
        key: Origin(inputs.param_origins.get(name, "request"), "", 0)
        for name in inputs.request.params
        for key in inputs.method.params[name].keys
    }
    for key, value in bindings.values.items():
        layers.set(key, value, origins.get(key, bindings.origin))
    if inputs.topology.pools:
        bound = hooks.topology(_context(inputs, release, layers))
        layers.update(bound.values, bound.origin)
    _platform_layers(inputs.method, layers)
    return _settled(_context(inputs, release, layers)), layers, closed


def _lower_layers(
    inputs: Inputs, release: Release, layers: Layers, findings: list[Finding]
) -> dict[str, Origin]:
    """Identity, method defaults and config.yaml; the keys that the user set are returned."""
    method = inputs.method
    layers.update(method.spec.get("identity", {}), Origin("identity", method.id))
    layers.update(method.spec.get("defaults", {}), Origin("method defaults", method.id))
    for param in method.params.values():
        if param.has_default:
            value = native_value(param, param.default)
            layers.update(dict.fromkeys(param.keys, value), Origin("method defaults", method.id))
    user: dict[str, Origin] = {}
    chosen = release.composed.chosen if release.composed else {}
    for name, value, origin in from_document(inputs.config, release.keys, CONSUMED):
        if name in chosen and name not in release.keys:
            continue  # it chose what the keys are; it is none itself
        place = (name, origin.file, origin.line)
        if name in user:
            message = f"`{name}` is written both nested and dotted (first on line {user[name].line})"
            findings.append(Finding("yaml-duplicate-key", "error", message, "delete one of them", *place))
        if not _finite(value):
            message = f"`{name}` holds an infinity or NaN, which no plan can carry"
            findings.append(Finding("key-not-finite", "error", message, "write a large number", *place))
        layers.set(name, value, origin)
        user[name] = origin
    for name, (value, origin) in inputs.appended.items():
        layers.set(name, value, origin)
        user[name] = origin
    layers.drop(inputs.request.native.get("delete", ()))
    return user


def _finite(value: Json) -> bool:
    if isinstance(value, dict | list):
        return all(map(_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or abs(value) <= sys.float_info.max


def _platform_layers(method: Method, layers: Layers) -> None:
    origin = Origin("platform")
    for key, value in method.spec.get("platform", {}).items():
        layers.set(key, ref_from_json(value) if isinstance(value, dict) and "ref" in value else value, origin)
    for key, items in method.spec.get("append", {}).items():
        present = layers.own.get(key)
        if isinstance(present, dict):
            continue  # of the wrong type, which the surface says
        kept = present if isinstance(present, list) else [] if present is None else [present]
        kept = [item for item in kept if item != "none"]
        layers.set(key, [*kept, *(item for item in items if item not in kept)], origin)


def _context(inputs: Inputs, release: Release, layers: Layers) -> Context:
    return Context(
        method=inputs.method,
        release=release,
        request=inputs.request,
        topology=inputs.topology,
        facts=inputs.facts,
        config=layers.effective(),
        own=dict(layers.own),
        origins=dict(layers.origins),
        files=inputs.files,
    )


def _settled(context: Context) -> Context:
    """The context with interpolations resolved, where the release has them."""
    if context.release.composed is None:
        return context
    from tuneport.dialects.hydra.interpolate import resolved

    absent = {name for name, key in context.release.keys.items() if key.add and name not in context.own}
    literal = {name for name, origin in context.origins.items() if origin.layer not in NATIVE_LAYERS}
    env = {**context.facts.get("env", {}), **context.request.env}
    own = context.release.composed.resolvers
    return context._replace(config=resolved(context.config, literal, env, absent, own))


def _with_script_surface(inputs: Inputs, findings: list[Finding]) -> tuple[Release, bool]:
    """The release with the keys of the experiment's own script where the method says that is its surface;
    and whether that surface is complete enough for an unknown key to be an error."""
    script = inputs.method.spec.get("surface", {}).get("script")
    if not script:
        return inputs.release, True
    read = inputs.facts.get("scripts", {}).get(script)
    declared = {key: Key(key, ("any",)) for param in inputs.method.params.values() for key in param.keys}
    if read is None or not read.get("ok"):
        if read is not None:
            message = f"{script} cannot be read: {read.get('error', '')}"
            findings.append(
                Finding("script-syntax", "error", message, "", script, script, read.get("error_line", 0))
            )
        return inputs.release._replace(keys=declared), False
    keys = {
        name: Key(
            name,
            tuple(flag["types"]),
            flag.get("default"),
            bool(flag.get("required")),
            tuple(flag.get("choices") or ()),
            f"{script}:{flag['line']}",
        )
        for name, flag in read["flags"].items()
    }
    complete = bool(read["complete"] and read["strict"])
    return inputs.release._replace(keys=keys if complete else {**declared, **keys}), complete


def _judged(method: Method, findings: list[Finding]) -> set[str]:
    """Native keys that a finding speaks of already, under their own name or their flag's."""
    bind = method.spec.get("bind", {})
    flags = {f"--{name.replace('_', '-')}": binding["key"] for name, binding in bind.items()}
    return {flags.get(finding.key, finding.key) for finding in findings if finding.key}


def _hook_findings(ask: Callable[[Context], list[Finding]], context: Context) -> list[Finding]:
    try:
        return ask(context)
    except TuneportError as error:
        return [Finding(error.code, "error", error.message, error.hint)]


def _deprecation(release: Release, today: str) -> list[Finding]:
    """What the calendar says of a release. What upstream published runs on, so none of it is an error."""
    since, sunset = (str(release.spec.get(name, "")) for name in ("deprecated", "sunset"))
    old = release.spec.get("status", "supported") != "supported" or bool(since and since <= today)
    what = f"{release.framework} {release.version}"
    hint = "`tp recipe upgrade EXP --framework-version V` moves to another release"
    if sunset and sunset <= today:
        message = f"{what} reached its end on {sunset}: nothing here is proved with it any more"
        return [Finding("release-sunset", "warning", message, hint)]
    ends = f" and ends on {sunset}" if sunset else ""
    if old:
        return [Finding("release-deprecated", "warning", f"{what} is deprecated{ends}", hint)]
    if since:
        return [Finding("release-deprecated", "note", f"{what} will be deprecated on {since}{ends}", hint)]
    return [Finding("release-deprecated", "note", f"{what} ends on {sunset}", hint)] if sunset else []
