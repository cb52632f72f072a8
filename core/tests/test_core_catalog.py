"""The catalog: mixins, circles, clashes, gates, releases, close names; and digests that mean something."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuneport.errors import Invalid, NotFound
from tuneport.registry import catalog, store, surfaces, vocabulary
from tuneport.registry.digest import canonical, digest, digest_bytes

from .core_support import MANIFESTS, SLOW, World, codes, forget, one


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def problem_codes() -> list[str]:
    return codes(catalog.problems("acme"))


def test_the_invented_framework_is_sound(world: World) -> None:
    assert not catalog.problems("acme")
    assert [row[0] for row in catalog.methods("acme")] == [
        "acme/align",
        "acme/script",
        "acme/shell",
        "acme/tune",
    ]
    assert catalog.releases("acme") == ["1.0.0", "2.0.0"]
    assert catalog.default_release("acme") == "1.0.0"
    assert catalog.framework_spec("acme")["title"] == "Acme Tuner"


def test_mixins_merge_mappings_replace_lists_and_keep_titles_to_themselves(world: World) -> None:
    tune, align = catalog.resolved("acme", "tune"), catalog.resolved("acme", "align")
    assert tune["roles"] == ["trainer"]
    assert align["roles"] == ["actor", "critic"], "lists replace"
    assert tune["params"]["batch"] == {"key": "train.batch", "type": "integer", "minimum": 1, "default": 16}
    assert "default" not in align["params"]["batch"], "a method does not change its mixin"
    assert align["launch"]["env"] == tune["launch"]["env"], "mappings merge"
    assert align["launch"]["dialect"] == {
        "name": "yaml-file", "flag": "--settings", "file": "align.yaml", "config_flag": "--config",
        "config_file": "acme.yaml",
    }  # fmt: skip
    assert tune["metrics"]["aliases"] == {"train/loss": ["loss", "train/loss"], "train/speed": ["speed"]}
    assert (tune["method"], tune["title"]) == ("acme/tune", "Tune")


def test_a_method_may_extend_a_method_and_later_wins(world: World) -> None:
    folder = world.own_manifests() / "methods"
    (folder / "_fast.yaml").write_text("defaults: {train.steps: 5, train.batch: 4}\nroles: [fast]\n")
    (folder / "child.yaml").write_text(
        "method: acme/child\ntitle: Child\nextends: [tune, _fast]\ndefaults: {train.batch: 2}\n"
    )
    forget()
    child = catalog.resolved("acme", "child")
    assert child["defaults"] == {"train.steps": 5, "train.batch": 2}
    assert child["roles"] == ["fast"]
    assert (child["method"], child["title"]) == ("acme/child", "Child")
    assert child["identity"] == {"optim.kind": "online"}
    (folder / "child.yaml").write_text("method: acme/child\ntitle: Child\nextends: [acme/tune]\n")
    forget()
    assert catalog.resolved("acme", "child")["defaults"] == {"train.steps": 50}
    (folder / "child.yaml").write_text("method: acme/child\nextends: [tune]\n")
    forget()
    assert catalog.method("acme/child").title == "", "a title is not inherited"


def refused(code: str, method_id: str = "acme/tune") -> Invalid:
    with pytest.raises(Invalid) as caught:
        catalog.method(method_id)
    assert caught.value.code == code
    return caught.value


def test_circles_missing_mixins_and_other_frameworks_are_refused(world: World) -> None:
    folder = world.own_manifests() / "methods"
    for extends, code, word in [
        ("[tune]", "manifest-circle", "tune extends tune"),
        ("[_a]", "manifest-circle", "tune extends _a extends _b extends tune"),
        ("[_gone]", "manifest-missing", "_gone"),
        ("[other/tune]", "manifest-extends", "other/tune"),
    ]:
        (folder / "tune.yaml").write_text(f"method: acme/tune\ntitle: T\nextends: {extends}\n")
        (folder / "_a.yaml").write_text("extends: [_b]\n")
        (folder / "_b.yaml").write_text("extends: [tune]\n")
        forget()
        assert word in refused(code).message
    assert catalog.method("acme/align").id == "acme/align", "others are not affected"


def test_a_broken_file_breaks_what_needs_it_and_nothing_else(world: World) -> None:
    acme = world.own_manifests()
    for name, text, code in [
        ("methods/align.yaml", "method: [", "yaml-syntax"),
        ("methods/align.yaml", "", "manifest-schema"),
        ("methods/align.yaml", "- a\n", "manifest-schema"),
        ("methods/align.yaml", "method: acme/align\nparmas: {}\n", "manifest-schema"),
        ("methods/align.yaml", "method: acme/other\n", "manifest-name"),
        ("methods/align.yaml", "title: A\n", "manifest-name"),
        ("methods/align.yaml", "method: acme/align\nversion: 1\n", "manifest-schema"),
        (
            "methods/align.yaml",
            "method: acme/align\nparams: {beta: {key: b, type: number, default: much}}\n",
            "manifest-schema",
        ),
        ("rules/align.yaml", "rules: 5\n", "manifest-schema"),
        ("rules/align.yaml", "rules: {a: 1}\ninert: text\n", "manifest-schema"),
    ]:
        original = (acme / name).read_text()
        (acme / name).write_text(text)
        forget()
        assert code in problem_codes(), (name, text)
        refused("manifest-broken", "acme/align")
        assert catalog.method("acme/tune").id == "acme/tune"
        rows = {row[0]: row[2] for row in catalog.methods("acme")}
        assert bool(rows["acme/align"]) == name.startswith("methods"), "the row says why"
        (acme / name).write_text(original)
    (acme / "methods" / "_base.yaml").write_text("method: acme/_base\n")
    forget()
    assert "manifest-name" in problem_codes(), "a mixin is no method"
    with pytest.raises(NotFound):
        catalog.method("acme/_base")


def test_schema_problems_of_manifests_have_lines_and_close_names(world: World) -> None:
    acme = world.own_manifests()
    (acme / "methods" / "align.yaml").write_text("method: acme/align\n\ntitle: A\nidentiy: {a: 1}\n")
    (acme / "releases" / "1.0.0.yaml").write_text(
        f"release: 1.0.0\nartefacts:\n- {{name: a, version: 1.0.0, sha256: {'1' * 64}}}\n"
        "runtime: {id: a-1}\n"
    )
    forget()
    found = catalog.problems("acme")
    method = next(f for f in found if f.file.endswith("align.yaml"))
    assert "'identiy'" in method.message and method.hint == "did you mean 'identity'?"
    release = next(f for f in found if f.file.endswith("1.0.0.yaml"))
    assert release.line == 3
    assert release.hint == f'put it in quotes: "{"1" * 64}"'


PARAMS = [
    "{key: k, type: numbr}",
    "{key: k, type: string, pattern: '('}",
    "{key: k, items: {$ref: 'http://127.0.0.1:9/schema'}}",
    "{key: k, anyOf: [{$ref: 'file:///etc/passwd'}]}",
    "{key: k, items: {$dynamicRef: '#x'}}",
    "{key: k, anyOf: [5]}",
    "{key: k, enum: 5}",
    "{key: k, minimum: text}",
]


@pytest.mark.parametrize("param", PARAMS)
def test_a_parameter_that_is_no_json_schema_is_the_manifests_fault(world: World, param: str) -> None:
    acme = world.own_manifests()
    (acme / "methods" / "align.yaml").write_text(f"method: acme/align\nparams:\n  x: {param}\n")
    forget()
    finding = next(f for f in catalog.problems("acme") if f.key.startswith("params.x"))
    assert (finding.code, finding.line) == ("manifest-schema", 3)
    refused("manifest-broken", "acme/align")


RULES = [
    ("cfg.a ==", "Syntax error"),
    ("cfg.(", "Syntax error"),
    ("cgf.a", "unknown variable cgf"),
    ("cfg.a.exsts(x, x)", "unknown function exsts"),
    ("getenv(1)", "unknown function getenv"),
    ("(" * 40 + "1" + ")" * 40, "brackets"),
    ("1 + " * 600 + "1", "longer than 2048"),
    ("1 + " * 200 + "1", "too many operators"),
    ("true // why", "comment"),
    ('r"x" == cfg.a', "raw"),
    ('"""x""" == cfg.a', "triple-quoted"),
    ("cfg.`a`", "backticks"),
]


@pytest.mark.parametrize(("source", "word"), RULES)
@pytest.mark.parametrize("place", ["require", "when", "unless"])
def test_expressions_are_compiled_when_they_are_read(
    world: World, source: str, word: str, place: str
) -> None:
    acme = world.own_manifests()
    rule = {"code": "a-b", "require": "true", "severity": "error", "say": "s", "source": "s"}
    inert = {"key": "k", "unless": "true", "say": "s", "source": "s"}
    document = {"rules": [rule], "inert": [inert]}
    (inert if place == "unless" else rule)[place] = source
    (acme / "rules" / "align.yaml").write_text(json.dumps(document, indent=1))
    forget()
    finding = one(catalog.problems("acme"), "rule-expression")
    assert word in finding.message
    assert finding.key == place
    assert finding.line > 1
    assert finding.file.endswith("align.yaml")


def test_one_id_with_two_digests_names_both_files(world: World, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(MANIFESTS, other)
    world.env("TUNEPORT_MANIFEST_PATH", f"{MANIFESTS}{os.pathsep}{other}")
    forget()
    assert not catalog.problems("acme"), "the same twice is the same"
    path = other / "acme" / "methods" / "tune.yaml"
    path.write_text(path.read_text() + "\n# changed\n")
    forget()
    finding = one(catalog.problems("acme"), "manifest-clash")
    assert str(path) in finding.message
    assert str(MANIFESTS / "acme" / "methods" / "tune.yaml") in finding.message
    refused("manifest-broken")
    assert catalog.method("acme/align").id == "acme/align"


def test_a_second_source_may_add_methods_and_frameworks(world: World, tmp_path: Path) -> None:
    more = tmp_path / "more"
    (more / "acme" / "methods").mkdir(parents=True)
    (more / "acme" / "methods" / "extra.yaml").write_text(
        "method: acme/extra\ntitle: Extra\nextends: [_base]\n"
    )
    (more / "vocabulary.yaml").write_text(
        "parameters:\n  learning_rate: {title: X, meaning: other, type: number}\n"
        "  fresh: {title: Fresh, meaning: new, type: number}\n"
    )
    world.env(
        "TUNEPORT_MANIFEST_PATH", f"{MANIFESTS}{os.pathsep}{more}{os.pathsep}{tmp_path / 'gone'}{os.pathsep}"
    )
    forget()
    assert catalog.method("acme/extra").params["learning_rate"].keys == ("optim.lr",)
    words = vocabulary.words()
    assert words["fresh"]["meaning"] == "new"
    assert words["learning_rate"]["meaning"] != "other", "sources add words and change none"
    from tuneport.registry.sources import sources

    assert any("gone" in problem for problem in sources()[1])
    (more / "vocabulary.yaml").write_text("parameters: [a]\n")
    forget()
    assert "learning_rate" in vocabulary.words(), "a broken source costs nobody else their words"
    assert "fresh" not in vocabulary.words()
    [problem] = vocabulary.problems()
    assert (problem.code, problem.file) == ("manifest-schema", str(more / "vocabulary.yaml"))


def test_links_that_leave_the_folder_are_not_followed(world: World, tmp_path: Path) -> None:
    acme = world.own_manifests()
    outside = tmp_path / "outside.yaml"
    outside.write_text("method: acme/linked\ntitle: L\n")
    (acme / "methods" / "linked.yaml").symlink_to(outside)
    (acme / "templates" / "linked").symlink_to("/etc")
    forget()
    assert "acme/linked" not in [row[0] for row in catalog.methods("acme")]
    assert not catalog.problems("acme")


def test_gates_take_parameters_and_rules_away_from_one_release(world: World) -> None:
    assert "curriculum" not in catalog.method("acme/tune", "1.0.0").params
    assert "curriculum" in catalog.method("acme/tune", "2.0.0").params
    one_, two = catalog.rules("acme", "1.0.0", ["common"]), catalog.rules("acme", "2.0.0", ["common"])
    assert "acme-batch-divides" in [rule["code"] for rule in one_[0]]
    assert "acme-batch-divides" not in [rule["code"] for rule in two[0]]
    assert "acme-curriculum-needs-seed" in [rule["code"] for rule in two[0]]
    assert len(one_[1]) == 2


def test_unknown_names_get_the_close_ones(world: World) -> None:
    for call, code, word in [
        (lambda: catalog.method("acme/tine"), "method-unknown", "acme/tune"),
        (lambda: catalog.method("amce/tune"), "method-unknown", "acme/tune"),
        (lambda: catalog.method("acme/"), "method-unknown", ""),
        (lambda: catalog.method(""), "method-unknown", ""),
        (lambda: catalog.method("acme/tune/x"), "method-unknown", "acme/tune"),
        (lambda: catalog.method("acme/../acme/tune"), "method-unknown", ""),
        (lambda: catalog.methods("acne"), "framework-unknown", "acme"),
        (lambda: catalog.method("acme/tune", "1.0"), "release-unknown", "1.0.0"),
        (lambda: surfaces.release("acme", "9"), "release-unknown", "2.0.0"),
    ]:
        with pytest.raises(NotFound) as caught:
            call()
        assert caught.value.code == code
        assert word in caught.value.message + caught.value.hint
        assert caught.value.exit_code == 4


def test_surfaces_are_read_for_the_entry_and_broken_ones_are_said(world: World) -> None:
    release = surfaces.release("acme", "1.0.0", "acme.tune")
    key = release.keys["optim.name"]
    assert (key.types, key.default, key.choices, key.source) == (
        ("str",), "adam", ("adam", "sgd", "lion"), "acme/config.py:11",
    )  # fmt: skip
    assert surfaces.release("acme", "2.0.0", "acme.tune").keys["eval.when"].default == "no", (
        "an entry that moved"
    )
    acme = world.own_manifests()
    for text, code in [
        (None, "surface-missing"),
        ("{", "surface-broken"),
        ("[]", "surface-broken"),
        ('{"entries": {}}', "surface-broken"),
        ('{"entries": {"acme.tune": {"keys": {"a": {}}}}}', "surface-broken"),
        ('{"entries": {"acme.tune": {"keys": [1]}}}', "surface-broken"),
        ("[" * 100_000, "surface-broken"),
        (" " * (17 << 20), "surface-broken"),
    ]:
        path = acme / "surfaces" / "1.0.0.json"
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        forget()
        with pytest.raises(Invalid) as caught:
            surfaces.release("acme", "1.0.0", "acme.tune")
        assert caught.value.code == code, text and text[:30]


def test_templates_of_several_folders(world: World) -> None:
    acme = world.own_manifests()
    (acme / "templates/more").mkdir()
    (acme / "templates/more/eval.py").write_text("print('more')\n")
    (acme / "templates/more/config.yaml").write_text("train: {batch: 4}\n")
    before = catalog.templates("acme/tune")
    digest = catalog.recipe_digest("acme/tune", "1.0.0")
    world.edit("methods/tune.yaml", "templates: tune", "templates: [tune, more]")
    found = catalog.templates("acme/tune")
    assert set(found) == {*before, "eval.py"}
    assert found["config.yaml"] == acme / "templates/more/config.yaml"  # the later folder wins
    assert catalog.recipe_digest("acme/tune", "1.0.0") != digest
    world.edit("methods/tune.yaml", "templates: [tune, more]", "templates: [tune]")
    assert catalog.templates("acme/tune") == before
    assert catalog.recipe_digest("acme/tune", "1.0.0") == digest


def test_releases_sort_as_versions(world: World) -> None:
    acme = world.own_manifests()
    for version in ("1.10.0", "1.9.0", "2.0.0rc1", "nightly"):
        (acme / "releases" / f"{version}.yaml").write_text(f'release: "{version}"\nruntime: {{id: acme-x}}\n')
    forget()
    assert catalog.releases("acme") == ["nightly", "1.0.0", "1.9.0", "1.10.0", "2.0.0rc1", "2.0.0"]


IGNORED = [
    ("methods/tune.yaml", "title: Tune", "title: Tuning"),
    ("methods/tune.yaml", "summary: Tunes", "summary: Trains"),
    ("methods/tune.yaml", "papers: [{title: Tuning, year: 2026}]", "papers: [{title: Tuning, year: 2027}]"),
    ("methods/tune.yaml", "{train/speed: [speed]}", "{train/speed: [speed, tokens]}"),
    ("methods/tune.yaml", "starts_from: [demonstrations]", "starts_from: [pairs]"),
    ("methods/_base.yaml", "note: shared by every acme method", "note: another wording"),
    ("methods/_base.yaml", "{key: data.eval}", "{key: data.eval, hint: another wording}"),
    ("methods/_base.yaml", "the launcher numbers the processes", "another wording"),
    ("rules/common.yaml", "a batch of {train.batch} does not divide", "{train.batch} does not divide"),
    (
        "rules/common.yaml",
        "source: acme 1.0.0 acme/loop.py, split",
        "source: acme 1.0.0 acme/other.py, split",
    ),
    ("rules/common.yaml", 'hint: "use a multiple of {topology.gpus}"', "hint: try another"),
    ("rules/align.yaml", "'forbidden'", "'other'"),
    ("releases/2.0.0.yaml", "status: supported", "status: deprecated"),
    ("releases/1.0.0.yaml", "status: supported", "status: deprecated"),
    ("releases/1.0.0.yaml", "pins: {numpy: 2.4.6}", "pins: {numpy: 2.4.7}"),
    ("releases/2.0.0.yaml", "since: 2.0.0, note: the words are the same", "since: 2.0.0"),
    ("methods/align.yaml", "identity: {optim.kind: offline}", "identity: {optim.kind: other}"),
    ("framework.yaml", "title: Acme Tuner", "title: Acme"),
    ("templates/script/config.yaml", "epochs: 2", "epochs: 3"),
]
COVERED = [
    ("methods/tune.yaml", "identity: {optim.kind: online}", "identity: {optim.kind: offline}"),
    ("methods/tune.yaml", "defaults: {train.steps: 50}", "defaults: {train.steps: 51}"),
    ("methods/tune.yaml", 'version: "1"', 'version: "2"'),
    ("methods/tune.yaml", "batch: {default: 16}", "batch: {default: 32}"),
    ("methods/tune.yaml", "eval: {file: eval.py}", "eval: {file: score.py}"),
    ("methods/_base.yaml", "{key: optim.name, type: string, enum", "{key: optim.kind, type: string, enum"),
    ("methods/_base.yaml", "minimum: 1}", "minimum: 2}"),
    ("methods/_base.yaml", "values: {low: half, high: full}", "values: {low: half, high: whole}"),
    ("methods/_base.yaml", "{key: data.path, required: true}", "{key: data.path}"),
    ("methods/_base.yaml", "suffix: /checkpoints", "suffix: /out"),
    ("methods/_base.yaml", "local_rank: the launcher", "other_rank: the launcher"),
    ("methods/_base.yaml", 'ACME_QUIET: "1"', 'ACME_QUIET: "0"'),
    ("methods/_base.yaml", "launcher: torchrun", "launcher: none"),
    ("methods/_base.yaml", "report_to: [tensorboard]", "report_to: [acme]"),
    ("methods/_base.yaml", "{nodes: nodes, gpus_per_node: devices}", "{nodes: nodes}"),
    ("rules/common.yaml", "cfg.train.steps >= 10", "cfg.train.steps >= 11"),
    ("rules/common.yaml", "when: topology.gpus > 0", "when: topology.gpus > 1"),
    ("rules/common.yaml", "unless: cfg.peft.enabled", "unless: cfg.peft.rank > 0"),
    ("releases/1.0.0.yaml", "id: acme-1.0.0", "id: acme-1.0.1"),
    ("releases/1.0.0.yaml", "acme-curriculum-needs-seed: 1.0.0 has", "acme-steps-short: 1.0.0 has"),
    ("surfaces/1.0.0.json", '"acme/config.py:80"', '"acme/config.py:82"'),
    ("templates/tune/config.yaml", "lr: 3e-4", "lr: 4e-4"),
]  # fmt: skip


def test_the_recipe_digest_covers_what_runs_and_no_prose(world: World) -> None:
    acme = world.own_manifests()
    before = catalog.method("acme/tune", "1.0.0").digest
    for name, old, new in [*IGNORED, *COVERED]:
        original = (acme / name).read_text()
        world.edit(name, old, new)
        after = catalog.method("acme/tune", "1.0.0").digest
        assert (after == before) == ((name, old, new) in IGNORED), (name, old, new)
        (acme / name).write_text(original)
    forget()
    assert catalog.method("acme/tune", "1.0.0").digest == before


def test_the_index_is_read_once_and_rebuilt_when_a_file_changes(world: World) -> None:
    world.own_manifests()
    cache = Path(os.environ["TUNEPORT_CACHE_DIR"]) / "index"
    first = catalog.resolved("acme", "tune")
    kept = {path.name: path.read_bytes() for path in cache.iterdir()}
    forget()
    assert catalog.resolved("acme", "tune") == first, "from the cache"
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == kept
    for damage in (b"", b"{", b"[]", b'{"key": 1}', b"\xff" * 100):
        for path in cache.iterdir():
            path.write_bytes(damage)
        forget()
        assert catalog.resolved("acme", "tune") == first, "a damaged cache costs time only"
    world.edit("methods/tune.yaml", "train.steps: 50", "train.steps: 70")
    assert catalog.resolved("acme", "tune")["defaults"] == {"train.steps": 70}


def test_a_cache_that_cannot_be_written_costs_time_only(world: World, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    world.env("TUNEPORT_CACHE_DIR", str(blocked))
    forget()
    assert catalog.method("acme/tune").id == "acme/tune"
    store.save("x", 1, 2)
    assert store.load("x", 1) is None


def test_the_index_cache_forgets_its_oldest_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(store, "_MOST_FILES", 10)
    for number in range(11):
        store.save(f"x{number}", 1, number)
        path = next((tmp_path / "index").glob(f"x{number}-*"))
        os.utime(path, (number, number))
    store.save("newest", 1, 2)
    assert store.load("newest", 1) == 2
    assert store.load("x10", 1) == 10
    assert store.load("x0", 1) is None
    assert len(list((tmp_path / "index").iterdir())) <= 10


# --- digests

VECTORS: list[tuple[Any, bytes]] = [
    # the examples of RFC 8785
    (
        {"numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
         "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/", "literals": [None, True, False]},
        b'{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        b'"string":"\xe2\x82\xac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
    ),
    ({"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\u0080": 6, "\u00f6": 7},
     '{"\\r":2,"1":4,"\u0080":6,"ö":7,"€":1,"😀":5,"\ufb33":3}'.encode()),
    ([0.0, -0.0, 1.0, 1e21, 1e-7, 5e-324], b"[0,0,1,1e+21,1e-7,5e-324]"),
    (1.7976931348623157e308, b"1.7976931348623157e+308"),
    ({}, b"{}"), ([], b"[]"), ("", b'""'), (2**53 - 1, b"9007199254740991"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), VECTORS)
def test_canonical_json_is_that_of_rfc_8785(value: Any, text: bytes) -> None:
    assert canonical(value) == text
    assert digest(value) == digest_bytes(text)


def test_values_that_differ_have_digests_that_differ() -> None:
    values: list[Any] = [
        2**53, 2**53 + 1, -(2**53), str(2**53), {"$int": str(2**53)}, {"$map": {"$int": str(2**53)}},
        float("inf"), -float("inf"), float("nan"), "inf", {"$float": "inf"}, {"$map": {"$float": "inf"}},
        {"$float": "inf", "x": 1}, None, "null", True, "true", 1, "1", [], {}, "", [None], {"a": None},
        [[1], 2],
        [1, [2]], {"a": {"b": 1}}, {"a.b": 1}, 10**400,
    ]  # fmt: skip
    assert len({digest(value) for value in values}) == len(values)


TEXT = st.text(st.characters(codec="utf-8"))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=10,
)


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(value=JSON)
def test_the_order_of_keys_means_nothing_and_a_json_round_trip_neither(value: Any) -> None:
    def backwards(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: backwards(item[key]) for key in reversed(item)}
        return [backwards(inner) for inner in item] if isinstance(item, list) else item

    assert digest(value) == digest(backwards(value)) == digest(json.loads(json.dumps(value)))


def test_what_json_cannot_hold_has_no_digest() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("\ud800", {"\ud800": 1}, {1: 2}, object(), {1, 2}, b"x", deep):
        with pytest.raises(Invalid) as caught:
            digest(value)
        assert caught.value.code == "not-json"
    while deep:
        deep = deep.pop()  # taken apart by hand: its destructor would recurse as deep


def test_digests_do_not_depend_on_the_process(world: World) -> None:
    code = "from tuneport.registry import catalog; print(catalog.method('acme/tune').digest)"
    found = set()
    for number, extra in enumerate([
        {"PYTHONHASHSEED": "0"}, {"PYTHONHASHSEED": "12345", "LC_ALL": "C"},
        {"PYTHONHASHSEED": "7", "LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Tokyo", "PYTHONUTF8": "0"},
    ]):  # fmt: skip
        env = {**os.environ, **extra, "TUNEPORT_CACHE_DIR": str(world.folder / f"cache{number}")}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        found.add(done.stdout.strip())
    assert found == {catalog.method("acme/tune").digest}
