"""A real Ray cluster for the tests that need one, and plans to run on it."""

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
SCRIPT = ROOT / "tools/engines/ray.sh"
PORT = "28265"
ONE = (Pool("main", "cpu", 1, 1),)


def sim(verb: str, folder: Path) -> None:
    done = subprocess.run(
        [str(SCRIPT), verb, str(folder)],
        capture_output=True,
        text=True,
        timeout=240,
        stdin=subprocess.DEVNULL,
        check=False,
        env={**os.environ, "PORT": PORT, "TUNEPORT_CACHE_DIR": str(cache())},
    )
    assert done.returncode == 0, done.stderr


def cache() -> Path:
    from tuneport.settings import cache_dir

    return cache_dir()


def cluster() -> Iterator[str]:
    """For a fixture: the address of a cluster of two nodes of eight cards."""
    if not list(cache().glob("engines/ray-*/ready")) or os.geteuid() != 0:
        pytest.skip("no Ray here, or not root: tools/engines/ray.sh install")
    folder = Path(tempfile.mkdtemp(prefix="tp-ray-"))
    sim("up", folder)
    yield f"http://127.0.0.1:{PORT}"
    sim("down", folder)
    shutil.rmtree(folder)


def plan(*commands: Command, pools: tuple[Pool, ...] = ONE, **more: Any) -> LaunchPlan:
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
