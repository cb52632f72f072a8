"""`--set` means what the parameter's schema says, and hardware, roles and data are merged as documented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tuneport.errors import UsageError
from tuneport.experiment import hardware, values
from tuneport.types import Location, Param, Pool, Topology

from .core_support import SLOW, World, codes, one

TEXT = {"type": "string"}
NUMBER = {"type": "number"}
INTEGER = {"type": "integer", "minimum": 1}
MIXED = {"anyOf": [{"type": "string"}, {"type": "number"}]}
NULLABLE = {"type": ["integer", "null"]}
NULLABLE_TEXT = {"anyOf": [{"type": "string"}, {"type": "null"}]}
LIST = {"type": "array", "items": {"type": "string"}}
CHOICE = {"enum": ["low", 2, None, True]}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def param(schema: dict[str, Any]) -> Param:
    return Param("x", schema, ("native.x",))


@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
@given(text=st.text())
def test_text_is_verbatim_where_only_text_is_allowed(text: str) -> None:
    assert values.read(text, param(TEXT)) == text
    assert values.split(f"name={text}") == ("name", text)


@pytest.mark.parametrize("text", ["null", "true", "5", '"quoted"', "[1]", "{}", " x ", "~", "1e3", ""])
def test_text_that_looks_like_something_else_is_still_text(text: str) -> None:
    assert values.read(text, param(TEXT)) == text
    assert values.read(text, param({"type": "string", "enum": ["a", text]})) == text


READ = [
    (NUMBER, "1e-6", 1e-6), (NUMBER, "3", 3), (NUMBER, "3.", 3.0), (NUMBER, "+.5", 0.5), (NUMBER, "007", 7),
    (NUMBER, "abc", "abc"), (NUMBER, "", ""), (NUMBER, "1_0", "1_0"), (NUMBER, "null", None),
    (NUMBER, "0x10", "0x10"), (NUMBER, "1:30", "1:30"), (NUMBER, "true", True),
    (INTEGER, "5", 5), (INTEGER, "5.0", 5.0), (INTEGER, '"5"', "5"),
    (NULLABLE, "null", None), (NULLABLE, "~", None), (NULLABLE, "5", 5), (NULLABLE, "none", "none"),
    (NULLABLE_TEXT, "null", None), (NULLABLE_TEXT, "5", "5"), (NULLABLE_TEXT, "true", "true"),
    (NULLABLE_TEXT, "text", "text"), (NULLABLE_TEXT, "[1]", "[1]"),
    (MIXED, "2.0", 2.0), (MIXED, "2", 2), (MIXED, "auto", "auto"), (MIXED, "0.5_5.0", "0.5_5.0"),
    (MIXED, "null", "null"), (MIXED, "true", "true"), (MIXED, "1e400", "1e400"), (MIXED, '"2.0"', "2.0"),
    (LIST, '["a", "b"]', ["a", "b"]), (LIST, "[a, b]", ["a", "b"]), (LIST, "[no, on]", ["no", "on"]),
    (LIST, "[null]", [None]), (LIST, "[a", "[a"), (LIST, "a", "a"),
    (CHOICE, "low", "low"), (CHOICE, "2", 2), (CHOICE, "null", None), (CHOICE, "true", True),
    ({"type": "object"}, '{"a": {"b": 1}}', {"a": {"b": 1}}), ({"type": "object"}, "{a: 1e-3}", {"a": 0.001}),
    ({}, "x", "x"), ({}, "1", 1), ({"oneOf": [TEXT, {"type": "boolean"}]}, "false", False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "text", "value"), READ, ids=[f"{i}-{t[:12]}" for i, (_, t, _) in enumerate(READ)]
)
def test_other_values_are_read_by_the_schema(schema: dict[str, Any], text: str, value: Any) -> None:
    read = values.read(text, param(schema))
    assert (read, type(read)) == (value, type(value))


@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
@given(
    value=st.one_of(
        st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.booleans()
    )
)
def test_numbers_arrive_as_they_are(value: Any) -> None:
    assert values.read(json.dumps(value), param(NUMBER)) == value
    assert values.read(json.dumps([value]), param({"type": "array"})) == [value]


@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
@given(text=st.text(st.sampled_from('[]{}",:ab \\0n-_.&*!|>\n'), max_size=30))
def test_no_value_breaks_the_reader(text: str) -> None:
    for schema in (NUMBER, LIST, NULLABLE_TEXT):
        read = values.read(text, param(schema))
        assert isinstance(read, dict | list | str | int | float) or read is None


def said(world: World, *sets: str) -> dict[str, tuple[str, str]]:
    """code -> (key, message) of what is said about some `--set`."""
    report = world.validate("exp", *sets)
    return {f.code: (f.key, f.message) for f in report.findings if f.code.startswith(("param-", "set-"))}


def test_set_is_judged_by_the_parameter(world: World) -> None:
    world.experiment()
    assert not said(world, "learning_rate=1e-5", "seed=null", "mixed=0.5_5.0", "targets=[q, v]")
    assert said(world, "learning_rate=null")["param-value"][0] == "learning_rate"
    assert "null" in said(world, "bf16=null")["param-value"][1]
    assert "minimum of 0" in said(world, "learning_rate=0")["param-value"][1]
    assert said(world, "batch=2.5")["param-value"][0] == "batch"
    assert said(world, "batch={}")["param-value"][0] == "batch"
    assert said(world, "batch=[]")["param-value"][0] == "batch"
    assert said(world, "batch=")["param-value"][0] == "batch"
    assert said(world, "learning_rate=1e400")["param-value"][0] == "learning_rate"
    report = world.validate("exp", "optimizer=adm")
    assert one(report.findings, "param-value").hint == "did you mean 'adam'?"
    report = world.validate("exp", "batch=x")
    assert one(report.findings, "param-value").hint == "integer >= 1"


def test_a_native_key_is_refused_naming_its_parameter(world: World) -> None:
    world.experiment()
    finding = one(world.validate("exp", "optim.lr=1").findings, "param-native")
    assert "`learning_rate`" in finding.message
    assert finding.hint == "--set learning_rate=…"
    finding = one(world.validate("exp", "train.steps=5").findings, "param-unknown")
    assert "native keys belong in config.yaml" in finding.hint
    finding = one(world.validate("exp", "lerning_rate=5").findings, "param-unknown")
    assert finding.hint == "did you mean `learning_rate`?"
    finding = one(world.validate("exp", "curriculum=length").findings, "param-unknown")
    assert finding.key == "curriculum", "gated in this release"


def test_the_last_of_a_repeated_name_wins_with_a_note(world: World) -> None:
    world.experiment()
    report = world.validate("exp", "batch=2", "batch=4", "seed=1")
    assert report.ok
    assert one(report.findings, "set-repeated").severity == "note"
    assert report.compiled is not None
    assert report.compiled.context.own["train.batch"] == 4


def test_set_without_a_name_or_sign_is_a_usage_error(world: World) -> None:
    world.experiment()
    for text in ("batch", "=5", ""):
        with pytest.raises(UsageError) as caught:
            world.validate("exp", text)
        assert caught.value.exit_code == 2


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, *SLOW])
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40))
def test_any_unicode_reaches_the_plan_as_it_is(world: World, text: str) -> None:
    world.experiment()
    plan = world.plan(set={"acme_label": text})
    assert f"--out.label={text}" in plan.commands[0].argv
    assert plan.config["out.label"] == text


def test_half_a_character_is_a_finding_not_a_crash(world: World) -> None:
    world.experiment()
    for text in ("acme_label=\udcff", "targets=[\udcff]", "batch=\udcff", "\udcff=1"):
        report = world.validate("exp", text)
        assert not report.ok, text


def test_values_from_job_yaml_are_judged_with_their_line(world: World) -> None:
    world.experiment(job="params:\n  learning_rate: 1e-6\n  batch: 0\n  optim.lr: 1\n  nosuch: 1\n")
    found = world.validate().findings
    assert one(found, "param-value").line == 3
    assert one(found, "param-value").file.endswith("job.yaml")
    assert one(found, "param-native").line == 4
    assert one(found, "param-unknown").line == 5
    world.experiment(job="params: {batch: 2, seed: 1}\n")
    report = world.validate(set={"batch": 6})
    assert report.compiled is not None
    assert report.compiled.context.own["train.batch"] == 6
    assert report.compiled.context.origins["train.batch"].layer == "--set"
    assert report.compiled.context.origins["train.seed"].layer == "job.yaml"


PROFILES: list[tuple[str, int, tuple[Pool, ...] | None]] = [
    ("h200:8", 8, (Pool("main", "h200", 1, 8),)),
    ("h200:1", 8, (Pool("main", "h200", 1, 1),)),
    ("h200:3", 8, (Pool("main", "h200", 1, 3),)),
    ("h200:16", 8, (Pool("main", "h200", 2, 8),)),
    ("h200:16", 4, (Pool("main", "h200", 4, 4),)),
    ("gb200-nvl:72", 4, (Pool("main", "gb200-nvl", 18, 4),)),
    ("cpu:2", 8, (Pool("main", "cpu", 1, 2),)),
    ("cpu:40", 8, (Pool("main", "cpu", 1, 40),)),
    ("h200:12", 8, None),
    ("h200:0", 8, None),
    ("h200", 8, None),
    ("h200:", 8, None),
    (":8", 8, None),
    ("H200:8", 8, None),
    ("h200:8 ", 8, None),
    ("h200:-8", 8, None),
    ("h200:8.0", 8, None),
    ("h200:９", 8, None),
    ("h200:9999999", 8, None),
    ("", 8, None),
]


@pytest.mark.parametrize(("text", "node", "pools"), PROFILES, ids=[f"{t}/{n}" for t, n, _ in PROFILES])
def test_profiles(text: str, node: int, pools: tuple[Pool, ...] | None) -> None:
    topology, findings = hardware.from_profile(text, node)
    if pools is None:
        assert topology is None
        assert codes(findings) == ["profile-form"]
        assert findings[0].hint and findings[0].key == "--profile"
    else:
        assert topology == Topology(pools)
        assert not findings


def test_the_site_says_how_large_a_node_is(world: World) -> None:
    (world.folder / "site.yaml").write_text("fleets: {local: {kind: local, gpus_per_node: 4}}\n")
    world.experiment()
    assert world.plan(profile="h200:8").pools == (Pool("main", "h200", 2, 4),)


TWO = """
pools:
  - {name: big, series: h200, nodes: 2, gpus_per_node: 8}
  - {name: small, series: l40, nodes: 1, gpus_per_node: 2}
roles: {actor: big, critic: small}
"""


def test_resources_files_with_and_without_their_wrapper(world: World, tmp_path: Path) -> None:
    world.experiment("acme/align")
    wrapped = "spec:\n  resources:\n" + "".join(f"    {line}\n" for line in TWO.strip().splitlines())
    for number, text in enumerate((TWO, wrapped)):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        report = world.validate(profile="", resources=path, fleet="cluster", set={"batch": 16})
        assert report.ok, report.findings
        assert report.compiled is not None
        topology = report.compiled.context.topology
        assert [pool.name for pool in topology.pools] == ["big", "small"]
        assert topology.roles == {"actor": "big", "critic": "small"}


BROKEN_RESOURCES = [
    ("", "resources-schema"),
    ("[]", "resources-schema"),
    ("{}", "resources-empty"),
    ("roles: {actor: big}", "resources-empty"),
    ("spec: {}", "resources-empty"),
    ("pools: []", "resources-schema"),
    ("pools: [{name: a}]", "resources-schema"),
    ("pools: [{name: a, series: h200, nodes: 0, gpus_per_node: 8}]", "resources-schema"),
    ("pools: [{name: a, series: h200, nodes: 1, gpus_per_node: 1.5}]", "resources-schema"),
    ("pools: [{name: A!, series: h200, nodes: 1, gpus_per_node: 8}]", "resources-schema"),
    ("pool: []", "resources-schema"),
    ("pools: [", "yaml-syntax"),
    ("pools: !!python/tuple []", "yaml-tag"),
    (TWO.replace("small, series", "big, series"), "pool-duplicate"),
    (TWO.replace("critic: small", "critic: gone"), "pool-unknown"),
    (TWO.replace("critic: small", "judge: small"), "role-unknown"),
    (TWO.replace(", critic: small", ""), "roles-missing"),
]


@pytest.mark.parametrize(
    ("text", "code"), BROKEN_RESOURCES, ids=[f"{i}-{c}" for i, (_, c) in enumerate(BROKEN_RESOURCES)]
)
def test_broken_resources_are_findings(world: World, tmp_path: Path, text: str, code: str) -> None:
    world.experiment("acme/align")
    path = tmp_path / "resources.yaml"
    path.write_text(text)
    report = world.validate(profile="", resources=path, fleet="cluster")
    assert code in codes(report.findings), report.findings
    assert not report.ok


def test_a_missing_resources_file_and_one_pool_roles(world: World, tmp_path: Path) -> None:
    world.experiment("acme/align")
    report = world.validate(profile="", resources=tmp_path / "gone.yaml")
    assert "file-missing" in codes(report.findings)
    report = world.validate(profile="h200:8")
    assert report.compiled is not None
    assert report.compiled.context.topology.roles == {"actor": "main", "critic": "main"}


def test_two_pools_need_a_fleet_that_has_them(world: World, tmp_path: Path) -> None:
    world.experiment("acme/align")
    path = tmp_path / "resources.yaml"
    path.write_text(TWO)
    finding = one(world.validate(profile="", resources=path).findings, "pools-fleet")
    assert finding.key == "--fleet"


def test_flags_win_over_job_project_and_site(world: World) -> None:
    def asked(**request: Any) -> Any:
        report = world.validate(**{"model": "", "train_data": "d", "profile": "", **request})
        assert report.compiled is not None
        return report.compiled.context

    (world.folder / "site.yaml").write_text("fleet: site-fleet\nfleets: {site-fleet: {kind: local}}\n")
    world.experiment()
    assert asked().request.fleet == "site-fleet"
    (world.root / "tuneport.yaml").write_text(
        "fleet: project-fleet\nmodel: project-model\nprofile: cpu:1\nimage: i:1\n"
        "env: {A: project, B: project}\n"
    )
    context = asked()
    assert context.request.fleet == "project-fleet"
    assert context.request.model == Location("hub", "project-model")
    assert context.topology.pools == (Pool("main", "cpu", 1, 1),)
    assert context.request.image == "i:1"
    world.experiment(job="fleet: job-fleet\nmodel: job-model\nprofile: cpu:2\nimage: i:2\nenv: {B: job}\n")
    context = asked()
    assert context.request.fleet == "job-fleet"
    assert context.request.model == Location("hub", "job-model")
    assert context.topology.pools == (Pool("main", "cpu", 1, 2),)
    assert context.request.env == {"A": "project", "B": "job"}
    context = asked(fleet="f", model="m", profile="cpu:3", image="i:3")
    assert (context.request.fleet, context.request.image) == ("f", "i:3")
    assert context.request.model == Location("hub", "m")
    assert context.topology.pools == (Pool("main", "cpu", 1, 3),)


def test_job_yaml_resources_give_way_to_a_profile(world: World) -> None:
    pools = "resources: {pools: [{name: p, series: h200, nodes: 1, gpus_per_node: 4}]}\n"
    world.experiment(job=pools)
    assert world.plan(profile="").pools == (Pool("p", "h200", 1, 4),)
    assert world.plan(profile="cpu:1").pools == (Pool("main", "cpu", 1, 1),)


def test_where_data_and_models_are_looked_for(world: World, tmp_path: Path) -> None:
    path = world.experiment(files={"train.jsonl": '{"text": "a"}\n'})
    (world.root / "here.jsonl").write_text("{}\n")

    def data(text: str, **more: Any) -> Location | None:
        report = world.validate(train_data=text, **more)
        assert report.compiled is not None
        return report.compiled.context.request.train_data

    assert data("train.jsonl") == Location("experiment", "train.jsonl")
    assert data("./train.jsonl") == Location("experiment", "train.jsonl")
    assert data("here.jsonl") == Location("path", str(world.root / "here.jsonl"))
    assert data("org/data") == Location("hub", "org/data")
    assert data("data") == Location("hub", "data")
    assert data("/abs/file") == Location("path", "/abs/file")
    assert data("gone.jsonl") == Location("path", str(world.root / "gone.jsonl"))
    assert data("../x") == Location("path", str(world.root.parent / "x"))
    assert data("~/x") == Location("path", str(tmp_path / "x"))
    assert data("in/side", train_dataset="me/set@1") == Location("dataset", "in/side", "me/set@1")
    (path / "job.yaml").write_text("data: {train: {path: gone.jsonl}}\n")
    assert data("") == Location("path", str(path / "gone.jsonl")), "beside the file that names it"


def test_facts_are_read_from_data_and_model_here(world: World, tmp_path: Path) -> None:
    files = {
        "a.jsonl": '{"text": "é", "n": 1}\n\n{"text": "y"}\n', "b.csv": "text,label\nx,1\ny,2\n",
        "broken.jsonl": "{", "deep.jsonl": "[" * 100_000,
    }  # fmt: skip
    world.experiment(files=files)

    def facts(name: str) -> Any:
        return world.validate(train_data=name).facts["data"]["train"]

    assert facts("a.jsonl")["columns"] == ["n", "text"]
    assert facts("a.jsonl")["rows"] == 2
    assert (facts("b.csv")["columns"], facts("b.csv")["rows"]) == (["text", "label"], 2)
    for name in ("broken.jsonl", "deep.jsonl"):
        assert "rows" not in facts(name), name
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"num_attention_heads": 3, "rope": {"x": 1}}')
    report = world.validate(model=str(model))
    assert report.facts["model"] == {"num_attention_heads": 3}
    assert "acme-heads-divide" in codes(report.findings)
    (model / "config.json").write_text("[" * 100_000)
    assert world.validate(model=str(model)).facts["model"] == {}
    turned = {"rope_scaling": {"type": "yarn", "factor": 4.0}, "rope_parameters": {"full": {"factor": 2.0}}}
    (model / "config.json").write_text(json.dumps(turned))
    assert world.validate(model=str(model)).facts["model"] == turned
    plain = {"rope_scaling": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
    (model / "config.json").write_text(json.dumps(plain))
    assert world.validate(model=str(model)).facts["model"] == {}


def test_declared_facts_win_and_give_the_hardware(world: World, tmp_path: Path) -> None:
    world.experiment(files={"a.jsonl": '{"text": 1}\n'})
    path = tmp_path / "facts.yaml"
    path.write_text(
        "topology: {nodes: 2, gpus_per_node: 4}\ndata: {train: {columns: [other]}}\n"
        "model: {num_attention_heads: 8}\n"
    )
    report = world.validate(train_data="a.jsonl", profile="", facts=path)
    assert report.compiled is not None
    assert report.compiled.context.topology.pools == (Pool("main", "gpu", 2, 4),)
    assert "acme-columns" in codes(report.findings)
    assert "acme-heads-divide" not in codes(report.findings)
