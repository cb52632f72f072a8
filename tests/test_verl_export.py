"""A checkpoint becomes a Hugging Face folder with the release's own merger, on processors."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from hydra_reference import wheel
from verl_commands import DATA, RELEASES
from verl_reference import python

pytestmark = pytest.mark.upstream


@pytest.mark.parametrize("release", RELEASES)
def test_shards_are_merged_into_the_model_they_came_from(tmp_path: Path, release: str) -> None:
    _, tree = wheel("verl", release)
    run("write", tmp_path / "run/global_step_2", 1)
    environment = {
        "PYTHONPATH": str(tree),
        "TUNEPORT_CHECKPOINT": str(tmp_path / "run"),
        "TUNEPORT_BACKEND": "fsdp",
        "TUNEPORT_OUTPUT_DIR": str(tmp_path / "merged"),
    }
    script = str(files("tuneport_verl") / "export_script.py")
    done = subprocess.run(
        [str(python()), script], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "merged/tokenizer.json").is_file()
    run("compare", tmp_path / "merged")


def run(*words: object) -> None:
    command = [str(python()), str(DATA / "verl_checkpoint.py"), *map(str, words)]
    subprocess.run(command, check=True, capture_output=True)
