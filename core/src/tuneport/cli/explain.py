"""`tp explain`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import click

from tuneport.cli.options import experiment_argument, request_flags
from tuneport.cli.output import data, json_option, print_json, printable, table
from tuneport.errors import Invalid, NotFound
from tuneport.experiment.request import Flags
from tuneport.text import closest
from tuneport.types import Json, Ref


@click.command("explain")
@experiment_argument
@click.argument("key", default="")
@request_flags
@json_option
def command(experiment: str, key: str, flags: Flags, as_json: bool) -> None:
    """Say where KEY of EXPERIMENT gets its value, layer by layer; or what a method (FRAMEWORK/METHOD) is."""
    if not key and "/" in experiment and not experiment.startswith((".", "/")):
        _method(experiment, as_json)
    else:
        _key(experiment, key, flags, as_json)


def _key(experiment: str, key: str, flags: Flags, as_json: bool) -> None:
    from tuneport import workflow

    report = workflow.validate(experiment, flags)
    if report.compiled is None:
        raise Invalid(f"{experiment} cannot be read", code="invalid", findings=report.findings)
    layers, context = report.compiled.layers, report.compiled.context
    if not key:
        keys = sorted(context.own)
    else:
        param = context.method.params.get(key)
        keys = list(param.keys) if param else [key]
    chains = {name: layers.chain(name) for name in keys}
    empty = [name for name, chain in chains.items() if not chain and name not in context.release.keys]
    if empty:
        close = closest(empty[0], [*context.release.keys, *context.own])
        hint = f"did you mean {close!r}?" if close else ""
        raise NotFound(
            f"nothing sets {empty[0]!r} and the release has no such key", code="key-unknown", hint=hint
        )
    if as_json:
        shown = {
            name: [
                {"layer": origin.layer, "file": origin.file, "line": origin.line, "value": _json(value)}
                for origin, value in chain
            ]
            for name, chain in chains.items()
        }
        print_json({"ok": True, "keys": shown})
        return
    for name, chain in chains.items():
        data(printable(name))
        rows = []
        for number, (origin, value) in enumerate(reversed(chain)):
            place = f"{origin.file}:{origin.line}" if origin.line else origin.file
            rows.append(["  =" if number == 0 else "   ", _text(value), origin.layer, place])
        data(table(rows) if rows else "   required, and nothing sets it")


def _json(value: Json) -> Json:
    from tuneport.compiler.plan import ref_to_json

    return ref_to_json(value) if isinstance(value, Ref) else value


def _text(value: Json) -> str:
    import json

    return (
        f"<{value.ref}>{value.suffix}"
        if isinstance(value, Ref)
        else json.dumps(value, ensure_ascii=False, default=str)
    )


def _method(method_id: str, as_json: bool) -> None:
    from tuneport.registry import catalog

    method = catalog.method(method_id)
    spec, framework = method.spec, catalog.framework_spec(method.framework)
    primary, aliases = catalog.metric_aliases(method_id)
    document = {
        "method": method_id,
        "title": method.title,
        "summary": spec.get("summary", ""),
        "framework": framework.get("title", ""),
        "homepage": framework.get("homepage", ""),
        "starts_from": list(spec.get("starts_from", ())),
        "identity": dict(spec.get("identity", {})),
        "papers": list(spec.get("papers", ())),
        "explain": dict(spec.get("explain", {})),
        "entry": spec.get("entry", "") or spec.get("surface", {}).get("script", ""),
        "metrics": {"primary": primary, "aliases": aliases},
    }
    if as_json:
        print_json({"ok": True, **document})
        return
    data(f"{method_id}: {method.title}\n  {document['summary']}")
    for name in ("framework", "homepage", "entry"):
        if document[name]:
            data(f"  {name}: {document[name]}")
    for name in ("starts_from", "papers"):
        if document[name]:
            data(f"  {name.replace('_', ' ')}: {', '.join(document[name])}")
    for key, value in document["identity"].items():
        data(f"  pins {key} = {_text(value)}")
    _told(document["explain"])
    watch = document["explain"].get("watch", {})
    for name in primary:
        data(f"  watch {name}" + (f": {watch[name]}" if name in watch else ""))


def _told(told: Mapping[str, Json]) -> None:
    """What a method says about itself: the problem, the idea, the formula, where it is, what to read next."""
    for name in ("problem", "words"):
        if name in told:
            data("\n" + textwrap.fill(told[name], 100, initial_indent="  ", subsequent_indent="  "))
    for title, name in (("formula", "formula"), ("in the release", "source"), ("next", "next")):
        if name in told:
            data(f"\n  {title}:")
            data("\n".join(f"    {line}" for line in told[name]))
    if told:
        data("")
