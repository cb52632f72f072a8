"""The vocabulary is the single place for what a parameter means; methods only say which values they take."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tuneport.registry import catalog, vocabulary
from tuneport.testing.vocabulary import conflicts

METHODS = [row[0] for row in catalog.methods()]
WORDS = vocabulary.words()
PROSE = {"title", "meaning", "description", "unit"}


def json_types(schema: Any) -> set[str]:
    """The JSON types that a schema of the manifests' subset lets through."""
    if "type" in schema:
        kinds = schema["type"]
        return {kinds} if isinstance(kinds, str) else set(kinds)
    options = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if options:
        return set().union(*map(json_types, options))
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return {type_of(value) for value in values}


def type_of(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]


def params() -> Iterator[tuple[str, str, Any]]:
    """(method id, parameter, its schema) of every method in every release that has it."""
    for method_id in METHODS:
        for release in catalog.releases(method_id.partition("/")[0]):
            for name, param in catalog.method(method_id, release).params.items():
                yield method_id, name, param.schema


def test_there_is_something_to_check() -> None:
    assert METHODS
    assert len({name for _, name, _ in params()}) > 10


@pytest.mark.parametrize("method_id", METHODS)
def test_every_parameter_is_a_word_of_the_vocabulary_with_a_compatible_type(method_id: str) -> None:
    for owner, name, schema in params():
        if owner != method_id:
            continue
        assert name in WORDS, f"{name} is not in vocabulary.yaml"
        allowed = json_types(WORDS[name])
        if "number" in allowed:
            allowed |= {"integer"}
        taken = json_types(schema)
        assert taken, f"{name} takes any type"
        # Where a framework also takes null, that is its way to say `unset`, not another meaning.
        assert taken - {"null"} <= allowed, f"{name}: {sorted(taken)} is not among {sorted(allowed)}"


def test_methods_say_nothing_about_meaning_themselves() -> None:
    for method_id, name, schema in params():
        assert not PROSE & set(schema), f"{method_id} {name}: what it means belongs into vocabulary.yaml"


RELEASES = [
    (framework, release) for framework in catalog.frameworks() for release in catalog.releases(framework)
]


@pytest.mark.parametrize(("framework", "release"), RELEASES)
def test_methods_of_a_release_agree_about_names(framework: str, release: str) -> None:
    assert conflicts(framework, release) == []


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ("{lr_schedule: {key: lr, type: string}}", "learning_rate and lr_schedule are two names of ('lr',)"),
        (
            "{learning_rate: {key: rate, type: number}}",
            "learning_rate is ('lr',) in acme/one and ('rate',) in acme/two",
        ),
        (
            "{rollouts_per_prompt: {key: n, type: integer}, batch_size: {key: b, type: integer}}",
            "acme/two has batch_size (examples per optimizer step) and samples answers",
        ),
    ],
)
def test_disagreement_is_found(tmp_path: Path, other: str, says: str) -> None:
    """Planted in a framework of its own, and asked in a process of its own: the catalog is read once."""
    folder = tmp_path / "acme"
    (folder / "releases").mkdir(parents=True)
    (folder / "methods").mkdir()
    (folder / "framework.yaml").write_text('framework: acme\ntitle: Acme\ndefault_release: "1"\n')
    (folder / "releases/1.yaml").write_text(
        'release: "1"\nstatus: supported\nruntime: {id: acme-1, oci: {}}\n'
    )
    for name, params in (("one", "{learning_rate: {key: lr, type: number}}"), ("two", other)):
        (folder / f"methods/{name}.yaml").write_text(
            f'method: acme/{name}\nversion: "1"\ntitle: {name}\nsummary: {name}\nentry: acme.train\n'
            f"roles: [trainer]\nparams: {params}\nbind: {{model: {{key: model, required: true}}}}\n"
            "launch: {launcher: none, run: {module: acme.train}, dialect: {name: flags}}\n"
        )
    code = "from tuneport.testing.vocabulary import conflicts; print('\\n'.join(conflicts('acme', '1')))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TUNEPORT_MANIFEST_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert says in done.stdout


def test_no_two_words_mean_the_same() -> None:
    for field in ("title", "meaning"):
        texts = [word[field].strip().lower() for word in WORDS.values()]
        assert len(texts) == len(set(texts)), f"two words have one {field}"


def test_every_word_is_used_and_well_formed() -> None:
    used = {name for _, name, _ in params()}
    for name, word in WORDS.items():
        assert name in used, f"no method has a parameter {name}"
        assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name)
        assert not word["meaning"].endswith("."), f"{name}: one sentence without a full stop"


def test_a_meaning_names_no_framework() -> None:
    known = [name for name in catalog.frameworks() if name != "custom"]  # which is a plain word as well
    names = re.compile(r"\b(" + "|".join(map(re.escape, known)) + r")\b", re.IGNORECASE)
    for name, word in WORDS.items():
        assert not names.search(word["meaning"]), name
