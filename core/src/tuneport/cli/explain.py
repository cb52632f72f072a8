"""`tp explain`."""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Iterable, Mapping

import click

from tuneport.cli.options import experiment_argument, request_flags
from tuneport.cli.output import data, json_option, print_json, printable, table
from tuneport.errors import Invalid, NotFound, UsageError
from tuneport.experiment.request import Flags
from tuneport.text import closest
from tuneport.types import Json, Ref


@click.command("explain")
@experiment_argument
@click.argument("key", default=None, required=False)
@request_flags
@json_option
def command(experiment: str, key: str | None, flags: Flags, as_json: bool) -> None:
    """Say where KEY of EXPERIMENT gets its value, layer by layer; or what a method is.

    A method is named FRAMEWORK/METHOD; with a parameter's name as KEY, what that parameter's values mean.
    """
    if key == "":
        raise UsageError(
            "KEY is empty", code="usage", hint=f"leave it out: tp explain {shlex.quote(experiment)}"
        )
    if not _is_method(experiment):
        _key(experiment, key or "", flags, as_json)
        return
    _only_version(experiment, flags)
    if key:
        _parameter(experiment, key, flags.framework_version, as_json)
    else:
        _method(experiment, flags.framework_version, as_json)


def _only_version(method_id: str, flags: Flags) -> None:
    """Refuse what belongs to a request: a method has none."""
    given = next((name for name in flags._fields if name != "framework_version" and getattr(flags, name)), "")
    if given:
        flag = "--set" if given == "sets" else f"--{given.replace('_', '-')}"
        message = f"{flag} belongs to an experiment, and {method_id} is a method"
        raise UsageError(message, code="usage", hint="leave it out, or name an experiment")


def _is_method(name: str) -> bool:
    """Whether a name with a slash is a method's and no path to an experiment."""
    return "/" in name and not name.startswith((".", "/")) and not os.path.isdir(name)


def _methods_like(name: str) -> list[str]:
    """The methods that somebody may mean who names a framework, or a method without one."""
    from tuneport.registry import catalog

    found = [row[0] for row in catalog.methods()]
    return [method for method in found if name in method.split("/")]


def _key(experiment: str, key: str, flags: Flags, as_json: bool) -> None:
    from tuneport import workflow

    try:
        report = workflow.validate(experiment, flags)
    except NotFound as error:
        meant = _methods_like(experiment)
        if not meant:
            raise
        message = f"{experiment} is neither an experiment here nor a method"
        hint = f"methods are named FRAMEWORK/METHOD: {', '.join(meant)}"
        raise NotFound(message, code="experiment-missing", hint=hint) from error
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


def _method(method_id: str, version: str, as_json: bool) -> None:
    from tuneport.registry import catalog

    method = catalog.method(method_id, version)
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
        "papers": [*spec.get("papers", ()), *framework.get("papers", ())],
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
    if document["starts_from"]:
        data(f"  starts from: {', '.join(document['starts_from'])}")
    for key, value in document["identity"].items():
        data(f"  pins {key} = {_text(value)}")
    told = document["explain"]
    for name in ("problem", "words"):
        if name in told:
            data("\n" + _filled(told[name], "  "))
    _listed("formula", told.get("formula", ()))
    symbols = told.get("symbols", ())
    own = {symbol["file"] for symbol in symbols} <= set(catalog.templates(method_id))
    _listed("in what tp new writes" if own else "in the release", map(_symbol, symbols))
    _listed("papers", map(_paper, document["papers"]))
    watch = told.get("watch", {})
    metrics = [*primary, *(name for name in watch if name not in primary)]
    _listed("watch", (f"{name}: {watch[name]}" if name in watch else name for name in metrics))
    _listed("when it goes wrong", told.get("failures", ()))
    offered = [name for name in told.get("options", {}) if name in method.params]
    _listed("choices", (f"tp explain {method_id} {name}" for name in offered))
    _listed("next", (f"tp explain {name}" for name in told.get("next", ())))


def _parameter(method_id: str, name: str, version: str, as_json: bool) -> None:
    from tuneport.experiment.values import closest_parameter, describe
    from tuneport.registry import catalog, vocabulary

    method = catalog.method(method_id, version)
    if name not in method.params:
        owner = next((param.name for param in method.params.values() if name in param.keys), "")
        close = closest_parameter(name, method)
        hint = f"did you mean {close!r}?" if close else f"`tp methods {method_id}` lists them"
        if owner:
            hint = f"it is a native key, which the parameter {owner} writes: tp explain {method_id} {owner}"
        raise NotFound(f"{method_id} has no parameter {name!r}", code="param-unknown", hint=hint)
    param = method.params[name]
    word = vocabulary.words().get(name, {})
    options = method.spec.get("explain", {}).get("options", {}).get(name, {})
    if as_json:
        document = {"method": method_id, "parameter": name, "meaning": word.get("meaning", "")}
        shown = {"schema": dict(param.schema), "keys": list(param.keys), "options": options}
        print_json({"ok": True, **document, **shown})
        return
    data(f"{name}: {word.get('meaning', '')}".rstrip(": "))
    data(f"  values: {describe(param)}\n  native key: {', '.join(param.keys)}")
    for value, told in options.items():
        data(f"\n  {value}\n" + _filled(told["words"], "    "))
        for line in (*told.get("formula", ()), *map(_symbol, told.get("symbols", ()))):
            data(_filled(line, "      "))
        for paper in told.get("papers", ()):
            data(_filled(_paper(paper), "      "))


def _listed(title: str, lines: Iterable[str]) -> None:
    """A heading and what is below it; nothing where there is nothing."""
    shown = [_filled(line, "    ", "      ") for line in lines]
    if shown:
        data("\n".join((f"\n  {title}:", *shown)))


def _filled(text: str, indent: str, further: str = "") -> str:
    return textwrap.fill(
        text, 100, initial_indent=indent, subsequent_indent=further or indent, break_on_hyphens=False
    )


def _symbol(item: Mapping[str, str]) -> str:
    return f"{item['file']}, {item['symbol']}"


def _paper(item: Mapping[str, Json]) -> str:
    where = f"arXiv:{item['arxiv']}" if "arxiv" in item else item.get("url", "")
    return f"{item['title']} ({item['year']})" + (f", {where}" if where else "")
