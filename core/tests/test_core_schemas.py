"""The schemas: valid, in the subset that every editor reads alike, and with no keyword that does nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs
import pytest
from tuneport.errors import NotFound
from tuneport.experiment.yamlread import parse_yaml, read_yaml
from tuneport.registry import schemas
from tuneport.types import REFS

from .core_support import MANIFESTS, SCHEMAS

NAMES = schemas.names()
NOTES = {"$schema", "$id", "title", "description", "examples", "$defs", "$comment"}
SUBSET = NOTES | {
    *(
        "type",
        "enum",
        "const",
        "properties",
        "additionalProperties",
        "required",
        "propertyNames",
        "minProperties",
    ),
    *(
        "items",
        "minItems",
        "maxItems",
        "uniqueItems",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "$ref",
        "pattern",
        "minLength",
    ),
    *("maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""What means the same in draft-07 and 2020-12."""
OPEN = {"method/launch/dialect", "fleets/$defs/fleet", "facts/model"}
"""Objects that take keys nobody here can list: a dialect's and a fleet's settings, a model's own words."""


def subschemas(
    node: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """Every schema inside a schema, itself included."""
    if not isinstance(node, dict):
        return
    yield path, node
    for key in ("properties", "$defs"):
        for name, child in node.get(key, {}).items():
            yield from subschemas(child, (*path, key, name))
    for key in ("items", "additionalProperties", "propertyNames", "not"):
        yield from subschemas(node.get(key), (*path, key))
    for key in ("anyOf", "oneOf", "allOf"):
        for number, child in enumerate(node.get(key, ())):
            yield from subschemas(child, (*path, key, number))


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_valid_and_in_the_common_subset(name: str) -> None:
    schema = schemas.schema(name)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:tuneport:schema:{name}"
    assert schema["title"]
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft7Validator.check_schema({k: v for k, v in schema.items() if k != "$schema"})
    for path, node in subschemas(schema):
        assert set(node) <= SUBSET, (path, set(node) - SUBSET)
        assert not ("$ref" in node and set(node) - {"$ref"}), (
            f"{path}: draft-07 ignores what stands beside $ref"
        )
        if "$ref" in node:
            head, _, target = node["$ref"].rpartition("/")
            assert head == "#/$defs" and target in schema["$defs"], f"{path}: nothing is fetched"
        assert isinstance(node.get("items", {}), dict), f"{path}: a list of items differs between the drafts"
    used = {node["$ref"].rpartition("/")[2] for _, node in subschemas(schema) if "$ref" in node}
    assert used == set(schema.get("$defs", {})), "no definition is left over"


@pytest.mark.parametrize("name", NAMES)
def test_objects_refuse_keys_that_nobody_knows(name: str) -> None:
    for path, node in subschemas(schemas.schema(name)):
        if "properties" in node:
            words = [str(part) for part in path if part not in ("properties", "additionalProperties")]
            place = "/".join([name, *words]) + ("/*" if path[-1:] == ("additionalProperties",) else "")
            assert "additionalProperties" in node or place in OPEN, place


def test_references_are_those_of_the_contract() -> None:
    for name in ("method", "plan"):
        assert schemas.schema(name)["$defs"]["ref"]["properties"]["ref"]["enum"] == list(REFS)


def test_files_and_names_agree() -> None:
    assert {f"{name}.schema.json" for name in NAMES} == {path.name for path in SCHEMAS.glob("*.json")}
    assert len(NAMES) >= 13
    with pytest.raises(NotFound) as caught:
        schemas.schema("jobb")
    assert "job" in caught.value.message
    for odd in ("../job", "", "job\0", "/etc/passwd"):
        with pytest.raises((NotFound, ValueError)):
            schemas.schema(odd)


# --- documents made from the schemas: everything that may stand in one, and everything that may not

CANDIDATES = [
    "acme", "acme/tune", "_base", "1.0.0", "1.0.0.json", "2030-01-31", "train.py", "acme.cli",
    f"sha256:{'0' * 64}", "0" * 64, "0" * 40, "trainer", "teacher", "acme-two-words", "learning_rate",
    "me/set@v1", "x", "main",
    "A_VARIABLE", "text.", "a-b", "2601.00001", "http://h/v1", "acme-{version}", "3.11",
    f"ed25519:{'A' * 43}=",
]  # fmt: skip
ODD: list[Any] = [
    None, True, 0, -1, 0.5, 1, 10**9, "", "x", "BAD NAME!", "../x", "/abs", "a\\b", "a\0b", " ", "9", "-",
    [], {}, [{}], [None], [1], ["x", "x"], {"zz": 1}, {"zz": None}, {"zz": ""}, {"zz": {}},
    {"BAD NAME!": "x"}, {"TUNEPORT_ROLE": "x"},
]  # fmt: skip


def examples(node: dict[str, Any], root: dict[str, Any]) -> list[Any]:
    """Values that fit a schema and together use all of it."""
    if "$ref" in node:
        return examples(root["$defs"][node["$ref"].rpartition("/")[2]], root)
    if "enum" in node:
        return list(node["enum"][:2])
    if "const" in node:
        return [node["const"]]
    for key in ("anyOf", "oneOf"):
        if key in node:
            return [value for branch in node[key] for value in examples(branch, root)]
    kinds = node.get("type", ["string"])
    found = []
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        found += _examples_of(kind, node, root)
    return found


def _examples_of(kind: str, node: dict[str, Any], root: dict[str, Any]) -> list[Any]:
    if kind == "object":
        columns = {key: examples(child, root) for key, child in node.get("properties", {}).items()}
        extra = node.get("additionalProperties", {"type": "string"} if "properties" not in node else False)
        if extra is not False:
            name = next(n for n in CANDIDATES if fits(n, node.get("propertyNames", {}), root))
            columns[name] = examples(extra if isinstance(extra, dict) else {}, root)
        rows = islice(zip_longest(*columns.values(), fillvalue=...), 4)  # entries of a surface show most ways
        return [
            {key: columns[key][0] if value is ... else value for key, value in zip(columns, row, strict=True)}
            for row in rows
        ] or [{}]
    if kind == "array":
        values = examples(node.get("items", {}), root)
        return [values[: node.get("maxItems", 3)]]
    if kind == "string":
        return [next(word for word in CANDIDATES if fits(word, node, root))]
    if kind in ("integer", "number"):
        return [next(n for n in (1, 0, 8, 2026) if fits(n, node, root))]
    return {"boolean": [True, False], "null": [None]}[kind]


def fits(value: Any, node: dict[str, Any], root: dict[str, Any]) -> bool:
    whole = {**node, "$defs": root.get("$defs", {})} if "$ref" not in node else node
    return jsonschema_rs.Draft202012Validator(whole, offline=True).is_valid(value)


def mutations(value: Any) -> Iterator[Any]:
    """The value with one part left out, put in, renamed or replaced, for every part."""
    yield from ODD
    if isinstance(value, dict):
        yield {**value, "zz_unknown": "x"}
        for key, item in value.items():
            rest = {k: v for k, v in value.items() if k != key}
            yield rest
            yield {**rest, "BAD KEY!": item}
            for changed in mutations(item):
                yield {**rest, key: changed}
    elif isinstance(value, list):
        yield [*value, *value]
        for index, item in enumerate(value):
            for changed in mutations(item):
                yield [*value[:index], changed, *value[index + 1 :]]


@cache
def corpus(name: str) -> tuple[list[Any], list[Any]]:
    """(accepted, refused) documents for a schema."""
    schema = schemas.schema(name)
    engine = jsonschema_rs.Draft202012Validator(schema, offline=True)
    made = examples(schema, schema)
    for document in made:
        assert engine.is_valid(document), [(e.message, e.instance_path) for e in engine.iter_errors(document)]
    unique: dict[str, Any] = {}
    for document in made:
        for changed in mutations(document):
            unique.setdefault(json.dumps(changed, sort_keys=True), changed)
    sound = [document for document in unique.values() if engine.is_valid(document)]
    return [*made, *sound], [document for document in unique.values() if not engine.is_valid(document)]


def occurrences(schema: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for path, node in subschemas(schema):
        for keyword in node:
            if keyword not in NOTES and not (keyword == "properties" and not node["properties"]):
                yield path, keyword


def without(schema: dict[str, Any], path: tuple[str | int, ...], keyword: str) -> dict[str, Any]:
    changed = copy.deepcopy(schema)
    here: Any = changed
    for part in path:
        here = here[part]
    if keyword == "properties":
        here[keyword] = {}
    else:
        del here[keyword]
    return changed


def at(schema: dict[str, Any], path: Iterable[str | int]) -> Any:
    here: Any = schema
    for part in path:
        here = here[part]
    return here


def blamed(schema: dict[str, Any], refused: list[Any]) -> dict[tuple[str | int, ...], list[Any]]:
    """Keyword's place in the schema -> the documents that it refuses, as far as the engine says which."""
    engine = jsonschema_rs.Draft202012Validator(schema, offline=True)
    found: dict[tuple[str | int, ...], list[Any]] = {}
    for document in refused:
        for error in engine.iter_errors(document):
            place: tuple[str | int, ...] = ()
            for part in error.schema_path:
                if part == "$ref":
                    place = ("$defs", at(schema, place)["$ref"].rpartition("/")[2])
                else:
                    place = (*place, part)
            found.setdefault(place, []).append(document)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_keyword_bites(name: str) -> None:
    """Take any keyword away and something that was refused is accepted (or what was fine is not)."""
    schema = schemas.schema(name)
    accepted, refused = corpus(name)
    guilty = blamed(schema, refused)
    idle = []
    for path, keyword in occurrences(schema):
        place = (*path, keyword)
        if at(schema, place) in ({}, [], True) or (keyword == "type" and path[-1:] == ("propertyNames",)):
            continue
        engine = jsonschema_rs.Draft202012Validator(without(schema, path, keyword), offline=True)
        turned = keyword == "properties" or path[-1:] == ("not",)
        if turned and not all(map(engine.is_valid, accepted)):
            continue
        # The engine blames a keyword, or what holds it; the rest is asked only where neither shows it.
        near = (document for end in range(len(place), 0, -1) for document in guilty.get(place[:end], ()))
        if not any(map(engine.is_valid, near)) and not any(map(engine.is_valid, refused)):
            idle.append("/".join(map(str, place)))
    assert not idle, "these do nothing, or no document here shows what they do"


@pytest.mark.parametrize("name", NAMES)
def test_two_engines_and_two_drafts_agree(name: str) -> None:
    schema = schemas.schema(name)
    accepted, refused = corpus(name)
    modern = jsonschema.Draft202012Validator(schema)
    older = jsonschema.Draft7Validator({key: value for key, value in schema.items() if key != "$schema"})
    for verdict, documents in ((True, accepted), (False, refused)):
        step = max(1, len(documents) // 60)  # the reference is a hundred times slower
        for document in documents[::step]:
            assert modern.is_valid(document) is verdict, document
            assert older.is_valid(document) is verdict, document


@pytest.mark.parametrize("name", NAMES)
def test_every_refusal_is_said_in_words_with_its_place(name: str) -> None:
    schema = schemas.schema(name)
    _, refused = corpus(name)
    for document in refused[:: max(1, len(refused) // 200)]:
        found = list(schemas.problems(document, schema))
        assert found, document
        for path, message, _hint in found:
            assert message and len(message) < 400
            here = document
            for part in path:
                here = here[part]


# --- the words for people


@pytest.mark.parametrize(
    ("name", "text", "line", "message", "hint"),
    [
        ("job", "modle: x\n", 1, "unknown key 'modle'", "did you mean 'model'?"),
        ("job", "zzz: x\n", 1, "unknown key 'zzz'", "known keys: model, data"),
        ("job", "data:\n  train:\n    pth: x\n", 3, "unknown key 'pth'", "did you mean 'path'?"),
        ("job", "resources:\n  pools:\n    - {name: a, series: b, nodes: 1}\n", 3, "gpus_per_node", ""),
        ("release", "release: 1.10\nruntime: {id: a}\n", 1, 'not of type "string"', 'in quotes: "1.10"'),
        ("release", "release: 1.1.0\nstatus: suported\nruntime: {id: a}\n", 2, "suported", "'supported'?"),
        ("method", "launch: {run: {module: a.b, file: c}}\n", 1, "none of the forms", ""),
        ("job", f"model: [{'x' * 2000}]\n", 1, "…", ""),
        ("job", "params: {a: .nan}\n", 1, "nan is not a number that JSON can hold", ""),
        ("job", "", 1, "the file is empty", ""),
        ("job", "- a\n", 1, 'is not of type "object"', ""),
    ],
)
def test_problems_are_said_with_line_and_hint(
    name: str, text: str, line: int, message: str, hint: str
) -> None:
    found = schemas.check(parse_yaml(text, "f.yaml"), name, "some-code")
    assert {(finding.code, finding.file) for finding in found} == {("some-code", "f.yaml")}
    assert any(
        message in finding.message and hint in finding.hint and finding.line == line for finding in found
    ), found


def test_the_shortcut_for_plain_files_never_accepts_what_the_engine_refuses() -> None:
    for name in NAMES:
        _, refused = corpus(name)
        schema = schemas.schema(name)
        assert not [document for document in refused if schemas._plain_and_fitting(document, schema)]
    for schema in ({"type": "number"}, {"type": "array"}, {"type": "string"}, {}, {"enum": [1]}):
        assert not schemas._plain_and_fitting({}, schema)
    assert schemas._plain_and_fitting({"project": "x", "model": "y"}, schemas.schema("project"))


def manifests() -> list[Path]:
    return sorted(path for path in MANIFESTS.rglob("*.yaml") if "templates" not in path.parts)


def test_the_invented_manifests_keep_to_their_schemas() -> None:
    kinds = {"releases": "release", "methods": "method", "rules": "rules", "acme": "framework"}
    checked = 0
    for path in manifests():
        name = kinds.get(path.parent.name, "vocabulary")
        assert not schemas.check(read_yaml(path), name, "x"), path
        checked += 1
    for path in MANIFESTS.rglob("surfaces/*.json"):
        assert not list(schemas.problems(json.loads(path.read_text()), schemas.schema("surface"))), path
        checked += 1
    assert checked >= 13
