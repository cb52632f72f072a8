"""`tp schema`."""

from __future__ import annotations

import click

from tuneport.cli.output import data, json_option, print_json


@click.command("schema")
@click.argument("name", default="", metavar="[NAME]")
@json_option
def command(name: str, as_json: bool) -> None:
    """Print the JSON Schema of a file (job, project, method, …) or of a method's config.yaml.

    NAME is one of the listed names, or FRAMEWORK/METHOD for the keys of its default release.
    """
    from tuneport.registry import schemas

    if not name:
        if as_json:
            print_json({"ok": True, "schemas": schemas.names()})
        else:
            data("\n".join(schemas.names()))
        return
    print_json(_config_schema(name) if "/" in name else schemas.schema(name))


def _config_schema(method_id: str) -> dict[str, object]:
    """What config.yaml of a method may hold, from the surface of its default release."""
    from tuneport.checks.ownership import owners
    from tuneport.registry import catalog, schemas, surfaces

    method = catalog.method(method_id)
    release = surfaces.release(method.framework, "", method.spec.get("entry", ""))
    owned = {name for name, _ in owners(method)}
    names = {
        "int": "integer",
        "float": "number",
        "str": "string",
        "bool": "boolean",
        "list": "array",
        "dict": "object",
    }
    root: dict[str, object] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{method_id}: config.yaml",
    }
    tree: dict[str, object] = {"type": "object", "properties": {}}
    for key in release.keys.values():
        if key.name in owned:
            continue
        leaf: dict[str, object] = {"default": key.default} if not key.required else {}
        if "any" not in key.types:
            leaf["type"] = sorted({names.get(kind, kind) for kind in key.types})
        if key.choices and "list" not in key.types:
            leaf["enum"] = [*key.choices, *([None] if "null" in key.types else [])]
        here = tree
        *parents, last = key.name.split(".")
        for part in parents:
            here = here["properties"].setdefault(part, {"type": "object", "properties": {}})  # type: ignore[attr-defined]
            here.setdefault("properties", {})
        here["properties"][last] = leaf  # type: ignore[index]
    for name, section in method.spec.get("sections", {}).items():
        tree["properties"][name] = schemas.schema(section["schema"])  # type: ignore[index]
    closed = bool(release.keys)
    return {**root, **tree, "additionalProperties": not closed}
