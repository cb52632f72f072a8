"""Every finding of the checks: its code, the key and line it is about, and a way out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tuneport.checks.rules import nested
from tuneport.checks.surface import fits
from tuneport.errors import Invalid
from tuneport.experiment.findings import findings_text, ordered
from tuneport.types import Finding

from .core_support import World, codes, forget, one


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


FITS: list[tuple[Any, str, bool]] = [
    (1, "int", True), (1, "float", True), (1, "str", True), (1, "bool", False), (1, "list", False),
    (1.5, "float", True), (1.5, "int", False), (2.0, "int", True), (1e300, "int", False), (1.5, "str", True),
    (True, "bool", True), (True, "int", False), (True, "float", False), (True, "str", False),
    ("x", "str", True), ("1", "int", False), ("true", "bool", False), ("x", "list", False),
    ("x", "null", False),
    (None, "null", True), (None, "str", False), (None, "dict", False), (None, "any", True),
    ([], "list", True), ([1], "str", False), ([1], "dict", False), ({}, "dict", True), ({}, "list", False),
    (float("nan"), "float", True), (float("nan"), "int", False), (float("inf"), "int", False),
    (object(), "str", False), (object(), "any", True),
]  # fmt: skip


@pytest.mark.parametrize(("value", "kind", "fit"), FITS, ids=[f"{v!r:.12}-{k}" for v, k, _ in FITS])
def test_what_fits_a_declared_type(value: Any, kind: str, fit: bool) -> None:
    assert fits(value, (kind,)) is fit
    assert fits(value, ("null", kind)) is (fit or value is None)


def judged(world: World, config: str, method: str = "acme/tune", **request: Any) -> list[Finding]:
    world.experiment(method, config)
    return [*world.validate(**request).findings]


# code, config.yaml, method, key, line, a word of the message, a word of the hint
FROM_CONFIG = [
    ("key-unknown", "optim:\n  lrr: 1\n", "optim.lrr", 2, "acme 1.0.0 has no key", "mean `optim.lr`?"),
    ("key-unknown", "\nlr: 1\n", "lr", 2, "has no key", "`optim.lr`"),
    ("key-unknown", "train: {optim: {lr: 1}}\n", "train.optim.lr", 1, "has no key", "`optim.lr`"),
    ("key-unknown", "learning_rate: 1\n", "learning_rate", 1, "has no key", "`optim.lr`"),
    ("key-unknown", "zzzzqqq: 1\n", "zzzzqqq", 1, "has no key", "tp methods acme/tune"),
    ("key-unknown", "optim.lr.deep: 1\n", "optim.lr.deep", 1, "has no key", "optim.lr"),
    ("key-type", "train:\n  batch: many\n", "train.batch", 2, "'many' where acme", "without quotes"),
    ("key-type", "train: {batch: 1.5}\n", "train.batch", 1, "1.5", ""),
    ("key-type", "train: {batch: null}\n", "train.batch", 1, "null", ""),
    ("key-type", "train: {bf16: 'yes'}\n", "train.bf16", 1, "true or false", ""),
    ("key-type", "optim: {name: [adam]}\n", "optim.name", 1, "text", ""),
    ("key-type", "report_to: {a: 1}\n", "report_to", 1, "a list", ""),
    ("key-type", "extra: 5\n", "extra", 1, "a mapping", ""),
    ("key-type", "eval:\n  strategy: no\n", "eval.strategy", 2, "false", 'reads no as false: write "no" in'),
    ("key-type", "eval:\n  strategy: No\n", "eval.strategy", 2, "false", 'write "no" in quotes'),
    ("key-type", "out: {label: on}\n", "out.label", 1, "true", 'write "on" in quotes'),
    ("key-choice", "optim: {name: adamm}\n", "optim.name", 1, "adam, sgd, lion", "did you mean 'adam'?"),
    ("key-choice", "eval: {strategy: never}\n", "eval.strategy", 1, "no, steps, epoch", ""),
    ("key-not-finite", "optim:\n  lr: .inf\n", "optim.lr", 2, "infinity", "large number"),
    ("key-not-finite", "extra: {a: [.nan]}\n", "extra", 1, "NaN", ""),
    ("identity-key", "optim:\n  kind: offline\n", "optim.kind", 2, "makes this acme/tune", "another method"),
    ("identity-key", "optim: {kind: online}\n", "optim.kind", 1, "already has this value", "delete the line"),
    ("platform-key", "out:\n  dir: x\n", "out.dir", 2, "written by the platform", "delete the line"),
    ("platform-key", "model: {name: x}\n", "model.name", 1, "written from --model", "delete the line"),
    ("platform-key", "data: {path: x}\n", "data.path", 1, "written from --train-data", "delete the line"),
    ("platform-key", "nodes: 2\n", "nodes", 1, "hardware you ask for", "--profile"),
    ("platform-key", "local_rank: 0\n", "local_rank", 1, "not yours", "the launcher numbers"),
    ("platform-key", "local_rank: {deep: 0}\n", "local_rank.deep", 1, "not yours", "the launcher numbers"),
    ("acme-steps-short", "train:\n  steps: 3\n", "train.steps", 2, "3 steps are few", ""),
    ("inert-key", "peft:\n  rank: 4\n", "peft.rank", 2, "is set but does nothing", "peft.enabled: true"),
    ("acme-warmup-lion", "optim: {name: lion, warmup: 3}\n", "optim.warmup", 1, "lion has no warm-up", ""),
    ("yaml-duplicate-key", "optim: {lr: 1}\noptim.lr: 2\n", "optim.lr", 2, "nested and dotted", "delete one"),
    ("yaml-duplicate-key", "optim:\n  lr: 1\n  lr: 2\n", "optim.lr", 3, "written twice", "delete one"),
    ("yaml-root", "- a\n", "config.yaml", 1, "holds a list", "key: value"),
    ("yaml-root", "text\n", "config.yaml", 1, "holds a str", "key: value"),
]  # fmt: skip


@pytest.mark.parametrize("row", FROM_CONFIG, ids=[f"{i}-{row[0]}" for i, row in enumerate(FROM_CONFIG)])
def test_findings_about_the_configuration(world: World, row: tuple[str, str, str, int, str, str]) -> None:
    code, config, key, line, message, hint = row
    findings = judged(world, config)
    finding = one(findings, code)
    assert (finding.key, finding.line) == (key, line)
    assert finding.file == str(world.root / "experiments" / "exp" / "config.yaml")
    assert message in finding.message
    assert hint in finding.hint
    serious = {"acme-steps-short": "warning", "inert-key": "warning", "acme-warmup-lion": "warning"}
    assert finding.severity == serious.get(code, "error")
    assert len([f for f in findings if f.severity != "note"]) == 1, "one fault is said once"
    if code in ("key-type", "key-choice"):
        assert finding.source.startswith("acme 1.0.0 acme/config.py:")
    if code.startswith(("acme-", "inert")):
        assert finding.source.startswith("acme 1.0.0")


@pytest.mark.parametrize("line", ["data: {path: x}\n", "model: {name: x}\n"])
def test_a_key_whose_flag_was_not_given_names_it(world: World, line: str) -> None:
    option = "--model" if line.startswith("model") else "--train-data"
    findings = judged(world, line, **{option[2:].replace("-", "_"): None})
    assert f"give {option}" in one(findings, "platform-key").hint


ACCEPTED = [
    "",
    "optim: {lr: 1e-6, name: sgd, warmup: 5}\n",
    "optim:\n  lr: 1\ntrain:\n  batch: 2.0\n  seed: null\n  mixed: 0.5\n  bf16: on\n",
    "optim.lr: 0.1\ntrain.steps: 10\n",
    "extra: {anything: {goes: [1, x, null]}}\nplugin: {a: 1}\n",
    "extra.deep.key: 1\n",
    "report_to: wandb\n",
    "report_to: [wandb, tensorboard]\n",
    "peft: {enabled: true, rank: 4, targets: [q, v]}\n",
    'eval: {strategy: "no", every: 0}\nout: {label: 5}\n',
    "data: {train: {dataset: me/set@1}, validation: {dataset: me/set@2}}\n",
    "peft.targets: q\n",
]


@pytest.mark.parametrize("config", ACCEPTED)
def test_what_the_release_accepts_is_accepted(world: World, config: str) -> None:
    findings = judged(world, config)
    assert not codes(findings, "error", "warning"), findings_text(findings)


def test_a_required_key_that_nothing_sets_is_said(world: World) -> None:
    world.own_manifests()
    world.edit("methods/_base.yaml", "model: {key: model.name, required: true}", "model: {key: out.label}")
    finding = one(judged(world, ""), "key-required")
    assert finding.key == "model.name"
    assert "config.yaml" in finding.hint
    assert not codes(judged(world, "model: {name: x}\n"))


def test_moved_keys_are_told_where_they_went(world: World) -> None:
    world.experiment(config="optim:\n  warmup: 3\neval:\n  strategy: steps\n", version="2.0.0")
    found = [f for f in world.validate().findings if f.code == "key-moved"]
    assert [(f.key, f.line) for f in found] == [("optim.warmup", 2), ("eval.strategy", 4)]
    assert "optim.schedule.warmup" in found[0].message
    assert found[1].hint == "write eval.when"


@pytest.mark.parametrize(
    ("said", "code", "severity", "words"),
    [
        ('status: deprecated\nsunset: "2999-01-31"', "release-deprecated", "warning", "ends on 2999-01-31"),
        ("status: deprecated", "release-deprecated", "warning", "is deprecated"),
        ("deprecated: 2020-01-31", "release-deprecated", "warning", "is deprecated"),
        ("deprecated: 2999-01-31", "release-deprecated", "note", "will be deprecated on 2999-01-31"),
        ("sunset: 2999-01-31", "release-deprecated", "note", "ends on 2999-01-31"),
        ("deprecated: 2020-01-31\nsunset: 2020-02-29", "release-sunset", "warning", "its end on 2020-02-29"),
    ],
)
def test_the_dates_of_a_release_are_said_and_stop_nothing(
    world: World, said: str, code: str, severity: str, words: str
) -> None:
    world.own_manifests()
    world.experiment()
    before = world.plan_json()
    world.edit("releases/1.0.0.yaml", "status: supported", said)
    report = world.validate()
    finding = one(report.findings, code)
    assert finding.severity == severity and words in finding.message
    assert report.ok and world.plan_json() == before, "no lock goes stale and no plan changes"
    other = world.experiment(name="other", version="2.0.0")
    assert other.is_dir() and not {"release-deprecated", "release-sunset"} & {
        one.code for one in world.validate("other").findings
    }


def test_the_request_itself_is_judged(world: World) -> None:
    world.experiment()
    report = world.validate(model="", train_data="", profile="")
    missing = [f for f in report.findings if f.code == "request-missing"]
    assert [f.key for f in missing] == ["--model", "--train-data"]
    assert missing[0].message == "acme/tune needs --model"
    profile = one(report.findings, "profile-missing")
    assert (profile.severity, profile.key) == ("note", "--profile")
    assert one(world.validate(image="repo:tag").findings, "image-tag").severity == "note"
    assert "image-tag" not in codes(world.validate(image="repo@sha256:" + "0" * 64).findings, "note")
    with pytest.raises(Invalid) as caught:
        world.plan(profile="")
    assert caught.value.code == "profile-missing"
    assert codes(caught.value.findings) == ["profile-missing"]


def test_flags_that_a_method_has_no_use_for_are_errors(world: World) -> None:
    world.experiment("acme/script")
    found = [f for f in world.validate().findings if f.code == "flag-unused"]
    assert [f.key for f in found] == ["--model", "--train-data"]
    assert "acme/script has no use for --model" in found[0].message


def test_files_that_must_lie_beside_the_config(world: World) -> None:
    path = world.experiment("acme/shell")
    given = {"model": "", "train_data": "d", "image": "r@sha256:x"}
    finding = one(world.validate(**given).findings, "file-missing")
    assert (finding.key, finding.hint) == ("train.sh", "write train.sh: what to run")
    (path / "train.sh").write_text("echo\n")
    assert world.validate(**given).ok
    path = world.experiment("acme/script", name="own")
    (path / "train.py").unlink()
    finding = one(world.validate("own", model="", train_data="").findings, "file-missing")
    assert finding.key == "train.py"


def test_a_method_that_brings_its_image_needs_one_away_from_here(world: World) -> None:
    world.experiment("acme/shell", files={"train.sh": ""})
    given = {"model": "", "train_data": "d"}
    assert one(world.validate(**given).findings, "host-runtime").severity == "note"
    finding = one(world.validate(fleet="cluster", **given).findings, "image-missing")
    assert (finding.severity, finding.key) == ("error", "--image")


def test_names_of_variables_and_datasets_are_judged(world: World) -> None:
    world.experiment(job='env: {"1BAD": x, "A=B": y, GOOD: z}\n')
    found = [f.key for f in world.validate().findings if f.code == "env-name"]
    assert sorted(found) == ["env.1BAD", "env.A=B"]
    world.experiment(job="env: {TUNEPORT_ROLE: x, TUNEPORT_CLUSTER_NODES: '2', TUNEPORT_CACHE_DIR: /c}\n")
    found = [f.key for f in world.validate().findings if f.code == "env-platform"]
    assert sorted(found) == ["env.TUNEPORT_CLUSTER_NODES", "env.TUNEPORT_ROLE"]
    world.experiment()
    report = world.validate(train_dataset="no-version")
    assert not report.ok
    assert any(f.key == "--train-dataset" for f in report.findings)


def test_data_that_is_not_here_is_a_note_of_validate(world: World) -> None:
    world.experiment()
    report = world.validate(train_data="/nowhere/train.jsonl", model="/nowhere/model")
    assert report.ok
    assert one(report.findings, "data-not-here").key == "--train-data"
    assert one(report.findings, "model-not-here").key == "--model"


@pytest.mark.parametrize(
    ("name", "content", "code", "says"),
    [
        ("a.jsonl", b'{"a": 1}\n{broken\n', "data-broken", "line 2: it is no JSON"),
        ("b.jsonl", b'{"a": "\xe9"}\n', "data-broken", "line 1: it is not UTF-8"),
        ("c.parquet", b"PAR1 and no more", "data-unreadable", "cannot be read as parquet"),
        ("d.csv", b"a,b\n\xe9,1\n", "data-unreadable", "cannot be read as csv"),
    ],
)
def test_data_that_cannot_be_read_is_said(
    world: World, tmp_path: Path, name: str, content: bytes, code: str, says: str
) -> None:
    world.experiment()
    path = tmp_path / name
    path.write_bytes(content)
    finding = one(world.validate(train_data=str(path)).findings, code)
    assert says in finding.message and finding.severity == "warning"
    path.write_bytes(b'{"a": 1}\n')
    if name.endswith(".jsonl"):
        assert code not in {f.code for f in world.validate(train_data=str(path)).findings}


def test_links_odd_names_and_too_many_files_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuneport.experiment import facts

    path = world.experiment()
    (path / "secret").symlink_to("/etc/passwd")
    (path / "folder").symlink_to("/etc")
    (path / "sub").mkdir()
    (path / "sub" / "__pycache__").mkdir()
    (path / "sub" / "__pycache__" / "x.pyc").write_bytes(b"x")
    found = [f for f in world.validate().findings if f.code == "source-link"]
    assert sorted(f.message.split()[0] for f in found) == ["folder", "secret"]
    world.experiment()
    name = b"caf\xe9.txt"
    with open(bytes(path) + b"/" + name, "wb"):
        pass
    assert one(world.validate().findings, "source-name").severity == "error"
    world.experiment(files={f"f{n}": "" for n in range(5)})
    monkeypatch.setattr(facts, "MAX_FILES", 3)
    assert one(world.validate().findings, "source-too-large").severity == "error"
    monkeypatch.setattr(facts, "MAX_FILES", 100)
    monkeypatch.setattr(facts, "MAX_BYTES", 3)
    assert one(world.validate().findings, "source-too-large").hint


# --- rules


def test_rules_see_hardware_data_model_and_the_whole_configuration(world: World, tmp_path: Path) -> None:
    world.experiment(config="train:\n  batch: 12\n", files={"a.jsonl": '{"body": 1}\n'})
    report = world.validate(profile="h200:8", train_data="a.jsonl")
    finding = one(report.findings, "acme-batch-divides")
    assert finding.message == "a batch of 12 does not divide over 8 GPUs"
    assert finding.hint == "use a multiple of 8"
    assert (finding.key, finding.line, finding.source) == ("train.batch", 2, "acme 1.0.0 acme/loop.py, split")
    assert one(report.findings, "acme-columns").message == "the training data has no column text: ['body']"
    assert world.validate(profile="cpu:8").ok, "there are processes, and no GPUs to divide over"


def test_a_rule_whose_inputs_are_unknown_is_undecided_and_never_an_error(world: World) -> None:
    world.experiment()
    report = world.validate()
    assert report.ok
    undecided = report.facts["undecided"]
    assert [row.partition(":")[0] for row in undecided] == ["acme-heads-divide", "acme-columns"]
    report = world.validate(profile="")
    assert "acme-batch-divides" in [row.partition(":")[0] for row in report.facts["undecided"]]
    assert report.ok


def test_a_default_that_does_nothing_is_nobodys_mistake(world: World) -> None:
    world.own_manifests()
    world.edit(
        "methods/tune.yaml", "defaults: {train.steps: 50}", "defaults: {train.steps: 50, peft.rank: 4}"
    )
    assert not codes(judged(world, ""), "warning")
    assert codes(judged(world, "peft: {rank: 4}\n"), "warning") == ["inert-key"]
    assert not codes(judged(world, "peft: {rank: 4, enabled: true}\n"), "warning")


UNDECIDED = [
    *["cfg.nosuch.key", "cfg.train.batch / 0 == 1", "cfg.train.batch", "1 + 1.5 > 0", "cfg.out.label > 3"],
    *["data.train.columns.all(x, x == '')", "model.a.b.c == 1", "env.NOPE == ''", "[1, 2, 3][9] == 1"],
    *["int('x') == 1", "9223372036854775807 + cfg.train.batch > 0"],
]


def test_rules_that_cannot_be_decided_stay_silent(world: World) -> None:
    acme = world.own_manifests()
    rules = [
        {"code": f"acme-r{number}", "require": source, "severity": "error", "say": "x", "source": "s"}
        for number, source in enumerate(UNDECIDED)
    ]
    (acme / "rules" / "align.yaml").write_text(json.dumps({"rules": rules}))
    forget()
    world.experiment("acme/align")
    report = world.validate()
    assert report.ok, findings_text(report.findings)
    assert len([row for row in report.facts["undecided"] if row.startswith("acme-r")]) == len(UNDECIDED)


def test_placeholders_are_filled_and_nothing_else_is_read_as_one(world: World) -> None:
    acme = world.own_manifests()
    (acme / "rules" / "align.yaml").write_text(
        "rules:\n  - code: acme-say\n    require: 'false'\n    severity: note\n    source: s\n"
        "    say: '{train.batch} {topology.processes} {cfg.train.bf16} {nosuch.key} {0} {train.batch!r}"
        " {} {{x}} {train.batch.__class__} {out.label} {request.model} {params.batch}'\n"
    )
    forget()
    world.experiment("acme/align", "out: {label: '{optim.lr} \\u001b[31m'}\n")
    report = world.validate(set={"batch": 4})
    finding = one(report.findings, "acme-say")
    assert finding.message == ("4 2 false ? {0} {train.batch!r} {} {?} ? {optim.lr} \\u001b[31m org/model 4")


def test_nested_keeps_every_key() -> None:
    assert nested({"a.b": 1, "a.c": 2, "d": 3}) == {"a": {"b": 1, "c": 2}, "d": 3}
    assert nested({"a": 5, "a.b": 1}) == {"a": 5, "a.b": 1}
    assert nested({"a": {"x": 1}, "a.b": 2}) == {"a": {"x": 1, "b": 2}}
    assert nested({"a.b": 2, "a": {"x": 1}}) == {"a": {"x": 1, "b": 2}}


# --- the method whose surface is the experiment's own script

SCRIPT = """import argparse
p = argparse.ArgumentParser()
p.add_argument("--epochs", type=int, required=True)
p.add_argument("--mode", choices=["fast", "slow"])
p.add_argument("--out")
p.add_argument("--lr", type=float)
"""
OWN = {"model": "", "train_data": ""}


@pytest.mark.parametrize(
    ("config", "script", "code", "severity"),
    [
        ("epochs: 2\n", SCRIPT, "", ""),
        ("epochs: x\n", SCRIPT, "key-type", "error"),
        ("", SCRIPT, "key-required", "error"),
        ("epochs: 1\nmode: fsat\n", SCRIPT, "key-choice", "error"),
        ("epochs: 1\nepoch: 1\n", SCRIPT, "key-unknown", "error"),
        ("epochs: 1\nnew: 1\n", SCRIPT + "for n in names(): p.add_argument(n)\n", "key-unknown", "warning"),
        ("epochs: 1\n", "def (\n", "script-syntax", "error"),
    ],
)
def test_the_scripts_own_flags_are_the_surface(
    world: World, config: str, script: str, code: str, severity: str
) -> None:
    world.experiment("acme/script", config, files={"train.py": script})
    found = [f for f in world.validate(**OWN).findings if f.severity != "note"]
    assert [(f.code, f.severity) for f in found] == ([(code, severity)] if code else [])
    if code == "key-type":
        assert found[0].source == "" or "train.py" in found[0].source


# --- findings themselves


def test_findings_are_ordered_deduplicated_and_printable() -> None:
    note = Finding("n", "note", "m")
    error = Finding("e", "error", "b\x1b[31m\u202e", "h", "k", "f.yaml", 3, "s")
    warning = Finding("w", "warning", "m", file="a.yaml")
    assert ordered([note, error, warning, error]) == [error, warning, note]
    text = findings_text([error, warning, note])
    assert text.splitlines() == [
        "f.yaml:3: error[e]: b\\x1b[31m\\u202e",
        "    hint: h",
        "    source: s",
        "a.yaml: warning[w]: m",
        "note[n]: m",
    ]


def test_all_problems_are_said_at_once(world: World) -> None:
    world.experiment(
        config="optim:\n  lrr: 1\n  kind: x\ntrain:\n  batch: many\n  steps: 2\neval: {strategy: no}\n",
        job="params: {nosuch: 1}\nimage: i:1\nfleeet: x\n",
    )
    report = world.validate(model="", profile="h200:0")
    assert set(codes(report.findings)) >= {
        "key-unknown", "identity-key", "key-type", "job-schema", "request-missing", "profile-form",
    }  # fmt: skip
    assert "acme-steps-short" in codes(report.findings, "warning")
    schema = one(report.findings, "job-schema")
    assert "'fleeet'" in schema.message and schema.hint == "did you mean 'fleet'?"


def test_an_experiment_folder_works_by_path_without_a_project(world: World, tmp_path: Path) -> None:
    path = world.experiment()
    alone = tmp_path / "alone"
    shutil.copytree(path, alone)
    assert world.validate(str(alone)).ok


def test_a_section_may_do_nothing_as_a_whole(world: World) -> None:
    acme = world.own_manifests()
    inert = {
        "key": "peft.*",
        "unless": "cfg.peft.enabled",
        "except": ["peft.enabled"],
        "say": "peft is off",
        "source": "s",
    }
    (acme / "rules" / "align.yaml").write_text(json.dumps({"inert": [inert]}))
    forget()
    found = judged(world, "peft: {rank: 4, targets: [q], enabled: false}\n", "acme/align")
    dead = [finding.key for finding in found if finding.code == "inert-key"]
    assert sorted(dead) == ["peft.rank", "peft.targets"]
    assert not codes(judged(world, "peft: {rank: 4, enabled: true}\n", "acme/align"), "warning")


def test_what_files_of_the_experiment_define_is_a_fact(world: World) -> None:
    world.experiment(files={"score.py": "def score(a, *, b): ...\n", "more.py": "x = 1\n"})
    functions = world.validate().facts["functions"]
    assert functions["score.py"]["score"]["required"] == ["a", "b"]
    assert functions["more.py"]["x"]["kind"] == "value"
