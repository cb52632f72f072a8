"""`tp methods`."""

from __future__ import annotations

import json

import click

from tuneport.cli.options import method_ids
from tuneport.cli.output import data, json_option, print_json, table, talk
from tuneport.types import Json


@click.command("methods")
@click.argument("method", default="", metavar="[ID]", shell_complete=method_ids)
@click.option("--framework-version", metavar="V", default="", help="A release other than the default.")
@json_option
def command(method: str, framework_version: str, as_json: bool) -> None:
    """List every method, a framework's methods (ID is a framework), or one method's parameters."""
    if "/" in method:
        _show(method, framework_version, as_json)
    else:
        _list(method, as_json)


def _list(framework: str, as_json: bool) -> None:
    from tuneport.registry import catalog, sources

    rows = catalog.methods(framework)
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
        talk("no methods: install a plugin, for example pip install tuneport-pytorch")


def _show(method_id: str, version: str, as_json: bool) -> None:
    from tuneport.experiment.values import describe
    from tuneport.registry import catalog

    method = catalog.method(method_id, version)
    version = version or catalog.default_release(method.framework)
    spec = method.spec
    words = catalog.vocabulary()
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
        unit = words.get(name, {}).get("unit", "")
        rows.append([name, _short(describe(param)), default, ", ".join(param.keys), unit])
    if rows:
        data("\n" + table(rows, ("parameter", "values", "default", "native key", "unit")))


def _short(text: str, width: int = 60) -> str:
    """A long list of values cut after a comma; `--json` has all of them."""
    return text if len(text) <= width else text[:width].rpartition(",")[0] + ", …"
