"""Every distribution installs three ways into a clean environment, with the same result.

Editable from the tree, wheels from the tree, wheels built out of sdists. Third-party packages are
downloaded once, with the pip configuration of whoever runs this.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging_support import Built, content, folders, project, run, tables

PRESENT = """
import importlib.metadata, json, tuneport
names = [found.metadata["Name"] for found in importlib.metadata.distributions()]
print(json.dumps([tuneport.__file__, tuneport.__version__, names]))
"""


def from_wheels(built: Built) -> list[object]:
    return ["--find-links", built.wheels, "tuneport"]


def from_sdists(built: Built) -> list[object]:
    return ["--find-links", built.rebuilt, "tuneport"]


def editable(built: Built) -> list[object]:
    return ["--no-build-isolation", *(part for one in folders(built.tree) for part in ("--editable", one))]


@pytest.mark.sweep(whole=True)
@pytest.mark.parametrize("way", [from_wheels, editable, from_sdists])
def test_it_installs_and_lists_its_methods(
    built: Built, tmp_path: Path, way: Callable[[Built], list[object]]
) -> None:
    venv, home = tmp_path / "venv", tmp_path / "home"
    home.mkdir()
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    python = venv / "bin" / "python"
    offline = ["--no-index", "--find-links", built.third_party, "--quiet", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "--python", python, "install", *offline]
    if way is editable:
        run(*pip, "hatchling", "editables")
    run(*pip, *way(built))

    clean = {"PATH": os.environ["PATH"], "HOME": str(home)}
    argv = [str(venv / "bin" / "tp"), "methods", "--json"]
    done = subprocess.run(argv, env=clean, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    listed = json.loads(done.stdout)["methods"]
    files = built.tree.glob("manifests/*/*/methods/[!_]*.yaml")
    declared = {f"{path.parent.parent.name}/{path.stem}" for path in files}
    assert declared, "the tree has methods"
    assert {row["method"] for row in listed} == declared
    assert not [row for row in listed if row["problem"]]

    file, version, present = json.loads(run(python, "-c", PRESENT, HOME=str(home)))
    assert {project(folder)["name"] for folder in folders(built.tree)} <= set(present)
    assert list(built.wheels.glob(f"tuneport_core-{version}-*.whl"))
    assert Path(file).is_relative_to(built.tree if way is editable else venv)


def test_a_wheel_out_of_an_sdist_is_the_wheel_of_the_tree(built: Built) -> None:
    for path in built.wheels.iterdir():
        assert content(path) == content(built.rebuilt / path.name), path.name


def test_wheels_hold_every_file_of_the_tree_and_no_other(built: Built) -> None:
    for folder in folders(built.tree):
        name = project(folder)["name"].replace("-", "_")
        (path,) = built.wheels.glob(f"{name}-*.whl")
        inside = {file for file in content(path) if ".dist-info/" not in file}
        roots = [
            folder / one
            for one in tables(folder)["tool"]["hatch"]["build"]["targets"]["wheel"].get("packages", ())
        ]
        there = {
            f"{root.name}/{file.relative_to(root).as_posix()}"
            for root in roots
            for file in root.rglob("*")
            if file.is_file() and "__pycache__" not in file.parts
        }
        assert inside == there, path.name


def test_only_the_core_ships_the_import_name_and_all_packages_are_typed(built: Built) -> None:
    for path in built.wheels.iterdir():
        files = set(content(path))
        tops = {name.partition("/")[0] for name in files if ".dist-info/" not in name}
        assert ("tuneport" in tops) == path.name.startswith("tuneport_core-"), path.name
        assert {f"{top}/py.typed" for top in tops} <= files, path.name
