"""The example of a site's policy, end to end: enabled by project or site, refuses, adds, and is asked by
nobody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tuneport.registry import catalog, surfaces
from tuneport.registry.plugins import Hooks
from tuneport.types import Context, Location, Pool, Request, Topology

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "site-policy"
IMAGE = "registry.example/train@sha256:" + "0" * 64
REQUEST = ["--model", "org/model", "--train-data", "/data/train.jsonl"]


class Site:
    """A project, a site file, and the policy as an installed distribution."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "project"
        site = folder / "packages"
        info = site / "tuneport_site_rules-0.1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tuneport-site-rules\nVersion: 0.1.0\n")
        points = "[tuneport.policies]\nsite-rules = tuneport_site_rules.policy:Policy\n"
        (info / "entry_points.txt").write_text(points)
        (folder / "site.yaml").write_text("")
        dropped = ("TUNEPORT_", "TUNEPLANE_", "FORGE_")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        self.env |= {"PYTHONPATH": f"{site}:{EXAMPLE / 'src'}", "HOME": str(folder)}
        self.env |= {"TUNEPORT_SITE_FILE": str(folder / "site.yaml")}
        self.tp("init", str(self.root), cwd=folder)
        self.tp("new", "one", "--method", "trl/sft")

    def tp(self, *args: str, cwd: Path | None = None) -> tuple[int, Any]:
        argv = [sys.executable, "-m", "tuneport", *args, "--json"]
        done = subprocess.run(
            argv, env=self.env, cwd=cwd or self.root, capture_output=True, text=True, timeout=60
        )
        return done.returncode, json.loads(done.stdout)

    def errors(self, *args: str) -> set[str]:
        _, document = self.tp("validate", "one", *REQUEST, *args)
        return {one["code"] for one in document["findings"] if one["severity"] == "error"}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_nobody_asked_for_it(site: Site) -> None:
    assert site.errors("--profile", "h200:128") == set()
    code, plan = site.tp("plan", "one", *REQUEST, "--profile", "h200:8")
    assert code == 0 and "cost-centre" not in plan["labels"] and plan["mounts"] == []


@pytest.mark.parametrize("where", ["project", "site"])
def test_it_is_enabled_and_holds(site: Site, where: str) -> None:
    project = site.root / "tuneport.yaml"
    place = project if where == "project" else site.folder / "site.yaml"
    place.write_text(place.read_text() + "\npolicies: [site-rules]\n")
    assert site.errors("--profile", "h200:128") == {"site-gpus", "site-cost", "site-image"}
    assert site.errors("--profile", "h200:8", "--image", IMAGE) == {"site-cost"}
    code, document = site.tp("submit", "one", *REQUEST, "--profile", "h200:8")
    assert code == 3 and {"site-cost", "site-image"} <= {one["code"] for one in document["findings"]}
    project.write_text(project.read_text() + "\nenv: {COST_CENTRE: '42'}\n")
    assert site.errors("--profile", "h200:8", "--image", IMAGE) == set()
    code, plan = site.tp("plan", "one", *REQUEST, "--profile", "h200:8", "--image", IMAGE)
    assert code == 0
    assert plan["commands"][0]["env"]["HTTPS_PROXY"] == "http://proxy.example:3128"
    assert plan["mounts"] == ["/scratch"]
    assert plan["labels"] == {"cost-centre": "42", "tuneport.policies": "site-rules"}


def test_an_experiment_cannot_enable_it_or_turn_it_off(site: Site) -> None:
    (site.root / "experiments" / "one" / "job.yaml").write_text("policies: []\n")
    assert "job-schema" in site.errors("--profile", "h200:8")


def test_exports_and_evaluations_are_held_to_it(site: Site) -> None:
    project = site.root / "tuneport.yaml"
    project.write_text(project.read_text() + "\npolicies: [site-rules]\n")
    (site.root / "checkpoint").mkdir()
    export = ["export", "one", "--checkpoint", str(site.root / "checkpoint")]
    for command in (export, ["eval", "one", "--model", "org/model", "--profile", "cpu:1"]):
        code, document = site.tp(*command)
        assert code == 3 and "site-cost" in {one["code"] for one in document["findings"]}, document


def test_plans_that_are_no_launch_are_wrapped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(EXAMPLE / "src"), *sys.path])
    from tuneport_site_rules.policy import Policy

    hooks = Hooks("pytorch")
    hooks.add_policy("site-rules", Policy())
    method = catalog.method("pytorch/image-classification", "2.13.0")
    request = Request(env={"COST_CENTRE": "42"})
    pool = Topology((Pool("main", "cpu", 1, 1),), {})
    context = Context(method, surfaces.release("pytorch", "2.13.0"), request, pool, {}, {}, {}, {}, {})
    made = hooks.export(context, Location("path", "/checkpoint"), "safetensors")
    assert made.action == "export" and made.mounts == ("/scratch",)
    assert made.labels == {"cost-centre": "42", "tuneport.policies": "site-rules"}
    assert made.commands[0].env["HTTPS_PROXY"] == "http://proxy.example:3128"
    again = hooks.around(context, made)
    assert again.action == "export" and again.commands == made.commands
