"""A real Slurm for the tests that need one, and plans to run on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tuneport.types import Command, LaunchPlan, Pool, RuntimeNeed, Value

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tools/engines/slurm.sh"


def sim(verb: str, folder: Path) -> str:
    done = subprocess.run(
        [str(SCRIPT), verb, str(folder)],
        capture_output=True,
        text=True,
        timeout=180,
        stdin=subprocess.DEVNULL,
        check=False,
        env={**os.environ, "PORT": os.environ.get("SLURM_PORT", "26817")},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def cluster() -> Iterator[Path]:
    """For a fixture: the folder of a cluster of two nodes of eight cards."""
    missing = [tool for tool in ("slurmctld", "slurmd", "sbatch", "munged") if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"no Slurm here ({', '.join(missing) or 'not root'}): tools/engines/slurm.sh install")
    folder = Path(tempfile.mkdtemp(prefix="tp-slurm-"))
    folder.chmod(0o755)  # munge runs as a user of its own
    sim("up", folder / "sim")
    yield folder / "sim"
    sim("down", folder / "sim")
    shutil.rmtree(folder)


def plan(
    *commands: Command, pools: tuple[Pool, ...] = (Pool("main", "cpu", 1, 1),), **more: Any
) -> LaunchPlan:
    return LaunchPlan(
        method="custom/custom",
        release="custom 1",
        runtime=RuntimeNeed("custom-1", host=True),
        pools=pools,
        commands=commands,
        **more,
    )


def shell(text: str, role: str = "trainer", pool: str = "main", **env: Value) -> Command:
    return Command(role, ("sh", "-c", text), env, {}, pool)
