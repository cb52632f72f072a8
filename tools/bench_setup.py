"""Builds what the benchmark compares: Tuneport from wheels, the incumbent, and a thousand plugins."""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).parents[1]
INCUMBENT = "tuneplane==0.4.0"
PLUGINS, METHODS_EACH = 1000, 10

BUILD = """
import json, os, sys
from hatchling import build
for folder in json.loads(sys.argv[1]):
    os.chdir(folder)
    build.build_wheel(sys.argv[2])
"""
RELEASE = 'release: "1.0"\nstatus: supported\nruntime: {{id: {name}-1.0, oci: {{}}}}\n'
METHOD = """\
method: {name}/m{number}
version: "1"
title: Method {number} of {name}
summary: One of many, to see what many cost
starts_from: [demonstrations]
roles: [trainer]
params:
  learning_rate: {{key: lr, type: number, exclusiveMinimum: 0}}
bind:
  model: {{key: model, required: true}}
launch: {{launcher: none, run: {{module: trainer}}, dialect: {{name: flags}}}}
"""


def environment(home: Path) -> dict[str, str]:
    """A plain environment: bytecode is cached, nothing is coloured, all state is below `home`."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "LC_ALL", "SYSTEMROOT") if key in os.environ}
    return {**kept, "HOME": str(home), "COLUMNS": "120", "NO_COLOR": "1"}


def find_python(version: str) -> Path | None:
    """A `pythonX.Y` that runs, on PATH or among pyenv's versions; None where there is none."""
    pyenv = sorted(
        glob.glob(str(Path.home() / f".pyenv/versions/{version}*/bin/python{version}")), reverse=True
    )
    for path in (*pyenv, shutil.which(f"python{version}")):
        if (
            path
            and subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0
        ):
            return Path(path)
    return None


def incumbent(base: Path) -> Path | None:
    """The folder of the incumbent's environment, built once; None where there is no Python 3.12."""
    folder = base / INCUMBENT.replace("==", "-")
    if not (folder / "ready").exists():
        python = find_python("3.12")
        if python is None:
            return None
        print(f"installing {INCUMBENT} into {folder}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        _run(python, "-m", "venv", folder)
        _run(
            folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", INCUMBENT
        )
        (folder / "ready").touch()
    return folder


def tuneport(base: Path, name: str) -> Path:
    """A fresh environment with all distributions of this tree, as wheels."""
    folder, wheels = base / name, base / "wheels"
    print(f"installing Tuneport from this tree into {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(wheels, ignore_errors=True)
    wheels.mkdir(parents=True)
    places = [TREE, *(path.parent for path in TREE.glob("*/pyproject.toml"))]
    places += [path.parent for path in TREE.glob("plugins/*/pyproject.toml")]
    _run(sys.executable, "-c", BUILD, json.dumps([str(place) for place in places]), wheels)
    _run(sys.executable, "-m", "venv", folder)
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(*pip, "--constraint", TREE / "constraints.txt", *sorted(wheels.glob("*.whl")))
    return folder


def add_plugins(venv: Path) -> None:
    """Install PLUGINS distributions of METHODS_EACH methods into an environment, as pip would leave them."""
    (site,) = (venv / "lib").glob("python3.*/site-packages")
    print(f"adding {PLUGINS} plugins with {PLUGINS * METHODS_EACH} methods", file=sys.stderr, flush=True)
    for number in range(PLUGINS):
        name, package = f"frame{number:04}", f"scale_{number:04}"
        info = site / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        (info / "INSTALLER").write_text("pip\n")
        (info / "RECORD").write_text(f"{package}/__init__.py,,\n")
        points = f"[tuneport.manifests]\n{package} = {package}\n\n"
        points += f"[tuneport.frameworks]\n{name} = {package}:Adapter\n"
        (info / "entry_points.txt").write_text(points)
        folder = site / package / name
        (folder / "releases").mkdir(parents=True)
        (folder / "methods").mkdir()
        (site / package / "__init__.py").write_text("class Adapter:\n    pass\n")
        (folder / "framework.yaml").write_text(f'framework: {name}\ntitle: {name}\ndefault_release: "1.0"\n')
        (folder / "releases/1.0.yaml").write_text(RELEASE.format(name=name))
        for method in range(METHODS_EACH):
            (folder / f"methods/m{method}.yaml").write_text(METHOD.format(name=name, number=method))


def tuneport_project(venv: Path, home: Path, method: str = "trl/sft") -> Path:
    """A project with an experiment `e1` that a plain `tp validate e1` checks in full; its folder."""
    home.mkdir(parents=True)
    tp, environ = venv / "bin/tp", environment(home)
    _run(tp, "init", "proj", cwd=home, env=environ)
    _run(tp, "new", "e1", "--method", method, cwd=home / "proj", env=environ)
    data = {"train": {"path": "/data/train.parquet"}, "validation": {"path": "/data/test.parquet"}}
    job = {"model": "Qwen/Qwen3-0.6B", "data": data, "profile": "h200:8"}
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in job.items())
    (home / "proj/experiments/e1/job.yaml").write_text(text)
    return home / "proj"


def incumbent_project(venv: Path, home: Path, method: str = "trl/sft") -> Path:
    """The same of the incumbent."""
    home.mkdir(parents=True)
    tp, environ = venv / "bin/tp", environment(home)
    _run(tp, "init", "proj", "--yes", "--no-git", cwd=home, env=environ)
    _run(tp, "new", "e1", "--method", method, cwd=home / "proj", env=environ)
    return home / "proj"


def upstream_verl(release: str, home: Path) -> tuple[list[str], Path, dict[str, str]]:
    """(words, folder, environment) that ask the real verl about a key that it does not have."""
    sys.path.insert(0, str(TREE / "tests"))
    from hydra_reference import wheel
    from verl_reference import python

    home.mkdir(parents=True)
    _, tree = wheel("verl", release)
    words = [str(python()), "-m", "verl.trainer.main_ppo", "bad=1"]
    return words, home, {**environment(home), "PYTHONPATH": str(tree)}


def _run(*argv: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    environ = {key: value for key, value in (env or os.environ).items() if key != "PYTHONDONTWRITEBYTECODE"}
    words = [str(arg) for arg in argv]
    done = subprocess.run(
        words, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
