"""What config.yaml says is what the script's own parser makes of the plan's words: real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tuneport import api
from tuneport.experiment.create import new_project

SCRIPT = """
import argparse, json
def str2bool(text): return {"true": True, "false": False}[text.lower()]
p = argparse.ArgumentParser()
p.add_argument("--deep", type=bool, default=True)
p.add_argument("--shallow", type=str2bool, default=True)
p.add_argument("--amp", action="store_true")
p.add_argument("--no-cache", action="store_false", dest="cache")
p.add_argument("--ema", action=argparse.BooleanOptionalAction, default=True)
p.add_argument("--item", action="append")
p.add_argument("--lrs", type=float, nargs="+")
p.add_argument("--tag")
p.add_argument("--opt", type=int)
p.add_argument("--batch-size", "-b", type=int, default=1)
p.add_argument("--ratio", type=float, default=0.5)
p.add_argument("-v", action="count", default=0)
print(json.dumps(vars(p.parse_args())))
"""
BASE = {
    "deep": True,
    "shallow": True,
    "amp": False,
    "cache": True,
    "ema": True,
    "item": None,
    "lrs": None,
    "tag": None,
    "opt": None,
    "batch_size": 1,
    "ratio": 0.5,
    "v": 0,
}


@pytest.mark.parametrize(
    ("config", "seen"),
    [
        ("", {}),
        ("deep: false\nshallow: false\nema: false", {"deep": False, "shallow": False, "ema": False}),
        ("amp: false", {}),
        ("deep: true\nshallow: true\namp: true\nema: true", {"amp": True}),
        ("no_cache: true", {"cache": False}),
        ("no_cache: false", {}),
        ("item: [a, --b]\nlrs: [0.1, 1]", {"item": ["a", "--b"], "lrs": [0.1, 1.0]}),
        ("item: one\nlrs: 2", {"item": ["one"], "lrs": [2.0]}),
        ("tag: null\nopt: null", {}),
        ("tag: 5\nopt: 5\nbatch_size: 3", {"tag": "5", "opt": 5, "batch_size": 3}),
        ("ratio: 1e-3\nv: 2", {"ratio": 1e-3, "v": 2}),
        ('tag: "--x"', {"tag": "--x"}),
        ('tag: ""', {"tag": ""}),
        ("opt: -3\nratio: -1.5e-9", {"opt": -3, "ratio": -1.5e-9}),
    ],
)
def test_the_script_gets_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, seen: dict[str, Any]
) -> None:
    monkeypatch.setenv("TUNEPORT_CACHE_DIR", str(tmp_path / "cache"))
    project = api.open_project(new_project(tmp_path / "project"))
    experiment = project.new("e", "pytorch/image-classification")
    (experiment.path / "train.py").write_text(SCRIPT)
    (experiment.path / "config.yaml").write_text(config)
    argv = experiment.plan(profile="cpu:1").commands[0].argv
    words = argv[argv.index("train.py") + 1 :]
    command = [sys.executable, str(experiment.path / "train.py"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == BASE | seen
