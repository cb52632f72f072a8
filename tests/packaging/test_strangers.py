"""Strangers' packages in a clean environment that holds wheels of ours and nothing of the tree: the examples,
and what `tp plugin new` writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging_support import TREE, Built, build, project, run

pytestmark = pytest.mark.upstream  # builds every wheel and an environment, and takes minutes
EXAMPLES = sorted(path.parent.name for path in TREE.glob("examples/*/pyproject.toml"))
NEW = {
    "method": ("trl/careful-sft", "--extends", "sft"),
    "framework": ("lines",),
    "adapter": ("acme",),
    "policy": ("budget",),
}


class Clean:
    """A fresh environment with Tuneport from wheels and pytest in it, and a HOME of its own."""

    def __init__(self, built: Built, folder: Path) -> None:
        self.built, self.folder = built, folder
        self.python = folder / "venv" / "bin" / "python"
        run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
        (folder / "home").mkdir()
        # pytest is taken from this environment's own wheels cache: from wherever pip finds it
        wheels = folder / "tools"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        run(*pip, "--constraint", built.tree / "constraints.txt", "--dest", wheels, "pytest")
        self.install("tuneport", "pytest", "--find-links", wheels)

    def install(self, *what: object) -> None:
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--no-index"]
        found = ["--find-links", self.built.third_party, "--find-links", self.built.wheels]
        run(*pip, "--disable-pip-version-check", *found, *what)

    def uninstall(self, name: str) -> None:
        run(sys.executable, "-m", "pip", "--python", self.python, "uninstall", "--quiet", "--yes", name)

    def run(self, *argv: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        env = {"PATH": f"{self.python.parent}:{os.environ['PATH']}", "HOME": str(self.folder / "home")}
        words = [str(word) for word in argv]
        return subprocess.run(
            words, env=env, cwd=cwd or self.folder, capture_output=True, text=True, timeout=600
        )

    def tp(self, *args: object, cwd: Path | None = None) -> str:
        done = self.run(self.python.parent / "tp", *args, cwd=cwd)
        assert done.returncode == 0, (args, done.stdout, done.stderr)
        return done.stdout


@pytest.fixture(scope="module")
def clean(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Clean:
    return Clean(built, tmp_path_factory.mktemp("clean"))


def installed(clean: Clean, source: Path, out: Path) -> str:
    """Build a wheel of a project, install it alone, and check and test it from there; its distribution."""
    out.mkdir()
    build([("wheel", source, out)])
    (wheel,) = out.iterdir()
    assert "Nothing" not in clean.tp("plugin", "check", wheel, "--times", "2")
    name = str(project(source)["name"])
    clean.install(wheel)
    document = json.loads(clean.tp("plugin", "check", name, "--times", "2", "--json"))
    assert document["ok"] and len(document["checks"]) >= 3
    rows = json.loads(clean.tp("plugins", "--json"))["plugins"]
    mine = [row for row in rows if row["dist"] == name]
    assert mine and not [row for row in mine if row["problem"]]
    done = clean.run(
        clean.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", source / "tests", cwd=source
    )
    assert done.returncode == 0, done.stdout
    return name


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example(clean: Clean, example: str, tmp_path: Path) -> None:
    source = tmp_path / example
    shutil.copytree(TREE / "examples" / example, source, ignore=shutil.ignore_patterns("__pycache__"))
    name = installed(clean, source, tmp_path / "dist")
    if example == "parabola":
        clean.tp("init", tmp_path / "demo")
        clean.tp("new", "first", "--method", "parabola/descent", cwd=tmp_path / "demo")
        out = clean.tp("submit", "first", "--profile", "cpu:1", "--follow", cwd=tmp_path / "demo")
        assert "x = 0.0050" in out
    clean.uninstall(name)


@pytest.mark.parametrize("kind", NEW)
def test_a_scaffold_passes_at_once(clean: Clean, kind: str, tmp_path: Path) -> None:
    source = tmp_path / "made"
    clean.tp("plugin", "new", *NEW[kind], "--kind", kind, source)
    name = installed(clean, source, tmp_path / "dist")
    shown = clean.tp("methods")
    wanted = {"method": "trl/careful-sft", "framework": "lines/descent", "adapter": "acme/descent"}
    assert kind == "policy" or wanted[kind] in shown
    clean.uninstall(name)
