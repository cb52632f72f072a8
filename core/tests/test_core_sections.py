"""Sections of config.yaml that Tuneport reads, files that have to fit a schema, mixins of releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tuneport import api
from tuneport.checks import sections
from tuneport.dialects.flag_values import WHOLE
from tuneport.experiment.create import new_project
from tuneport.registry import catalog, vocabulary

METHOD = """
method: acme/run
title: Run
entry: acme.run
params:
  rubric: {key: judge.rubric, type: string}
  seed: {key: seed, type: integer}
sections:
  judge: {schema: judge, required: true}
documents:
  judge.rubric: rubric
launch:
  run: {module: acme.run}
  dialect: {name: flags}
"""
SURFACE = (
    '{"framework": "acme", "release": "%s", "entries": {"acme.run": {"keys": {"%s": {"types": ["int"]}}}}}'
)
RELEASE = "release: '%s'\nsurface: '%s.json'\nruntime: {id: acme, host: true}\n"
RUBRIC = {
    "rubric": "r", "version": "1", "scale": {"min": 0, "max": 1}, "template": "{answer}",
    "criteria": [{"name": "good", "text": "It is good."}],
}  # fmt: skip


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> api.Experiment:
    files = {
        "framework.yaml": "framework: acme\ntitle: Acme\ndefault_release: '1'\n",
        "methods/run.yaml": METHOD,
        "methods/_second.yaml": "params:\n  seed: {key: random_seed, type: integer}\ntemplates: second\n",
        "templates/second/config.yaml": "random_seed: 3\n",
        "releases/1.yaml": RELEASE % ("1", "1"),
        "releases/2.yaml": RELEASE % ("2", "2") + "extends: {run: [_second]}\n",
        "surfaces/1.json": SURFACE % ("1", "seed"),
        "surfaces/2.json": SURFACE % ("2", "random_seed"),
    }
    for name, text in files.items():
        path = tmp_path / "manifests/acme" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    monkeypatch.setenv("TUNEPORT_MANIFEST_PATH", str(tmp_path / "manifests"))
    for cached in (catalog._cached_index, catalog.resolved, catalog.recipe_digest, vocabulary.words):
        cached.cache_clear()
    return api.open_project(new_project(tmp_path / "project")).new("first", "acme/run")


def said(experiment: api.Experiment, config: dict[str, Any], **request: Any) -> list[tuple[str, str]]:
    (experiment.path / "config.yaml").write_text(yaml.safe_dump(config), "utf-8")
    report = experiment.validate(profile="cpu:1", **request)
    return [(finding.code, finding.key) for finding in report.findings if finding.severity == "error"]


JUDGE = {"rubric": "r.yaml", "model": "m", "base_url": "http://h/v1"}


def test_a_required_section_is_missed_key_by_key(experiment: api.Experiment) -> None:
    wanted = [("section-schema", f"judge.{name}") for name in ("base_url", "model", "rubric")]
    assert sorted(said(experiment, {"seed": 1})) == wanted
    assert said(experiment, {"judge": "yes"}) == [("section-schema", "judge")]


def test_a_section_is_hidden_from_the_framework_and_in_the_record(experiment: api.Experiment) -> None:
    (experiment.path / "r.yaml").write_text(yaml.safe_dump(RUBRIC), "utf-8")
    assert not said(experiment, {"seed": 1, "judge": JUDGE})
    compiled = experiment.validate(profile="cpu:1").compiled
    assert compiled is not None and compiled.plan is not None
    assert not [word for word in compiled.plan.commands[0].argv if "judge" in str(word)]
    assert compiled.plan.config["judge.model"] == "m"
    assert compiled.context.facts["documents"] == {"judge.rubric": RUBRIC}
    assert sections.content(compiled.context, "judge") == JUDGE
    assert sections.without(compiled.context).own == {"seed": 1}


def test_a_document_is_found_by_key_and_by_parameter(experiment: api.Experiment) -> None:
    assert said(experiment, {"judge": JUDGE}) == [("file-missing", "judge.rubric")]
    (experiment.path / "r.yaml").write_text("rubric: [", "utf-8")
    assert "yaml-syntax" in [code for code, _ in said(experiment, {"judge": JUDGE})]
    (experiment.path / "r.yaml").write_text("{}", "utf-8")
    assert {code for code, _ in said(experiment, {"judge": JUDGE})} == {"document-schema"}
    (experiment.path / "s.yaml").write_text(yaml.safe_dump(RUBRIC), "utf-8")
    assert not said(experiment, {"judge": JUDGE}, set={"rubric": "s.yaml"})


def test_a_release_lays_its_own_over_a_method(experiment: api.Experiment) -> None:
    one, two = catalog.method("acme/run", "1"), catalog.method("acme/run", "2")
    assert one.params["seed"].keys == ("seed",)
    assert two.params["seed"].keys == ("random_seed",)
    assert one.digest != two.digest and one.title == two.title == "Run"
    assert not catalog.templates("acme/run", "1")
    assert list(catalog.templates("acme/run", "2")) == ["config.yaml"]
    (experiment.path / "r.yaml").write_text(yaml.safe_dump(RUBRIC), "utf-8")
    assert said(experiment, {"random_seed": 1, "judge": JUDGE}) == [("key-unknown", "random_seed")]


@pytest.mark.parametrize(
    ("converter", "words", "value"),
    [
        ("pairs", ["a=1,b=x,c=1.5"], {"a": 1, "b": "x", "c": 1.5}),
        ("pairs", ["d=True,e=[1,2],f='x,y'"], {"d": True, "e": [1, 2], "f": "x,y"}),
        ("pairs", ["a=1", "b={'c': None}"], {"a": 1, "b": {"c": None}}),
        ("pairs", ['{"a": {"b": 1}}'], {"a": {"b": 1}}),
        ("pairs", ["a=b=c,d="], {"a": "b=c", "d": ""}),
        ("json", ['{"a": [1]}'], {"a": [1]}),
        ("json-file", ["file.json"], "file.json"),
        ("json-or-pairs", ["a=1, b=true,c=False,d=x"], {"a": 1, "b": True, "c": False, "d": "x"}),
        ("commas", ["a,b", "c"], ["a", "b", "c"]),
        ("int-list", ["42"], 42),
        ("int-list", ["1,None,3,4"], [1, None, 3, 4]),
        ("truth", ["YES"], True),
        ("truth", ["no"], False),
    ],
)  # fmt: skip
def test_words_are_made_into_values(converter: str, words: list[str], value: Any) -> None:
    assert WHOLE[converter](words, None) == value


@pytest.mark.parametrize(
    ("converter", "word"),
    [
        ("pairs", "a"), ("pairs", "{a: 1}"), ("json", "{a: 1}"), ("json", "[" * 100_000), ("json-file", "{a"),
        ("json-or-pairs", "a"), ("int-list", "a"), ("int-list", "1,2"), ("pairs", '{"a": ' * 50_000),
    ],
)  # fmt: skip
def test_words_that_make_no_value_are_refused(converter: str, word: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        WHOLE[converter]([word], None)


def test_hostile_words_are_read_quickly() -> None:
    deep = "a=" + "[" * 200_000
    assert WHOLE["pairs"]([deep], None)["a"].startswith("[")
    assert len(WHOLE["pairs"]([",".join(f"k{n}={n}" for n in range(20_000))], None)) == 20_000
