"""verl's own code on processors, to be asked what it takes. The environment is built once, in the cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra_reference import locked, wheel
from tuneport.settings import cache_dir
from verl_commands import Command

# What the release imports before it needs a GPU. The first call takes the CPU build of torch along.
REQUIREMENTS = (
    ("torch==2.13.0",),
    (
        "torch==2.13.0", "tensordict==0.10.0", "transformers==5.10.4", "ray[default]==2.60.0",
        "hydra-core==1.3.8", "omegaconf==2.3.1", "numpy==2.4.6", "pandas==3.1.1", "peft==0.21.2",
        "pyarrow==26.0.1", "datasets==5.2.0", "accelerate==1.15.0", "codetiming==1.4.0", "dill==0.4.1",
        "pylatexenc==2.11", "torchdata==0.11.0", "packaging==25.0", "pybind11==3.1.0", "tensorboard==2.21.0",
    ),
)  # fmt: skip


def ask(release: str, commands: Sequence[Command]) -> list[dict[str, Any]]:
    """The release's answer to each command: `accepted`, `stage`, `error`."""
    _, tree = wheel("verl", release)
    script = Path(__file__).parent / "data/verl_oracle.py"
    cases = [{"entry": command.entry, "args": command.args} for command in commands]
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [str(python()), str(script), str(tree)],
            input=json.dumps(cases),
            capture_output=True,
            text=True,
            env={**os.environ, "TMPDIR": scratch, "OMP_NUM_THREADS": "1"},
        )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(cases), done.stderr[-2000:]
    return answers


def python() -> Path:
    folder = cache_dir() / "verl-reference"
    with locked(folder.parent):
        if not (folder / "done").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            for requirements in REQUIREMENTS:
                words = ["-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements]
                subprocess.run([str(folder / "bin/python"), *words], check=True)
            (folder / "done").touch()
    return folder / "bin/python"
