"""Real training by real torch: needs the runtime pytorch-2.13.0 (cpu), which .ci/run installs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tuneport import api
from tuneport.experiment.create import new_project
from tuneport.jobs.manager import Job
from tuneport.settings import cache_dir

METHOD = "pytorch/image-classification"
RELEASE = "2.13.0"
pytestmark = pytest.mark.engine


def tp(*args: str, cwd: Path) -> Any:
    command = [sys.executable, "-m", "tuneport", *args, "--json"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of the installed runtime."""
    found = sorted((cache_dir() / "runtimes").glob(f"pytorch-{RELEASE}-cpu-*/bin/python"))
    if not found:
        pytest.skip(f"tp runtime install pytorch@{RELEASE} --variant cpu comes first")
    return found[0]


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory, python: Path) -> Iterator[api.Experiment]:
    folder = tmp_path_factory.mktemp("engine")
    before = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("TUNEPORT_")}
    os.environ["TUNEPORT_CACHE_DIR"] = before.get("TUNEPORT_CACHE_DIR", str(cache_dir()))
    os.environ["TUNEPORT_STATE_DIR"] = str(folder / "state")
    yield api.open_project(new_project(folder / "project")).new("digits", METHOD, RELEASE)
    for name in [name for name in os.environ if name.startswith("TUNEPORT_")]:
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(scope="module")
def trained(experiment: api.Experiment) -> Job:
    """What `tp new` writes, submitted as it is on two processes."""
    job = experiment.submit(profile="cpu:2")
    done = job.wait(240)
    assert done.state == "SUCCEEDED", "\n".join(line.text for line in job.logs())
    return done


def test_new_trains_out_of_the_box_on_two_processes(trained: Job) -> None:
    lines = [line.text for line in trained.logs()]
    assert any("2 processes on cpu" in line for line in lines)
    assert sum(line.startswith("epoch ") for line in lines) == 15, "the first process alone speaks"


def test_curves_are_collected_under_canonical_names(trained: Job, experiment: api.Experiment) -> None:
    shown = json.dumps(tp("job", "metrics", trained.id, cwd=experiment.path))
    for name in ("train/loss", "validation/loss", "validation/accuracy", "train/learning_rate"):
        assert f'"{name}"' in shown


def test_evaluation_measures_at_least_95_percent(trained: Job, experiment: api.Experiment) -> None:
    answer = tp("eval", "digits", "--run-id", trained.id, "--profile", "cpu:1", cwd=experiment.path)
    assert answer["state"] == "SUCCEEDED"
    scores = {row["metric"]: row for row in answer["scores"]}
    assert scores["accuracy"]["value"] >= 0.95
    assert scores["accuracy"]["n"] == 450


def test_export_gives_the_same_weights_as_safetensors(
    trained: Job, experiment: api.Experiment, python: Path
) -> None:
    given = ("--checkpoint", trained.id, "--checkpoint-format", "safetensors", "--profile", "cpu:1")
    answer = tp("export", "digits", *given, "--follow", cwd=experiment.path)
    assert answer["state"] == "SUCCEEDED"
    output = api.job(answer["job"]).output_dir()
    code = (
        "import json, sys, torch\n"
        "from safetensors.torch import load_file\n"
        "one = torch.load(sys.argv[1], weights_only=True)\n"
        "other = load_file(sys.argv[2])\n"
        "lists = [{n: t.tolist() for n, t in w.items()} for w in (one['model'], other)]\n"
        "assert lists[0] == lists[1]\n"
        "assert json.load(open(sys.argv[3])) == one['config']\n"
    )
    files = [trained.output_dir() / "checkpoint.pt", output / "model.safetensors", output / "config.json"]
    subprocess.run([python, "-c", code, *files], check=True, timeout=120)


def test_the_number_of_processes_changes_nothing_but_speed(experiment: api.Experiment) -> None:
    losses = []
    for count in (1, 3):
        job = experiment.submit(profile=f"cpu:{count}", set={"max_steps": 24, "batch_size": 50})
        assert job.wait(240).state == "SUCCEEDED"
        (line,) = [line.text for line in job.logs() if " step 24 " in line.text]
        losses.append(line.partition("validation loss ")[2].split()[:3])
    assert losses[0] == losses[1]


def test_data_of_ones_own(experiment: api.Experiment, python: Path) -> None:
    """Three channels, oblong, fewer images in the last batch than processes."""
    code = (
        "import numpy, sys\n"
        "r = numpy.random.default_rng(0)\n"
        "y = r.integers(0, 3, 43)\n"
        "x = r.random((43, 3, 12, 10)) + y[:, None, None, None]\n"
        "numpy.savez(sys.argv[1], images=x, labels=y)\n"
    )
    subprocess.run([python, "-c", code, experiment.path / "own.npz"], check=True, timeout=60)
    wanted = {"batch_size": 31, "epochs": 30, "optimizer": "sgd", "lr_schedule": "cosine", "grad_clip": 1}
    job = experiment.submit(profile="cpu:2", train_data="own.npz", set=wanted | {"mixed_precision": "bf16"})
    assert job.wait(240).state == "SUCCEEDED", "\n".join(line.text for line in job.logs())
    answer = tp("eval", "digits", "--run-id", job.id, "--profile", "cpu:1", cwd=experiment.path)
    assert answer["state"] == "SUCCEEDED"
    assert {row["n"] for row in answer["scores"]} == {11}


def test_a_loss_that_is_not_a_number_ends_the_job(experiment: api.Experiment) -> None:
    job = experiment.submit(profile="cpu:1", set={"learning_rate": 1e30})
    assert job.wait(240).state == "FAILED"
    assert any("the loss is not a number at step" in line.text for line in job.logs())


# Writes one unusable checkpoint after another and runs the exporter on each, in one process because torch
# takes seconds to import.
UNUSABLE = """
import contextlib, io, json, os, pathlib, runpy, sys
import torch

class Hostile:
    def __reduce__(self):
        return (open, ("ran", "w"))

def hello(path):
    pathlib.Path(path).write_text("hello")

cases = {
    "empty": [],
    "two": [("a.pt", {}), ("b.pt", {})],
    "no weights": [("checkpoint.pt", {"epoch": 1})],
    "text": [("checkpoint.pt", hello)],
    "hostile": [("x.pt", Hostile())],
}
said = {}
for name, files in cases.items():
    folder = pathlib.Path(name)
    folder.mkdir()
    for file, content in files:
        content(folder / file) if content is hello else torch.save(content, folder / file)
    os.environ.update(TUNEPORT_CHECKPOINT=str(folder), TUNEPORT_OUTPUT_DIR=str(folder / "out"))
    try:
        runpy.run_path(sys.argv[1], run_name="__main__")
        said[name] = "no complaint"
    except SystemExit as end:
        said[name] = str(end)
print(json.dumps(said))
"""


def test_export_says_what_is_wrong_with_a_checkpoint_and_runs_nothing_in_it(
    tmp_path: Path, python: Path
) -> None:
    script = Path(__file__).parents[1] / "src/tuneport_pytorch/export_safetensors.py"
    done = subprocess.run(
        [python, "-c", UNUSABLE, script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    said = json.loads(done.stdout)
    expected = {
        "empty": "there is no .pt, .pth or .ckpt file in empty",
        "two": "two holds several checkpoints, name one: a.pt, b.pt",
        "no weights": "has no weights",
        "text": "is no checkpoint of tensors and plain data",
        "hostile": "is no checkpoint of tensors and plain data",
    }
    assert set(said) == set(expected)
    for name, text in said.items():
        assert expected[name] in text, name
        assert text.startswith("export: ")
        assert "\n" not in text
    assert not (tmp_path / "ran").exists()
