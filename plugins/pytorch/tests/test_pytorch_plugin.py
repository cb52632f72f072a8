"""pytorch/image-classification without torch: what is found wrong, what is planned, what new writes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tuneport import api, workflow
from tuneport.errors import NotFound
from tuneport.experiment.create import new_project
from tuneport.experiment.scripts import read_flags
from tuneport.jobs import manager
from tuneport.registry import catalog, plugins
from tuneport.testing.frameworks import FrameworkTests
from tuneport.types import Command, LaunchPlan, Location, Pool, Ref, RuntimeNeed

METHOD = "pytorch/image-classification"
ROOT = Path(__file__).parents[3]


class TestPytorchConforms(FrameworkTests):
    framework = "pytorch"
    requests: ClassVar[dict[str, dict[str, Any]]] = {METHOD: {"profile": "cpu:2"}}
    golden = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TUNEPORT_", "TUNEPLANE_", "FORGE_")) and name != "TUNEPORT_WRITE_GOLDEN":
            monkeypatch.delenv(name)
    monkeypatch.setenv("TUNEPORT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TUNEPORT_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def experiment(tmp_path: Path) -> api.Experiment:
    return api.open_project(new_project(tmp_path / "project")).new("digits", METHOD)


def judged(experiment: api.Experiment, config: str, **request: Any) -> list[tuple[str, str]]:
    """(severity, key) of every finding that is more than a note."""
    (experiment.path / "config.yaml").write_text(config)
    report = experiment.validate(**{"profile": "h200:1", **request})
    return [(found.severity, found.key) for found in report.findings if found.severity != "note"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("epochs: 5\nbatch_size: 64\nlearning_rate: 0.001\n", []),
        ("epochs: 5\nlearning_rate: 1e-3\nwidth: 16\n", []),
        ("", []),
        ("epochs: five\nbatch_size: 64\nlearning_rate: 0.001\n", [("error", "epochs")]),
        ("batch_size: 64\nlearning_rate: 0.001\nepoch: 5\n", [("error", "epoch")]),
        ("optimizer: adam\n", [("error", "optimizer")]),
        ("epochs: 1.5\n", [("error", "epochs")]),
        ("epochs: [1, 2]\nseed: true\n", [("error", "epochs"), ("error", "seed")]),
        ("optimizer: {name: sgd}\n", [("error", "optimizer")]),
        ("learning_rate: -0.1\n", [("error", "learning_rate")]),
        ("learning_rate: 1\nweight_decay: -1\n", [("error", "weight_decay")]),
        ("epochs: 0\nbatch_size: 0\n", [("error", "epochs"), ("error", "batch_size")]),
        ("optimizer: sgd\nmomentum: -0.1\n", [("error", "momentum")]),
        ("optimizer: sgd\nmomentum: 0.8\n", []),
        ("momentum: 0.8\n", [("warning", "momentum")]),
        ("data: digits.npz\n", [("error", "data")]),
    ],
)
def test_config_is_judged_by_the_flags_of_the_script(
    experiment: api.Experiment, config: str, expected: list[tuple[str, str]]
) -> None:
    assert judged(experiment, config) == expected


def test_a_flag_added_to_the_script_can_be_set_and_one_taken_away_cannot(experiment: api.Experiment) -> None:
    script = experiment.path / "train.py"
    assert judged(experiment, "label_smoothing: 0.1\n") == [("error", "label_smoothing")]
    last = "    args = parser.parse_args()\n"
    added = '    parser.add_argument("--label_smoothing", type=float, default=0.0)\n' + last
    script.write_text(script.read_text().replace(last, added))
    assert judged(experiment, "label_smoothing: 0.1\n") == []
    script.write_text(re.sub(r".*--width.*\n", "", script.read_text()))
    assert judged(experiment, "width: 8\n") == [("error", "width")]


def test_a_script_of_another_kind_is_not_judged_by_flags_that_nobody_can_see(
    experiment: api.Experiment,
) -> None:
    (experiment.path / "train.py").write_text("import sys\nprint(sys.argv)\n")
    assert [severity for severity, _ in judged(experiment, "anything: 1\n")] in ([], ["warning"])


def test_a_broken_script_is_said_with_its_line(experiment: api.Experiment) -> None:
    (experiment.path / "train.py").write_text("import argparse\n\ndef main(:\n")
    report = experiment.validate(profile="cpu:2")
    (found,) = [found for found in report.findings if found.severity == "error"]
    assert (found.code, found.line) == ("script-syntax", 3)


def test_a_missing_script_is_an_error(experiment: api.Experiment) -> None:
    (experiment.path / "train.py").unlink()
    assert ("error", "train.py") in judged(experiment, "")


def test_it_trains_from_initialisation_so_a_model_is_refused(experiment: api.Experiment) -> None:
    assert judged(experiment, "", model="some/model") == [("error", "--model")]


def test_two_processes_on_this_machine(experiment: api.Experiment) -> None:
    (experiment.path / "own.npz").write_bytes(b"")
    plan = experiment.plan(profile="cpu:2", train_data="own.npz", set={"seed": 7, "optimizer": "sgd"})
    (command,) = plan.commands
    assert command.argv[:3] == (Ref("python"), "-m", "torch.distributed.run")
    assert "--nproc_per_node=2" in command.argv
    words = command.argv[command.argv.index("train.py") + 1 :]
    assert {"--seed=7", "--optimizer=sgd", "--epochs=15"} <= set(words)
    assert words[words.index("--data") + 1] == Ref("work_dir", "/own.npz")
    assert (plan.runtime.id, plan.runtime.variant) == ("pytorch-2.14.0", "cpu")


def test_several_nodes_meet_at_the_head(experiment: api.Experiment) -> None:
    plan = experiment.plan(profile="h200:16", fleet="local")
    argv = plan.commands[0].argv
    assert {"--nproc_per_node=8", "--nnodes=2"} <= set(argv)
    assert {Ref("node_rank"), Ref("head_addr"), Ref("head_port")} <= set(argv)
    assert plan.runtime.variant == "cuda"


@pytest.mark.parametrize("release", ["2.13.0", "2.14.0", "2.15.0"])
def test_releases_differ_in_torch_alone(release: str) -> None:
    runtime = catalog.release_spec("pytorch", release)["runtime"]
    assert runtime["id"] == f"pytorch-{release}"
    variants = runtime["venv"]["variants"]
    assert set(variants) == {"cpu", "cuda"}
    base = catalog.release_spec("pytorch", "2.13.0")["runtime"]["venv"]["variants"]["cpu"]["requirements"]
    for variant in variants.values():
        pins = variant["requirements"]
        assert [pin for pin in pins if pin.startswith("torch==")] == [f"torch=={release}"]
        others = {pin for pin in pins if not pin.startswith("torch==")}
        assert others == {pin for pin in base if not pin.startswith("torch==")}


def test_the_default_release_is_2_14_0() -> None:
    assert catalog.default_release("pytorch") == "2.14.0"


def test_every_parameter_is_a_flag_of_the_template_with_a_fitting_type() -> None:
    facts = read_flags(catalog.templates(METHOD)["train.py"].read_text("utf-8"))
    assert facts["ok"]
    assert facts["complete"], facts["undecided"]
    assert facts["strict"]
    assert not facts["abbrev"]
    kinds = {"integer": "int", "number": "float", "string": "str"}
    for name, param in catalog.method(METHOD).params.items():
        (key,) = param.keys
        flag = facts["flags"][key]
        assert kinds[param.schema["type"]] in flag["types"], name
        assert flag.get("choices") == param.schema.get("enum"), name
    for binding in catalog.method(METHOD).spec["bind"].values():
        assert "str" in facts["flags"][binding["key"]]["types"]


def test_export_runs_our_script_in_the_runtime(experiment: api.Experiment) -> None:
    compiled = experiment.validate(profile="cpu:1").compiled
    assert compiled is not None
    hooks = plugins.Hooks("pytorch")
    checkpoint = Location("run", "", "image-classification-aaaaaa")
    plan = hooks.export(compiled.context, checkpoint, "safetensors")
    (command,) = plan.commands
    assert plan.action == "export"
    assert command.argv == (Ref("python"), "export_safetensors.py")
    assert command.env["TUNEPORT_CHECKPOINT"] == Ref("run_output", "", "image-classification-aaaaaa")
    assert "weights_only=True" in command.files["export_safetensors.py"].content


def test_an_evaluation_of_nothing_or_of_two_things_is_a_warning(experiment: api.Experiment) -> None:
    given = api.flags(profile="cpu:1")
    _, report = workflow.evaluation_plan(str(experiment.path), given)
    assert [(one.code, one.severity) for one in report.findings] == [("eval-model", "warning")]
    _, report = workflow.evaluation_plan(str(experiment.path), given, "job-1")
    assert report.findings == ()
    plan, report = workflow.evaluation_plan(str(experiment.path), given._replace(model="m"), "job-1")
    assert [(one.code, one.key) for one in report.findings] == [("eval-model", "--model")]
    assert plan.commands[0].env["TUNEPORT_MODEL"] == Ref("run_output", "", "job-1")


def test_what_is_taken_of_a_job_that_failed_is_said(experiment: api.Experiment) -> None:
    script = ("sh", "-c", "mkdir $OUT/half; exit 1")
    job = manager.submit(
        LaunchPlan(
            method=METHOD,
            release="2.13.0",
            runtime=RuntimeNeed("host", host=True),
            pools=(Pool("main", "cpu", 1, 1),),
            commands=(Command("trainer", script, {"OUT": Ref("output_dir")}, {}, "main"),),
        )
    ).wait(60)
    location = api.checkpoint_location(f"{job.id}/half")
    _, exported = workflow.export_plan(str(experiment.path), api.flags(), location)
    _, measured = workflow.evaluation_plan(str(experiment.path), api.flags(profile="cpu:1"), job.id)
    for report, flag in ((exported, "--checkpoint"), (measured, "--run-id")):
        (finding,) = report.findings
        assert (finding.code, finding.severity, finding.key) == ("job-unfinished", "warning", flag)
        assert finding.message.startswith(f"{job.id} is FAILED")
    with pytest.raises(NotFound, match=r"is FAILED and wrote no 'whole'") as caught:
        api.checkpoint_location(f"{job.id}/whole")
    assert (caught.value.code, caught.value.hint) == ("checkpoint-missing", "it wrote half")


def test_images_that_are_not_here_are_said(experiment: api.Experiment) -> None:
    report = experiment.validate(profile="cpu:1", train_data="nowhere.npz")
    assert [(one.code, one.key) for one in report.findings] == [("data-not-here", "--train-data")]


def test_one_of_several_checkpoints_is_named_by_its_file(experiment: api.Experiment, tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_bytes(b"")
    location = api.checkpoint_location(str(tmp_path / "last.pt"))
    plan, _ = workflow.export_plan(str(experiment.path), api.flags(), location)
    assert plan.commands[0].env["TUNEPORT_CHECKPOINT"] == str(tmp_path / "last.pt")


def test_export_refuses_other_formats(experiment: api.Experiment) -> None:
    from tuneport.errors import Invalid

    compiled = experiment.validate(profile="cpu:1").compiled
    assert compiled is not None
    with pytest.raises(Invalid, match="onnx") as caught:
        plugins.Hooks("pytorch").export(compiled.context, Location("path", "/x"), "onnx")
    assert "safetensors" in caught.value.hint
