"""The example over ms-swift against ms-swift's own parser; its environment is built once, in the cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tuneport.settings import cache_dir

sys.path.insert(0, str(Path(__file__).parent))

from hydra_reference import locked

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "ms-swift"
# What the argument classes import; the CPU build of torch comes first.
REQUIREMENTS = (
    ("torch==2.13.0",),
    (
        "ms-swift==4.6.0", "torch==2.13.0", "transformers==5.19.0", "trl==0.29.1", "peft==0.20.0",
        "accelerate==1.15.0",
    ),
)  # fmt: skip


def python() -> Path:
    folder = cache_dir() / "ms-swift-reference"
    with locked(folder.parent):
        if not (folder / "done").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            for requirements in REQUIREMENTS:
                words = ["-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements]
                subprocess.run([str(folder / "bin/python"), *words], check=True)
            (folder / "done").touch()
    return folder / "bin/python"


@pytest.mark.upstream
@pytest.mark.timeout(1800)
def test_ms_swift_reads_the_plans_as_they_were_meant() -> None:
    env = {**os.environ, "TUNEPORT_MS_SWIFT_PYTHON": str(python())}
    tests = EXAMPLE / "tests" / "test_ms_swift_upstream.py"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout, "none of them was skipped"
