"""Data that a fleet's `mounts` do not show is said where an experiment is judged, before it is submitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tuneport import api, workflow
from tuneport.datasets import store
from tuneport.experiment import create, project, unseen
from tuneport.types import Finding, Request

FLEETS = """
fleets:
  pods: {kind: kubernetes, namespace: n, workload: job, mounts: {/data: {claim: d}, /models: {claim: m}}}
  bare: {kind: kubernetes, namespace: n, workload: job}
  images:
    kind: slurm
    containers: apptainer
    mounts: ["/lustre/data:/data:ro", /models]
  several: {kind: slurm, containers: pyxis, mounts: ["/a:/sets,/lustre:/data"]}
  hosts: {kind: slurm, mounts: [/data]}
  cluster: {kind: ray, address: "http://127.0.0.1:9"}
"""
IMAGE = "registry.example/train@sha256:" + "0" * 64


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNEPORT_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "site.yaml").write_text("")
    monkeypatch.setenv("TUNEPORT_SITE_FILE", str(tmp_path / "site.yaml"))
    monkeypatch.setenv("HOME", "/home/somebody")
    root = tmp_path / "project"
    create.new_project(root)
    monkeypatch.chdir(root)
    (root / "fleets.yaml").write_text(FLEETS)
    found = project.find_project(root)
    assert found is not None
    create.new_experiment(found, "one", "trl/sft", "")
    return root


def said(fleet: str, **more: Any) -> list[Finding]:
    given = {"model": "org/model", "train_data": "/data/a.jsonl", "profile": "h200:8", "fleet": fleet}
    report = workflow.validate("one", api.flags(**{**given, **more}))
    assert report.ok, report.findings
    return [one for one in report.findings if one.code == "fleet-data"]


def test_what_lies_under_no_mount_is_a_warning_with_its_line(root: Path) -> None:
    assert not said("pods", image=IMAGE)
    given = {"image": IMAGE, "model": "/checkpoints/m", "train_data": "/datasets/a.jsonl"}
    model, data = said("pods", **given)
    assert [one.key for one in (model, data)] == ["--model", "--train-data"]
    assert data.severity == "warning" and (data.file, data.line) == (str(root / "fleets.yaml"), 3)
    assert data.message == "/datasets/a.jsonl lies under no `mounts` of fleet pods (/data, /models)"
    _, report = workflow.plan("one", api.flags(**given, profile="h200:8", fleet="pods"))
    assert data in report.findings, "so `tp plan` says it as well"
    _, report = workflow.evaluation_plan("one", api.flags(**given, profile="cpu:1", fleet="pods"))
    assert {model, data} <= set(report.findings), "and `tp eval`"
    checkpoint = api.Location("path", "/checkpoints/m")
    _, report = workflow.export_plan("one", api.flags(**given, fleet="pods"), checkpoint)
    (found,) = report.findings
    assert (found.code, found.key) == ("fleet-data", "--checkpoint"), "an export reads nothing else"
    assert found.message.startswith("/checkpoints/m ")


def test_containers_of_slurm_see_the_place_that_a_mount_has_inside(root: Path) -> None:
    assert not said("images", image=IMAGE)
    (data,) = said("images", image=IMAGE, train_data="/lustre/data/a.jsonl")
    assert "(/lustre/data:/data:ro, /models)" in data.message
    for place in ("/tmp/a.jsonl", "/home/somebody/a.jsonl", f"{store.root()}/a.jsonl"):
        assert not said("images", image=IMAGE, train_data=place)


def test_one_entry_may_mount_several_folders(root: Path) -> None:
    assert not said("several", image=IMAGE)
    assert said("several", image=IMAGE, train_data="/lustre/a.jsonl")


def test_a_place_is_meant_where_its_dots_lead(root: Path) -> None:
    assert not said("pods", image=IMAGE, train_data="/elsewhere/../data/a.jsonl")
    (data,) = said("pods", image=IMAGE, train_data="/data/../elsewhere/a.jsonl")
    assert data.message.startswith("/elsewhere/a.jsonl ")


def test_who_declares_no_mounts_or_runs_no_container_hears_nothing(root: Path) -> None:
    for fleet, image in (
        ("bare", IMAGE),
        ("hosts", ""),
        ("cluster", ""),
        ("kubernetes", IMAGE),
        ("local", ""),
    ):
        assert not said(fleet, train_data="/datasets/a.jsonl", image=image)
    assert said("hosts", train_data="/datasets/a.jsonl", image=IMAGE), "unless an image is named"


def test_what_a_policy_mounts_is_seen_in_a_container(root: Path) -> None:
    request = Request(train_data=api.Location("path", "/scratch/a.jsonl"), fleet="images", image=IMAGE)
    here = project.find_project(root)
    assert [one.code for one in unseen.unseen(request, here, ())] == ["fleet-data"]
    assert not list(unseen.unseen(request, here, ("/scratch",)))


def test_versions_of_datasets_are_looked_for_where_they_are_kept(root: Path) -> None:
    here = project.find_project(root)
    request = Request(train_data=api.Location("dataset", "a.jsonl", "me/rows@v1"), fleet="pods")
    (data,) = unseen.unseen(request, here, ())
    assert data.message.startswith(str(store.root() / "me/rows/v1"))
    wrong = request._replace(train_data=api.Location("dataset", "", "nothing"))
    assert not list(unseen.unseen(wrong, here, ()))
