"""custom/custom: what is asked of the user, what the script gets, and that it really runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tuneport import api
from tuneport.experiment.create import new_project
from tuneport.testing.frameworks import FrameworkTests
from tuneport.types import Ref

IMAGE = "registry.example/team/train:1"


class TestCustomConforms(FrameworkTests):
    framework = "custom"
    requests: ClassVar[dict[str, dict[str, Any]]] = {"custom/custom": {"profile": "cpu:1"}}
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
    return api.open_project(new_project(tmp_path / "project")).new("mine", "custom/custom")


def findings(experiment: api.Experiment, **request: Any) -> list[tuple[str, str, str]]:
    report = experiment.validate(**request)
    return [(found.severity, found.code, found.key) for found in report.findings]


def tp(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuneport", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


def test_a_script_and_an_image_are_all_it_takes(experiment: api.Experiment) -> None:
    (experiment.path / "config.yaml").write_text("")
    (experiment.path / "train.sh").write_text("#!/bin/sh\nset -e\necho training\n")
    report = experiment.validate(profile="h200:8", image=IMAGE)
    assert [found.severity for found in report.findings if found.severity != "note"] == []
    assert experiment.plan(profile="h200:8", image=IMAGE).runtime.image == IMAGE


def test_off_the_local_fleet_the_image_must_be_named(experiment: api.Experiment) -> None:
    errors = [row for row in findings(experiment, profile="h200:8", fleet="kubernetes") if row[0] == "error"]
    assert ("error", "image-missing", "--image") in errors


def test_on_the_local_fleet_it_says_that_it_runs_in_this_environment(experiment: api.Experiment) -> None:
    report = experiment.validate(profile="cpu:1")
    assert report.ok
    (note,) = [found for found in report.findings if found.code == "host-runtime"]
    assert "environment that tp itself runs in" in note.message
    assert experiment.plan(profile="cpu:1").runtime.host
    assert not experiment.plan(profile="cpu:1", image=IMAGE).runtime.host


def test_without_train_sh_there_is_nothing_to_run(experiment: api.Experiment) -> None:
    (experiment.path / "train.sh").unlink()
    rows = findings(experiment, profile="h200:8", image=IMAGE)
    assert ("error", "file-missing", "train.sh") in rows


def test_config_reaches_the_script_as_variables(experiment: api.Experiment) -> None:
    text = "model: {layers: 2}\ntrain_data: mine\nlr: 1e-3\nlist: [1, a]\nempty: null\nflag: true\n"
    (experiment.path / "config.yaml").write_text(text)
    (experiment.path / "points.csv").write_text("x,y\n")
    plan = experiment.plan(profile="cpu:1", model="some/model", train_data="points.csv")
    assert plan.commands[0].argv == ("sh", "train.sh")
    assert dict(plan.commands[0].env) == {
        "CONFIG_MODEL__LAYERS": "2",
        "CONFIG_TRAIN_DATA": "mine",
        "CONFIG_LR": "0.001",
        "CONFIG_LIST": '[1, "a"]',
        "CONFIG_EMPTY": "",
        "CONFIG_FLAG": "true",
        "TUNEPORT_MODEL": "some/model",
        "TUNEPORT_TRAIN_DATA": Ref("work_dir", "/points.csv"),
    }


def test_what_new_writes_trains_and_reports_its_curve(experiment: api.Experiment) -> None:
    root = experiment.path.parent.parent
    done = tp("submit", "mine", "--profile", "cpu:1", "--follow", cwd=root)
    assert done.returncode == 0, done.stderr
    assert "current environment" in done.stderr or "environment that tp itself runs in" in done.stderr
    assert done.stdout.splitlines()[-1].startswith("epoch 20/20  loss ")
    (job,) = api.jobs()
    assert job.state == "SUCCEEDED"
    line = json.loads((job.output_dir() / "line.json").read_text())
    assert line["slope"] > 1.5
    metrics = json.loads(tp("job", "metrics", job.id, "--json", cwd=root).stdout)
    shown = json.dumps(metrics)
    assert "train/loss" in shown
    assert tp("job", "metrics", job.id, cwd=root).stdout.count("train/loss") >= 1


def test_a_script_that_fails_fails_the_job_with_its_exit_code(experiment: api.Experiment) -> None:
    (experiment.path / "train.sh").write_text("echo before; exit 7\n")
    job = experiment.submit(profile="cpu:1").wait(60)
    assert (job.state, job.exit_code) == ("FAILED", 7)
    assert [line.text for line in job.logs()] == ["before"]


def quoted(text: str) -> str:
    """A YAML scalar that means exactly `text`."""
    return '"' + "".join(f"\\U{ord(character):08x}" for character in text) + '"'


def test_values_of_any_text_arrive_as_they_are(experiment: api.Experiment) -> None:
    probe = (
        "import json, os\nprint(json.dumps({k: v for k, v in os.environ.items() if k[:7] == 'CONFIG_'}))\n"
    )
    (experiment.path / "probe.py").write_text(probe)
    (experiment.path / "train.sh").write_text(f"exec '{sys.executable}' -S probe.py\n")
    texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
    odd = st.sampled_from(["$(id)", "`id`", "--flag", "-", "a\nb", "\"'", "${HOME}", "{ref}", "\u2028", "#"])

    @settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(texts | odd, min_size=1, max_size=12))
    def check(values: list[str]) -> None:
        wanted = {f"key{index}": value for index, value in enumerate(values)}
        text = "".join(f"{name}: {quoted(value)}\n" for name, value in wanted.items())
        (experiment.path / "config.yaml").write_text(text)
        job = experiment.submit(profile="cpu:1").wait(60)
        assert job.state == "SUCCEEDED"
        seen = json.loads("".join(line.text for line in job.logs()))
        assert seen == {f"CONFIG_{name.upper()}": value for name, value in wanted.items()}

    check()


def test_it_never_stands_in_for_another_method(tmp_path: Path) -> None:
    project = api.open_project(new_project(tmp_path / "other"))
    for name in ("custom/other", "nothing/custom", "custom"):
        done = tp("new", "x", "--method", name, cwd=project.root)
        assert done.returncode == 4, done.stderr
    assert not project.experiments()


def test_the_runtime_says_where_such_a_job_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tuneport", "runtime", "show", "custom@1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"on the local fleet: this environment, {sys.executable}" in done.stdout
