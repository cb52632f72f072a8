"""From layers to a plan: order and origins, what is consumed, what is only known later, purity, digests."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuneport.compiler.adapter import DeclarativeAdapter, location_value, native_value
from tuneport.compiler.compile import CONSUMED
from tuneport.compiler.layers import Layers, flatten
from tuneport.compiler.lifecycle import eval_plan
from tuneport.compiler.plan import plan_digest, plan_from_json, plan_to_json, put_refs, take_refs
from tuneport.errors import Invalid
from tuneport.registry import schemas
from tuneport.registry.plugins import Hooks
from tuneport.testing.purity import no_side_effects
from tuneport.types import (
    REFS,
    Command,
    Context,
    FileSpec,
    Key,
    LaunchPlan,
    Location,
    Origin,
    Param,
    Pool,
    Ref,
    RuntimeNeed,
)

from .core_support import SLOW, World, codes, one


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def compiled(world: World, name: str = "exp", **request: Any) -> Any:
    report = world.validate(name, **request)
    assert report.compiled is not None, report.findings
    return report.compiled


# --- layers


def test_the_order_of_layers(world: World) -> None:
    path = world.experiment(
        config="train:\n  steps: 70\n  batch: 70\n  seed: 70\noptim: {lr: 0.7}\nreport_to: [mine]\n",
        job="params: {seed: 80, batch: 80}\n",
    )
    result = compiled(world, set={"batch": 90}, profile="h200:2")
    chains = {
        name: [(origin.layer, value) for origin, value in result.layers.chain(name)]
        for name in ("train.steps", "train.batch", "train.seed", "optim.lr", "optim.kind", "out.dir", "nodes",
                     "devices", "model.name", "report_to", "eval.every", "data.path")
    }  # fmt: skip
    file = str(path / "config.yaml")
    assert chains["train.steps"] == [("release defaults", 100), ("method defaults", 50), ("config.yaml", 70)]
    assert chains["train.batch"] == [
        ("release defaults", 8), ("method defaults", 16), ("config.yaml", 70), ("--set", 90),
    ]  # fmt: skip
    assert chains["train.seed"] == [("release defaults", None), ("config.yaml", 70), ("job.yaml", 80)]
    assert chains["optim.lr"] == [("release defaults", 0.001), ("config.yaml", 0.7)]
    assert chains["optim.kind"] == [("release defaults", "online"), ("identity", "online")]
    assert chains["out.dir"] == [("release defaults", None), ("platform", Ref("output_dir", "/checkpoints"))]
    assert chains["nodes"] == [("release defaults", 1), ("topology", 1)]
    assert chains["devices"] == [("release defaults", 1), ("topology", 2)]
    assert chains["model.name"] == [("request", "org/model")], "a required key has no default"
    assert chains["report_to"] == [
        ("release defaults", "all"), ("config.yaml", ["mine"]), ("platform", ["mine", "tensorboard"]),
    ]  # fmt: skip
    assert chains["eval.every"] == [("release defaults", 0)]
    assert result.context.config["eval.every"] == 0
    assert "eval.every" not in result.context.own
    assert result.context.own["train.batch"] == 90
    origin = result.layers.chain("train.seed")[1][0]
    assert (origin.file, origin.line) == (file, 4)
    assert result.layers.chain("optim.lr")[0][0].file == "acme/config.py:10"
    assert result.layers.chain("nosuch") == []


def test_what_the_platform_appends_keeps_what_the_user_wrote(world: World) -> None:
    for config, expected in [
        ("", ["tensorboard"]),
        ("report_to: wandb\n", ["wandb", "tensorboard"]),
        ("report_to: none\n", ["tensorboard"]),
        ("report_to: [a, tensorboard]\n", ["a", "tensorboard"]),
        ("report_to: []\n", ["tensorboard"]),
        ("report_to: null\n", ["tensorboard"]),
    ]:
        world.experiment(config=config)
        assert compiled(world).context.own["report_to"] == expected, config


def test_consumed_keys_reach_no_framework(world: World) -> None:
    world.experiment(config="data:\n  train:\n    dataset: me/set@v1\n  validation: {dataset: me/other@v2}\n")
    plan = world.plan(train_data="part/train.jsonl")
    words = [word for word in plan.commands[0].argv if isinstance(word, Ref) and word.ref == "dataset"]
    assert words == [Ref("dataset", name="me/other@v2"), Ref("dataset", "/part/train.jsonl", "me/set@v1")]
    assert not set(plan.config) & CONSUMED
    assert not any("dataset" in str(word) for word in plan.commands[0].argv if isinstance(word, str))
    flagged = world.plan(train_dataset="you/set@v9")
    assert flagged.config["data.path"] == Ref("dataset", "/org/data", "you/set@v9"), "a flag wins"


def test_free_form_values_stay_whole_and_unknown_mappings_are_flattened() -> None:
    keys = {"extra": Key("extra", ("dict",)), "a.b": Key("a.b", ("int",))}
    tree = {"extra": {"x": {"y": 1}}, "a": {"b": 1, "c": {"d": 2}}, "empty": {}, "list": [{"x": 1}], "e.f": 3}
    assert list(flatten(tree, keys)) == [
        (("extra",), {"x": {"y": 1}}), (("a", "b"), 1), (("a", "c", "d"), 2), (("empty",), {}),
        (("list",), [{"x": 1}]), (("e.f",), 3),
    ]  # fmt: skip


def test_layers_remember_every_value() -> None:
    layers = Layers({"a": Key("a", ("int",), 1, source="s:1"), "r": Key("r", ("int",), required=True)})
    layers.update({"a": 2}, Origin("x"))
    layers.set("a", 3, Origin("y", "f", 4))
    assert layers.effective() == {"a": 3}
    assert layers.chain("a") == [
        (Origin("release defaults", "s:1"), 1),
        (Origin("x"), 2),
        (Origin("y", "f", 4), 3),
    ]
    assert layers.chain("r") == []


# --- bindings


def test_parameters_bind_to_every_key_through_their_values() -> None:
    param = Param("p", {}, ("a",), {"low": "half", "1": "one", "true": "yes", "null": "none", "1.5": 3})
    for given_, native in [
        ("low", "half"),
        (1, "one"),
        (True, "yes"),
        (None, "none"),
        (1.5, 3),
        ("x", "x"),
        ([1], [1]),
    ]:
        assert native_value(param, given_) == native


@pytest.mark.parametrize(
    ("location", "value"),
    [
        (Location("hub", "org/m"), "org/m"),
        (Location("path", "/a/b"), "/a/b"),
        (Location("experiment", "train.jsonl"), Ref("work_dir", "/train.jsonl")),
        (Location("experiment", "."), Ref("work_dir")),
        (Location("dataset", "", "a/b@1"), Ref("dataset", "", "a/b@1")),
        (Location("dataset", "x/y", "a/b@1"), Ref("dataset", "/x/y", "a/b@1")),
        (Location("run", "ckpt", "job-1"), Ref("run_output", "/ckpt", "job-1")),
    ],
)
def test_locations_are_literals_or_references(location: Location, value: Any) -> None:
    assert location_value(location) == value


def test_values_are_translated_on_their_way_to_the_native_key(world: World) -> None:
    world.experiment()
    plan = world.plan(set={"precision": "low", "seed": "null", "lora": "true"})
    assert plan.config["train.mixed"] == "half"
    assert plan.config["train.seed"] is None
    assert "--peft.enabled=true" in plan.commands[0].argv


# --- the plan


def test_the_whole_plan_of_a_plain_request(world: World) -> None:
    path = world.experiment(config="optim: {lr: 3e-4}\n", job="env: {HF_HOME: /cache}\n")
    plan = world.plan_json(profile="cpu:2")
    digests = {name: plan["source"].pop(name) for name in list(plan["source"])}
    assert set(digests) == {file.name for file in path.iterdir()}
    assert plan.pop("digest").startswith("sha256:")
    argv = plan["commands"][0].pop("argv")
    assert argv == [
        {"ref": "python"}, "-m", "torch.distributed.run", "--nproc_per_node=2", "--nnodes=1",
        "--master_addr", {"ref": "head_addr"}, "--master_port", {"ref": "head_port"}, "-m", "acme.tune",
        "--config", "acme.yaml",
        "--data.path=org/data", "--devices=2", "--model.name=org/model", "--nodes=1", "--optim.kind=online",
        "--optim.lr=0.0003", "--out.dir", {"ref": "output_dir", "suffix": "/checkpoints"},
        "--train.batch=16", "--train.steps=50",
    ]  # fmt: skip
    assert plan == {
        "method": "acme/tune",
        "release": "acme 1.0.0",
        "action": "train",
        "runtime": {"id": "acme-1.0.0", "variant": "cpu", "image": "", "host": False},
        "pools": [{"name": "main", "series": "cpu", "nodes": 1, "gpus_per_node": 2}],
        "commands": [
            {"role": "trainer", "pool": "main",
             "files": {"acme.yaml": {"format": "yaml", "content": {"report_to": ["tensorboard"]}}},
             "env": {"ACME_LOGS": {"ref": "log_dir"}, "ACME_QUIET": "1", "HF_HOME": "/cache"}}
        ],
        "config": {
            "data.path": "org/data", "devices": 2, "model.name": "org/model", "nodes": 1, "out.dir": None,
            "optim.kind": "online", "optim.lr": 0.0003, "report_to": ["tensorboard"], "train.batch": 16,
            "train.steps": 50,
        },
        "config_refs": {"/out.dir": {"ref": "output_dir", "suffix": "/checkpoints"}},
        "lifecycle": {"export": {"formats": ["huggingface"]}, "eval": {"file": "eval.py"}},
        "source": {}, "labels": {}, "mounts": [],
    }  # fmt: skip


def test_runtimes_and_launchers_follow_the_hardware(world: World) -> None:
    world.experiment("acme/script", "epochs: 1\n")
    given_ = {"model": "", "train_data": ""}
    cpu, gpu = world.plan(profile="cpu:4", **given_), world.plan(profile="h200:16", **given_)
    assert cpu.runtime == RuntimeNeed("acme-1.0.0", "cpu")
    assert gpu.runtime == RuntimeNeed("acme-1.0.0", "cuda")
    assert cpu.commands[0].argv[:2] == (Ref("python"), "train.py")
    assert gpu.commands[0].argv[:5] == (
        Ref("python"), "-m", "torch.distributed.run", "--nproc_per_node=8", "--nnodes=2",
    )  # fmt: skip
    assert Ref("node_rank") in gpu.commands[0].argv
    assert world.plan(image="r@sha256:1", **given_).runtime.image == "r@sha256:1"
    world.experiment("acme/shell", "a: {b: 1}\n", name="sh", files={"train.sh": ""})
    plan = world.plan("sh", model="", train_data="d")
    assert plan.commands[0].argv == ("sh", "train.sh")
    assert plan.commands[0].env == {"ACME_HOME": Ref("work_dir"), "ACME_A__B": "1", "ACME_DATA": "d"}


def test_a_plan_is_the_same_every_time_and_touches_nothing(world: World) -> None:
    world.experiment(config="extra: {b: 1, a: [1, {z: 1, y: 2}]}\n")
    context = compiled(world).context
    hooks = Hooks("acme")
    first = plan_to_json(hooks.launch(context))
    with no_side_effects() as seen:
        again = [plan_to_json(hooks.launch(context)) for _ in range(100)]
        list(hooks.validate(context))
        hooks.bind_args(context)
        hooks.topology(context)
    assert not seen
    assert again == [first] * 100
    assert world.plan_json() == first
    assert json.dumps(again[0]) == json.dumps(first), "the order of keys as well"


def test_a_copied_experiment_has_the_same_plan_wherever_it_lies(world: World, tmp_path: Path) -> None:
    import shutil

    path = world.experiment(files={"train.jsonl": '{"text": 1}'})
    shutil.copytree(path, tmp_path / "elsewhere" / "renamed")
    here = world.plan_json(train_data="train.jsonl")
    there = world.plan_json(str(tmp_path / "elsewhere" / "renamed"), train_data="train.jsonl")
    assert here == there


def test_no_hardware_or_an_error_means_no_plan(world: World) -> None:
    world.experiment()
    assert compiled(world, profile="").plan is None
    assert compiled(world, set={"batch": 0}).plan is None
    with pytest.raises(Invalid) as caught:
        world.plan(set={"batch": 0})
    assert caught.value.exit_code == 3
    assert codes(caught.value.findings) == ["param-value"]


# --- references are never mistaken for what somebody wrote

TRICKS: list[Any] = [
    "{output_dir}", "$TUNEPORT_OUTPUT_DIR", "<output_dir>", {"ref": "output_dir"}, [{"ref": "output_dir"}],
    {"a": {"ref": "output_dir", "suffix": "/x"}}, {"ref": "output_dir", "suffix": "", "name": ""}, None,
    [None], {"/a": None, "a~1b": None, "": None}, {"config_refs": {}}, "${oc.env:HOME}",
    {"$ref": "output_dir"}, {},
]  # fmt: skip


@pytest.mark.parametrize("value", TRICKS, ids=[json.dumps(value)[:30] for value in TRICKS])
def test_user_values_are_never_references(world: World, value: Any) -> None:
    world.experiment("acme/align", config=json.dumps({"extra": {"x": value}, "plugin": value}))
    document = world.plan_json(profile="cpu:1")
    plan = plan_from_json(json.loads(json.dumps(document)))
    content = plan.commands[0].files["align.yaml"].content
    assert content["extra"] == {"x": value}
    assert content.get("plugin") == value
    assert content["out"]["dir"] == Ref("output_dir", "/checkpoints")
    assert plan.config["plugin"] == value
    assert list(document["config_refs"]) == ["/out.dir"]


TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
REF = st.builds(Ref, st.sampled_from(REFS), TEXT, TEXT)
LEAF = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
)
NAMES = st.one_of(TEXT, st.sampled_from(["", "/", "~", "~1", "0", "ref", "a.b"]))
TREE = st.recursive(
    st.one_of(LEAF, REF, st.just({"ref": "output_dir"})),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)
VALUES = st.one_of(TEXT, REF)
WORDS = st.text("abcdefghij-0123456789", min_size=1, max_size=6)
POOL = st.builds(
    Pool, st.just("main"), st.sampled_from(["cpu", "h200"]), st.integers(1, 9), st.integers(1, 9)
)
COMMAND = st.builds(
    Command,
    role=WORDS,
    argv=st.lists(VALUES, min_size=1, max_size=4).map(tuple),
    env=st.dictionaries(TEXT, VALUES, max_size=3),
    files=st.dictionaries(
        TEXT,
        st.builds(FileSpec, st.sampled_from(["text", "json", "yaml"]), st.one_of(TEXT, TREE)),
        max_size=2,
    ),
    pool=WORDS,
)
PLAN = st.builds(
    LaunchPlan,
    method=TEXT,
    release=TEXT,
    runtime=st.builds(RuntimeNeed, TEXT, TEXT, TEXT, st.booleans()),
    pools=st.lists(POOL, min_size=1, max_size=2).map(tuple),
    commands=st.lists(COMMAND, min_size=1, max_size=2).map(tuple),
    config=st.dictionaries(NAMES, TREE, max_size=4),
    lifecycle=st.dictionaries(TEXT, st.one_of(LEAF, st.lists(LEAF, max_size=2)), max_size=2),
    source=st.dictionaries(TEXT, TEXT, max_size=2),
    labels=st.dictionaries(TEXT, TEXT, max_size=2),
    mounts=st.lists(TEXT, max_size=2).map(tuple),
    action=st.sampled_from(["train", "export", "eval"]),
)


@settings(max_examples=50, deadline=None, suppress_health_check=SLOW)
@given(plan=PLAN)
def test_any_plan_survives_its_json(plan: LaunchPlan) -> None:
    document = plan_to_json(plan)
    text = json.dumps(document)
    again = plan_from_json(json.loads(text))
    assert again == plan
    assert plan_digest(again) == document["digest"] == plan_digest(plan)
    given_ = json.loads(text)
    plan_from_json(given_)
    assert given_ == json.loads(text), "reading a document changes nothing in it"


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(tree=TREE)
def test_references_are_taken_out_and_put_back(tree: Any) -> None:
    plain, refs = take_refs(tree)
    assert put_refs(plain, refs) == tree
    assert put_refs(json.loads(json.dumps(plain)), json.loads(json.dumps(refs))) == tree


@pytest.mark.parametrize(
    ("tree", "refs"),
    [
        ({"a": None}, {"/b": {"ref": "job_id"}}),
        ({"a": "text"}, {"/a": {"ref": "job_id"}}),
        ({"a": None}, {"/a": {"ref": "nosuch"}}),
        ({"a": [None]}, {"/a/1": {"ref": "job_id"}}),
        ({"a": [None]}, {"/a/x": {"ref": "job_id"}}),
        ({}, {"": {"ref": "job_id"}}),
        ({"a": None}, {"a": {"ref": "job_id"}}),
    ],
)
def test_references_without_a_place_are_refused(tree: Any, refs: Any) -> None:
    with pytest.raises(Invalid):
        put_refs(tree, refs)


def variations(value: Any) -> Iterator[Any]:
    """The value with one thing in it changed, for every thing in it."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            for changed in variations(getattr(value, field.name)):
                yield replace(value, **{field.name: changed})
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for name in value._fields:
            for changed in variations(getattr(value, name)):
                yield value._replace(**{name: changed})
    elif isinstance(value, dict):
        for key, item in value.items():
            yield {k: v for k, v in value.items() if k != key}
            yield {("x" + k if k == key else k): v for k, v in value.items()}
            for changed in variations(item):
                yield {**value, key: changed}
        if not any(is_dataclass(item) or hasattr(item, "_fields") for item in value.values()):
            yield {**value, "added": "x"}
    elif isinstance(value, list | tuple):
        kind = type(value)
        for index, item in enumerate(value):
            yield kind([*value[:index], *value[index + 1 :]])
            for changed in variations(item):
                yield kind([*value[:index], changed, *value[index + 1 :]])
        if value:
            yield kind([*value, value[0]])
    elif isinstance(value, bool):
        yield not value
        yield str(value).lower()
    elif isinstance(value, int | float):
        yield value + 1
        yield str(value)
    elif isinstance(value, str):
        yield value + "x"
        yield {"ref": "job_id"} if value == "leaf" else value + " "
    elif value is None:
        yield "null"
        yield False


def rich_plan() -> LaunchPlan:
    content = {"a": [1, None, Ref("job_id")], "b": {"ref": "job_id"}, "c": True, "d": 1.5}
    command = Command(
        "trainer", ("leaf", Ref("python"), Ref("dataset", "/s", "n"), ""),
        {"A": "1", "B": Ref("log_dir", "/x")}, {"f.yaml": FileSpec("yaml", content)}, "main",
    )  # fmt: skip
    return LaunchPlan(
        "acme/tune", "acme 1.0.0", RuntimeNeed("r", "v", "i", True), (Pool("main", "cpu", 1, 2),),
        (command, replace(command, role="other")), {"k": None, "l": [1, 2], "r": Ref("output_dir")},
        {"eval": {"file": "e.py"}}, {"f": "sha256:1"}, {"l": "v"}, ("/mnt",), "eval",
    )  # fmt: skip


def test_the_digest_changes_when_anything_changes() -> None:
    plan = rich_plan()
    digests = {plan_digest(plan)}
    count = 1
    for changed in variations(plan):
        if changed != plan:
            count += 1
            digests.add(plan_digest(changed))
    assert count > 100
    # A few changes give equal plans (an item left out of a pair of equals), none of ours do.
    assert len(digests) == count


def test_no_value_of_a_plans_json_can_be_edited(world: World) -> None:
    world.experiment("acme/align", "extra: {a: [1, null, {ref: job_id}]}\n")
    document = world.plan_json(profile="cpu:1")
    assert plan_from_json(copy.deepcopy(document))
    accepted = []
    for changed in variations(document):
        if changed == document:
            continue
        try:
            plan_from_json(copy.deepcopy(changed))
        except Invalid as error:
            assert error.code in ("plan-broken", "plan-tampered", "ref-unknown", "not-json")
        else:
            accepted.append(changed)
    for changed in accepted:  # a field left out that holds what is meant where it is absent
        assert plan_to_json(plan_from_json(copy.deepcopy(changed))) == document
    assert len(accepted) < 10


@pytest.mark.parametrize("document", [{}, {"digest": "x"}, [], None, "x"])
def test_what_is_no_plan_is_refused(document: Any) -> None:
    with pytest.raises(Invalid):
        plan_from_json(document)


# --- lifecycle


def test_evaluation_runs_the_experiments_script_with_model_and_data(world: World) -> None:
    world.experiment(job="env: {A: b}\n")
    context: Context = compiled(world, validation_data="/v.jsonl").context
    plan = eval_plan(context)
    assert plan.action == "eval"
    assert plan.commands[0].argv == (Ref("python"), "eval.py")
    assert plan.commands[0].env == {
        "A": "b", "TUNEPORT_MODEL": "org/model", "TUNEPORT_VALIDATION_DATA": "/v.jsonl",
        "TUNEPORT_TRAIN_DATA": "org/data",
    }  # fmt: skip
    assert eval_plan(context, "job-1").commands[0].env["TUNEPORT_MODEL"] == Ref("run_output", name="job-1")
    schema_holds(plan_to_json(plan))
    files = {name: digest for name, digest in context.files.items() if name != "eval.py"}
    with pytest.raises(Invalid, match=r"no eval\.py"):
        eval_plan(context._replace(files=files))
    world.experiment("acme/align", name="no-eval")
    with pytest.raises(Invalid, match="has no evaluation"):
        eval_plan(compiled(world, "no-eval").context)


VARIANTS = "variants: {by: optim.name, cases: {lion: {batch: [train.steps], seed: []}}}\n"


@pytest.mark.parametrize(("config", "sets"), [("", {"optimizer": "lion"}), ("optim: {name: lion}\n", {})])
def test_a_key_chooses_what_parameters_write(world: World, config: str, sets: dict[str, str]) -> None:
    path = world.own_manifests() / "methods/_base.yaml"
    path.write_text(path.read_text("utf-8") + VARIANTS, "utf-8")
    world.experiment(config=config)
    result = compiled(world, set={"batch": 4, "seed": 3, **sets})
    found = one(result.findings, "param-variant")
    assert (found.key, found.message) == ("seed", "seed means nothing where optimizer is lion")
    assert (result.context.own["train.steps"], result.context.config["train.seed"]) == (4, None)
    other = compiled(world, set={"batch": 4, "seed": 3, "optimizer": "sgd"})
    assert "param-variant" not in codes(other.findings)
    assert (other.context.own["train.batch"], other.context.own["train.seed"]) == (4, 3)


def test_a_moved_key_that_is_still_taken_is_written_to_its_new_place_too(world: World) -> None:
    world.own_manifests()
    world.edit("releases/1.0.0.yaml", "moves: []", "moves: [{from: train.epochs, to: extra, since: 1.0.0}]")
    world.experiment(config="train: {epochs: 3}\n")
    assert compiled(world).context.own["extra"] == 3
    world.experiment(config="train: {epochs: 3}\nextra: 5\n")
    assert compiled(world).context.own["extra"] == 5


def test_the_declarative_adapter_exports_nothing_and_says_so(world: World) -> None:
    world.experiment()
    context = compiled(world).context
    with pytest.raises(Invalid) as caught:
        DeclarativeAdapter().export(context, Location("path", "/c"), "huggingface")
    assert caught.value.code == "export-unsupported"


def schema_holds(document: Any) -> None:
    assert not list(schemas.problems(document, schemas.schema("plan")))
