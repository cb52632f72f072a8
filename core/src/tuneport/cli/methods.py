"""`tp methods`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import click

from tuneport.cli.options import method_ids
from tuneport.cli.output import data, json_option, print_json, table, talk
from tuneport.types import Json

# What one may have to start from, as manifests say it, and what it is.
DATA = {
    "demonstrations": "answers, or whole conversations, that a model is to imitate",
    "pairs": "two answers to each prompt, and which of them is better",
    "good-bad-labels": "single answers, each marked good or bad",
    "verifiable-answers": "prompts whose answers a program can check",
    "rubric": "prompts, and written criteria by which a judge scores answers",
    "teacher": "prompts, and a stronger model to learn from",
    "labelled-images": "images with labels",
    "benchmark": "a model to measure, and tasks to measure it by",
    "own-trainer": "a training script of one's own",
}


@click.command("methods")
@click.argument("method", default="", metavar="[ID]", shell_complete=method_ids)
@click.option(
    "--data",
    "kind",
    metavar="KIND|FILE",
    default="",
    help="Those that start from such data, or read the rows of a file; `list` names the kinds.",
)
@click.option("--framework-version", metavar="V", default="", help="A release other than the default.")
@json_option
def command(method: str, kind: str, framework_version: str, as_json: bool) -> None:
    """List every method, those of a framework or of that name (ID is either), or one method's parameters.

    --data lists the methods for the data that one has, such as pairs, good-bad-labels or verifiable-answers.
    A file, or a folder that `datasets` saved, is looked into: listed is what reads its rows as they are, set
    up as `tp new` does.
    """
    if kind == "list":
        _kinds(as_json)
    elif kind and os.path.exists(kind):
        _for_file(method, kind, as_json)
    elif kind:
        _for_data(method, _kind(kind), as_json)
    elif "/" in method:
        _show(method, framework_version, as_json)
    else:
        _list(method, as_json)


def _kinds(as_json: bool) -> None:
    if as_json:
        print_json({"ok": True, "data": DATA})
    else:
        data(table([list(item) for item in DATA.items()]))


def _kind(text: str) -> str:
    """The kind of data that a person's words mean: "good/bad labels" are good-bad-labels."""
    from tuneport.errors import UsageError
    from tuneport.text import closest

    words = set(re.findall(r"[a-z]+", text.lower())) - {"with", "and", "or", "of", "a", "an", "my"}
    means = {kind: set(re.findall(r"[a-z]+", f"{kind} {says}")) for kind, says in DATA.items()}
    for known in ({kind: set(kind.split("-")) for kind in DATA}, means):
        found = [kind for kind, has in known.items() if words and words <= has]
        if len(found) == 1:
            return found[0]
    close = closest(text, DATA)
    hint = f"did you mean {close!r}?" if close else f"it may be {', '.join(DATA)}"
    raise UsageError(f"--data {text!r} is no kind of data", code="usage", hint=hint)


def _for_data(framework: str, kind: str, as_json: bool) -> None:
    """The methods that start from a kind of data, with what each does."""
    from tuneport.registry import catalog

    found = []
    for name, _, problem in catalog.methods(framework.partition("/")[0]):
        spec = {} if problem else catalog.resolved(*name.split("/"))
        if kind in spec.get("starts_from", ()):
            found.append((name, str(spec.get("summary") or spec.get("title", ""))))
    if as_json:
        print_json({"ok": True, "data": kind, "methods": [{"method": m, "summary": s} for m, s in found]})
    elif found:
        data(table([list(row) for row in found]))
    else:
        talk(f"no method here starts from {kind}: {DATA[kind]}")


def _for_file(framework: str, file: str, as_json: bool) -> None:
    """The methods that read the rows of a file as they are, set up as `tp new` does."""
    from tuneport.checks import fitting
    from tuneport.errors import UsageError
    from tuneport.experiment import tables

    facts = tables.read(Path(file))
    if not facts.get("columns"):
        hint = f"it may be one of {', '.join(tables.KINDS)}, or a folder that `datasets` saved"
        why = (
            f"line {facts['broken'][0]}: {facts['broken'][1]}"
            if "broken" in facts
            else facts.get("unseen", "")
        )
        raise UsageError(f"no rows are seen in {file}" + (f": {why}" if why else ""), code="usage", hint=hint)
    found = list(fitting.methods(framework.partition("/")[0], Path(file).absolute()))
    if as_json:
        listed = [{"method": method, "summary": summary} for method, summary in found]
        print_json({"ok": True, "data": file, "columns": facts["columns"], "methods": listed})
        return
    talk(f"columns: {', '.join(facts['columns'])}")
    if found:
        data(table([list(row) for row in found]))
    else:
        talk("no method reads such rows as they are; `tp methods METHOD` says which parameters name columns")


def _list(framework: str, as_json: bool) -> None:
    from tuneport.registry import catalog, sources

    rows = catalog.methods("" if framework not in catalog.frameworks() else framework)
    if framework and framework not in catalog.frameworks():
        named = [row for row in rows if row[0].partition("/")[2] == framework]
        rows = named or catalog.methods(framework)  # which says that there is no such framework
    if as_json:
        listed = [{"method": name, "title": title, "problem": problem} for name, title, problem in rows]
        print_json({"ok": True, "methods": listed})
        return
    if rows:
        data(table([[name, "broken" if problem else title] for name, title, problem in rows]))
    broken = [name for name, _, problem in rows if problem]
    if broken:
        talk(f"{len(broken)} broken: {', '.join(broken[:5])}; `tp plugins` says why")
    for problem in sources.sources()[1]:
        talk(problem)
    if not rows:
        talk("no methods: install the plugin of a framework")


def _show(method_id: str, version: str, as_json: bool) -> None:
    from tuneport.experiment.values import describe
    from tuneport.registry import catalog, vocabulary

    method = catalog.method(method_id, version)
    version = version or catalog.default_release(method.framework)
    spec = method.spec
    words = vocabulary.words()
    if as_json:
        params: dict[str, Json] = {
            name: {
                "schema": dict(param.schema),
                "keys": list(param.keys),
                **({"default": param.default} if param.has_default else {}),
                **({"meaning": words[name]["meaning"]} if name in words else {}),
            }
            for name, param in method.params.items()
        }
        document = {
            "method": method_id,
            "title": method.title,
            "summary": spec.get("summary", ""),
            "release": version,
        }
        document["releases"] = catalog.releases(method.framework)
        document["needs"] = [f for f, b in spec.get("bind", {}).items() if b.get("required")]
        print_json(
            {
                "ok": True,
                **document,
                "digest": method.digest,
                "identity": spec.get("identity", {}),
                "params": params,
            }
        )
        return
    needs = [f"--{f.replace('_', '-')}" for f, b in spec.get("bind", {}).items() if b.get("required")]
    others = [other for other in catalog.releases(method.framework) if other != version]
    data(f"{method_id}: {method.title}")
    if spec.get("summary"):
        data(f"  {spec['summary']}")
    data(f"  release {version}" + (f" (also {', '.join(others)})" if others else ""))
    data(f"  needs {', '.join(needs) or 'no model and no data'}")
    for key, value in spec.get("identity", {}).items():
        data(f"  pins {key} = {json.dumps(value, ensure_ascii=False)}")
    rows = []
    for name, param in sorted(method.params.items()):
        default = json.dumps(param.default, ensure_ascii=False) if param.has_default else ""
        unit = spec.get("params", {}).get(name, {}).get("unit") or words.get(name, {}).get("unit", "")
        rows.append([name, _short(describe(param)), default, ", ".join(param.keys), unit])
    if rows:
        data("\n" + table(rows, ("parameter", "values", "default", "native key", "unit")))


def _short(text: str, width: int = 60) -> str:
    """A long list of values cut after a comma; `--json` has all of them."""
    return text if len(text) <= width else text[:width].rpartition(",")[0] + ", …"
