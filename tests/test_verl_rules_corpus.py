"""Real mistakes: requests for experiments, and command lines that people reported, against their verdicts."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tuneport import api, linter
from tuneport.errors import TuneportError
from tuneport.experiment.create import new_project
from tuneport.types import Finding

sys.path.insert(0, str(Path(__file__).parent))
from verl_commands import DATA, RELEASES, Command

MISTAKES = json.loads((DATA / "mistakes/verl.json").read_text("utf-8"))
REPORTS = json.loads((DATA / "reports/verl.json").read_text("utf-8"))
# Fault -> the release that does less with it than the report says, which was about another release.
MILDER = {
    ("verl-7331", "0.9.0"): "the key is ignored there, and the command runs",
    ("verl-7624", "0.9.1"): "the release raises the budget itself",
}
ENTRIES = {"sft": "verl.trainer.sft_trainer"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> api.Project:
    return api.open_project(new_project(tmp_path_factory.mktemp("mistakes") / "project"))


@pytest.mark.sweep
@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case["id"])
def test_a_mistake_gets_its_verdict(project: api.Project, tmp_path: Path, case: dict[str, Any]) -> None:
    findings = validate(project, tmp_path, case)
    worst = next(
        (level for level in ("error", "warning") if any(one.severity == level for one in findings)), "clean"
    )
    assert worst in case.get("accept", [case["expected"]]), findings
    faults = [fault for fault in [case.get("fault"), *case.get("also_fault", ())] if fault]
    if worst != "clean" and faults:
        assert any(names(one, faults) for one in findings if one.severity == worst), findings


def validate(project: api.Project, tmp_path: Path, case: dict[str, Any]) -> Sequence[Finding]:
    folder = project.folder.experiments / "case"
    shutil.rmtree(folder, ignore_errors=True)
    request = dict(case["request"])
    known = request.get("framework_version") in RELEASES
    experiment = project.new("case", case["method"], request["framework_version"] if known else "")
    if "config_yaml" in case:
        (folder / "config.yaml").write_text(case["config_yaml"], "utf-8")
    for name, text in case.get("files", {}).items():
        (folder / name).write_text(text, "utf-8")
    for name in case.get("remove_files", ()):
        (folder / name).unlink()
    edit_lock(folder / "recipe.lock.json", case.get("lock_edit", {}))
    if "resources" in request:
        path = tmp_path / "resources.yaml"
        path.write_text(json.dumps(request["resources"]), "utf-8")
        request["resources"] = str(path)
    try:
        return experiment.validate(**request).findings
    except TypeError as error:  # no such flag
        return [Finding("flag-unknown", "error", str(error), "", str(error).split("'")[1])]
    except TuneportError as error:
        return error.findings or [Finding(error.code, "error", error.message)]


def edit_lock(path: Path, edit: dict[str, Any]) -> None:
    if edit.get("remove"):
        path.unlink()
    elif "raw" in edit:
        path.write_text(edit["raw"], "utf-8")
    elif "set" in edit:
        lock = json.loads(path.read_text("utf-8"))
        for name, value in edit["set"].items():
            *parents, last = name.split(".")
            here = lock
            for parent in parents:
                here = here.setdefault(parent, {})
            here[last] = value
        path.write_text(json.dumps(lock), "utf-8")


@pytest.mark.sweep
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report["id"])
def test_a_reported_mistake_is_found(report: dict[str, Any], release: str) -> None:
    findings = check(report["minimal_input"], release)
    if report["still_applies"] is not True:
        assert not [finding for finding in findings if finding.severity == "error"]
        return
    severity = report["expected_severity"]
    if (report["id"], release) in MILDER:
        severity = "warning"
    faults = report["fault_keys"]
    assert any(names(one, faults) for one in findings if one.severity == severity), findings


def check(given: dict[str, Any], release: str) -> Sequence[Finding]:
    data = {{"val": "validation"}.get(name, name): facts for name, facts in given.get("data", {}).items()}
    topology = given.get("topology") or {}
    if given["method"] == "export":
        asked = linter.Asked("verl", release, facts={"data": data})
        return linter.check(["python3", *given["args"]], asked).findings
    command = Command(
        ENTRIES.get(given["method"], "verl.trainer.main_ppo"),
        given["args"],
        topology.get("nodes", 0),
        topology.get("gpus_per_node", 0),
        {name: given.get(name) or {} for name in ("model", "env", "topology")} | {"data": data},
    )
    return command.check(release).findings


def names(finding: Finding, faults: Sequence[str]) -> bool:
    """Whether a finding is about one of these, a section of it, or something in it."""
    key = finding.key.lstrip("-")
    for fault in faults:
        bare = fault.lstrip("+~-")
        if key and (key == bare or key.startswith(f"{bare}.") or bare.startswith(f"{key}.")):
            return True
        if key.endswith(f".{bare}"):
            return True
    return False
