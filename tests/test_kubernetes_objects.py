"""The objects of every method on every shape of hardware are what Kubernetes and its projects publish."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tuneport import api
from tuneport.compiler.ray_cluster import works_on_ray
from tuneport.errors import Unavailable
from tuneport.experiment.create import new_project
from tuneport.registry import catalog
from tuneport.testing import requests
from tuneport_fleet_kubernetes.fleet import KubernetesFleet

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins/fleet-kubernetes/tests"))
from kube_fake import strict
from kube_support import DIGEST, FULL

METHODS = [row[0] for row in catalog.methods()]
FLEET = "fleets:\n  k: {kind: kubernetes, nodes: {h200: {gpus_per_node: 8}, l40: {gpus_per_node: 4}}}\n"
PROFILES = ("h200:8", "h200:32", "cpu:2")


def plans(method_id: str, folder: Path) -> list[Any]:
    """The plans of a method: on one node, several, processes, and with each role on its own pool."""
    root = new_project(folder / "project")
    (root / "fleets.yaml").write_text(FLEET)
    experiment = api.open_project(root).new("one", method_id)
    method = catalog.method(method_id)
    request, _ = requests.find(experiment, method_id, catalog.default_release(method.framework))
    more = {"fleet": "k", "image": f"registry/trainer@{DIGEST}"}
    bare = {name: value for name, value in request.items() if name not in ("profile", "resources")}
    asked = [{**bare, "profile": profile} for profile in PROFILES]
    roles = list(method.spec.get("roles", ()))
    if len(roles) > 1:
        for last in roles[1:]:
            asked.append({**bare, "profile": f"{roles[0]}=h200:16,{last}=l40:4"})
    if "resources" in request:
        asked.append(request)
    found = []
    for one in asked:
        report = experiment.validate(**{**one, **more})
        if report.ok and report.compiled is not None and report.compiled.plan is not None:
            found.append(report.compiled.plan)
    return found


@pytest.mark.sweep
@pytest.mark.parametrize("method_id", METHODS)
def test_every_object_is_strictly_valid_and_reads_back(method_id: str, tmp_path: Path) -> None:
    errors = strict()
    if errors is None:
        pytest.skip("the published schemas are not beside the repository")
    made = plans(method_id, tmp_path)
    assert made, "no hardware fits"
    if method_id in ("verl/distillation", "openrlhf/ppo"):
        assert any(len({command.pool for command in plan.commands}) > 1 for plan in made), (
            "student and teacher"
        )
    checked = 0
    for plan in made:
        for workload in ("jobset",) if works_on_ray(plan) else ("jobset", "trainjob", "job"):
            fleet = KubernetesFleet({**FULL, "workload": workload})
            try:
                request = {**fleet.render(plan, "sft-a1b2c3-1"), "source": ""}
            except Unavailable as error:
                assert error.code == "fleet-kind-missing" and workload != "jobset" and len(plan.commands) > 1
                continue
            objects = list(yaml.safe_load_all(fleet.show({**request, "experiment": {}})))
            for item in objects:
                assert not errors(item), (item["kind"], errors(item))
            assert objects[-1]["kind"] == ("RayJob" if works_on_ray(plan) else fleet_kind(workload))
            checked += 1
    assert checked >= len(made)


def fleet_kind(workload: str) -> str:
    return {"jobset": "JobSet", "trainjob": "TrainJob", "job": "Job"}[workload]
