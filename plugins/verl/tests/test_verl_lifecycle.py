"""Export and evaluation of every method, as plans; the scripts themselves run in test_verl_export.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tuneport import workflow
from tuneport.api import flags
from tuneport.compiler.plan import plan_to_json
from tuneport.errors import Invalid
from tuneport.experiment.request import Flags
from tuneport.registry import catalog
from tuneport.types import FileSpec, LaunchPlan, Location, Ref

METHODS = [row[0] for row in catalog.methods("verl")]
FORMATS = ("verl-fsdp", "verl-megatron")
# Only what the templates leave open.
REQUEST = {
    "model": "/m/model",
    "train_data": "/d/train.parquet",
    "validation_data": "/d/test.parquet",
    "profile": "h200:1",
}


def request(method: str) -> dict[str, Any]:
    if method != "verl/distillation":
        return REQUEST
    pools = str(Path(__file__).parent / "two-pools.yaml")
    return {**REQUEST, "profile": "", "resources": pools, "fleet": "cluster"}


@pytest.fixture(
    params=[(method, release) for method in METHODS for release in catalog.releases("verl")], ids=str
)
def made(workshop: Any, request: pytest.FixtureRequest) -> tuple[str, str]:
    """(method, folder of an experiment as `tp new` leaves it)."""
    method, release = request.param
    return method, str(workshop.experiment(method, release, {}).path)


def single(plan: LaunchPlan) -> Any:
    plan_to_json(plan)
    (command,) = plan.commands
    return command


@pytest.mark.parametrize("format", FORMATS)
def test_every_method_exports_what_a_job_wrote(made: tuple[str, str], format: str) -> None:  # noqa: A002
    method, folder = made
    location = Location("run", "", "job-1")
    plan, _ = workflow.export_plan(folder, flags(**request(method)), location, format)
    command = single(plan)
    assert plan.action == "export"
    assert command.argv == (Ref("python"), "tuneport-export.py")
    assert command.env["TUNEPORT_CHECKPOINT"] == Ref("run_output", "", "job-1")
    assert command.env["TUNEPORT_BACKEND"] == format.removeprefix("verl-")
    script = command.files["tuneport-export.py"]
    assert isinstance(script, FileSpec)
    assert "verl.model_merger" in script.content
    compile(script.content, "tuneport-export.py", "exec")


def test_every_method_evaluates_what_a_job_wrote(made: tuple[str, str]) -> None:
    method, folder = made
    plan, _ = workflow.evaluation_plan(folder, flags(**request(method)), "job-1")
    command = single(plan)
    assert plan.action == "eval"
    assert command.argv == (Ref("python"), "eval.py")
    assert command.env["TUNEPORT_MODEL"] == Ref("run_output", "", "job-1")
    assert command.env["TUNEPORT_VALIDATION_DATA"] == "/d/test.parquet"
    assert "eval.py" in plan.source
    compile((Path(folder) / "eval.py").read_text("utf-8"), "eval.py", "exec")
    plan, _ = workflow.evaluation_plan(folder, flags(**request(method)))
    assert single(plan).env["TUNEPORT_MODEL"] == "/m/model"


def test_a_checkpoint_is_exported_whatever_training_lacks(made: tuple[str, str]) -> None:
    method, folder = made
    (Path(folder) / "config.yaml").write_text("trainer: {no_such_key: 1}\n", "utf-8")
    assert {f.code for f in workflow.validate(folder, flags()).findings} >= {"request-missing", "key-unknown"}
    plan, report = workflow.export_plan(folder, flags(), Location("run", "", "job-1"), "verl-fsdp")
    assert [(pool.series, pool.nodes, pool.gpus_per_node) for pool in plan.pools] == [("cpu", 1, 1)], method
    assert report.ok


def test_what_is_written_wrong_blocks_an_export(workshop: Any) -> None:
    path = workshop.experiment("verl/grpo", "0.9.0", {}).path
    location = Location("run", "", "job-1")
    for wrong, code in (({"sets": ("nonsense=1",)}, "param-unknown"), ({"profile": "h200:x"}, "profile")):
        with pytest.raises(Invalid) as caught:
            workflow.export_plan(str(path), Flags(**wrong), location)
        assert any(finding.code.startswith(code) for finding in caught.value.findings), wrong
    (path / "config.yaml").write_text("trainer: {\n", "utf-8")
    with pytest.raises(Invalid) as caught:
        workflow.export_plan(str(path), flags(), location)
    assert any(finding.code.startswith("yaml") for finding in caught.value.findings)
    (path / "recipe.lock.json").unlink()
    with pytest.raises(Invalid) as caught:
        workflow.export_plan(str(path), flags(), location)
    assert any(finding.code.startswith("lock") for finding in caught.value.findings)


def test_an_evaluation_without_its_rows_is_a_warning(made: tuple[str, str]) -> None:
    method, folder = made
    asked = {name: value for name, value in request(method).items() if name != "validation_data"}
    codes = [
        finding.code for finding in workflow.evaluation_plan(folder, flags(**asked), "job-1")[1].findings
    ]
    assert "eval-data" in codes


def test_an_evaluation_needs_its_model_alone(made: tuple[str, str]) -> None:
    _, folder = made
    profile = {"profile": "cpu:1"}
    plan, _ = workflow.evaluation_plan(folder, flags(model="/m/model", **profile))
    assert single(plan).env["TUNEPORT_MODEL"] == "/m/model"
    assert workflow.evaluation_plan(folder, flags(**profile), "job-1")[0].action == "eval"
    with pytest.raises(Invalid) as caught:
        workflow.evaluation_plan(folder, flags(**profile))
    assert [finding.key for finding in caught.value.findings] == ["--model"]
    with pytest.raises(Invalid) as caught:
        workflow.evaluation_plan(folder, flags(), "job-1")
    assert caught.value.code == "profile-missing"


def test_a_format_of_another_framework_is_refused(workshop: Any) -> None:
    folder = str(workshop.experiment("verl/grpo", "0.9.0", {}).path)
    with pytest.raises(Invalid) as caught:
        workflow.export_plan(folder, flags(**REQUEST), Location("run", "", "job-1"), "huggingface")
    assert caught.value.code == "export-format"
    assert all(name in caught.value.hint for name in FORMATS)
