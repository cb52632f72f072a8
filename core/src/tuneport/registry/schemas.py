"""Checks documents against the JSON Schemas and says every problem in a person's words."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tuneport.errors import NotFound
from tuneport.experiment.yamlread import Document, Path_
from tuneport.text import closest
from tuneport.types import Finding, Json

_SUFFIX = ".schema.json"


def _folder() -> Path:
    import tuneport_schemas  # a data-only package: its import runs one docstring

    return Path(tuneport_schemas.__file__).parent


def names() -> list[str]:
    """The schemas by name, without `.schema.json`."""
    return sorted(path.name.removesuffix(_SUFFIX) for path in _folder().glob("*" + _SUFFIX))


@cache
def schema(name: str) -> dict[str, Json]:
    """The schema called `name`.

    Raises:
        NotFound: there is none; the message lists them.
    """
    path = _folder() / (name + _SUFFIX)
    if not path.is_file():
        raise NotFound(f"no schema named {name!r}; there are {', '.join(names())}", code="schema-missing")
    loaded: dict[str, Json] = json.loads(path.read_text("utf-8"))
    return loaded


def problems(value: Json, against: dict[str, Json]) -> Iterator[tuple[Path_, str, str]]:
    """(path, message, hint) of each way in which `value` breaks the schema `against`.

    Values are first made plain: a NaN or half a character has no JSON form and is named as such.
    Nothing is fetched: a `$ref` that leaves the schema is an error of whoever wrote it.
    """
    if _plain_and_fitting(value, against):
        return
    odd = list(_odd(value, ()))
    yield from odd
    if odd:
        return
    from jsonschema_rs import Draft202012Validator

    for error in Draft202012Validator(against, offline=True).iter_errors(value):
        path = tuple(error.instance_path)
        message, hint = _words(error, against)
        yield path, message, hint


def check(document: Document, name: str, code: str, *, root: str = "") -> list[Finding]:
    """Findings for a parsed file against the schema `name`; each with the line of its path."""
    if document.data is None and not document.findings:
        return [Finding(code, "error", "the file is empty", "", "", document.file, 1)]
    found = []
    for path, message, hint in problems(document.data, schema(name)):
        key = ".".join(str(part) for part in path)
        text = f"{key}: {message}" if key else message
        if not hint and path in document.raw and message.endswith('is not of type "string"'):
            hint = f'put it in quotes: "{document.raw[path]}"'
        unknown = message.partition("'")[2].partition("'")[0] if message.startswith("unknown key") else ""
        line = document.line((*path, unknown) if unknown else path)
        found.append(Finding(code, "error", text, hint, root + key, document.file, line))
    return found


def param_problems(params: Json, ours: Collection[str]) -> Iterator[tuple[str, str]]:
    """(name, what is wrong) of each parameter whose value schema cannot be used, or refuses its own default.

    Args:
        ours: keys of a parameter that are not JSON Schema.
    """
    from jsonschema_rs import Draft202012Validator

    for name, item in params.items() if isinstance(params, dict) else ():
        if not isinstance(item, dict):
            continue
        try:
            odd = next((word for word in _keywords(item) if word.startswith("$")), "")
            if odd:
                yield name, f"{odd} is not for parameters"
                continue
            against = {key: value for key, value in item.items() if key not in ours}
            validator = Draft202012Validator(against, offline=True)
            if "default" in item and not validator.is_valid(item["default"]):
                yield name, f"its own schema refuses the default {item['default']!r}"
        except (ValueError, RecursionError) as error:
            yield name, _cut(f"not a JSON Schema: {' '.join(str(error).split())}")


def _keywords(schema: Json) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            yield key
            if key not in ("const", "enum", "default", "examples", "values"):
                yield from _keywords(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from _keywords(item)


def _plain_and_fitting(value: Json, against: dict[str, Json], root: dict[str, Json] | None = None) -> bool:
    """True for mappings of plain text that clearly fit, which most small files are: importing the engine
    costs more than the rest of a command. False says nothing: the engine decides."""
    root = against if root is None else root
    if "$ref" in against:
        against = root.get("$defs", {}).get(str(against["$ref"]).rpartition("/")[2], {})
    if isinstance(value, str):
        return bool(value) and value.isascii() and against.keys() <= _TEXT and against.get("type") == "string"
    known = against.get("properties", {})
    return (
        isinstance(value, dict)
        and against.get("type") == "object"
        and against.keys() <= _MAPPING
        and set(against.get("required", ())) <= set(value)
        and all(key in known and _plain_and_fitting(item, known[key], root) for key, item in value.items())
    )


_SAID = {"$schema", "$id", "$defs", "title", "description"}
_TEXT = {*_SAID, "type", "minLength"}  # of which none asks for more than one character
_MAPPING = {*_SAID, "type", "properties", "required", "additionalProperties"}


def _odd(value: Json, path: Path_) -> Iterator[tuple[Path_, str, str]]:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        yield path, f"{value} is not a number that JSON can hold", ""
    elif isinstance(value, str):
        if not value.isascii() and value.encode("utf-8", "ignore").decode() != value:
            yield path, "holds half a character (not valid Unicode)", ""
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _odd(key, path)
            yield from _odd(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _odd(item, (*path, index))


def _words(error: Any, against: dict[str, Json]) -> tuple[str, str]:
    kind = error.kind
    if kind.name == "additionalProperties":
        known = list(_parent(error.schema_path, against).get("properties", {}))
        close = [match for key in kind.unexpected if (match := closest(key, known))]
        hint = f"did you mean {' and '.join(map(repr, close))}?" if close else ""
        hint = hint or (f"known keys: {', '.join(known)}" if known else "")
        return _cut(f"unknown key {', '.join(map(repr, kind.unexpected))}"), hint
    if kind.name == "required":
        return f"the key {kind.property!r} is missing", ""
    if error.schema_path[-1:] == ["not"]:
        said = _parent(error.schema_path, against).get("not", {}).get("description", "")
        name = error.message.rpartition(" for ")[2] if kind.name == "propertyNames" else repr(error.instance)
        return _cut(f"{name} {said}" if said else error.message), ""
    if kind.name == "enum" and isinstance(error.instance, str):
        near = closest(error.instance, map(str, kind.options))
        return _cut(error.message), f"did you mean {near!r}?" if near else ""
    value, alternatives, _ = error.message.partition(" is not valid under any of the schemas")
    return _cut(f"{value} has none of the forms that it may have" if alternatives else error.message), ""


def _cut(message: str) -> str:
    return message if len(message) <= 300 else message[:300] + "…"


def _parent(path: list[str | int], against: dict[str, Json]) -> dict[str, Json]:
    """The subschema that holds the failing keyword; empty where the path cannot be followed."""
    here: Json = against
    for part in path[:-1]:
        if part == "$ref":
            here = against.get("$defs", {}).get(str(here.get("$ref", "")).rpartition("/")[2], {})
        else:
            here = here.get(part, {}) if isinstance(here, dict) else here[int(part)]
    return here if isinstance(here, dict) else {}
