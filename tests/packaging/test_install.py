"""Every distribution installs three ways into a clean environment, with the same result.

Editable from the tree, wheels from the tree, wheels built out of sdists. Third-party packages are
downloaded once, with the pip configuration of whoever runs this.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TREE = Path(__file__).parents[2]

# Builds what its argument lists, [kind, folder, out]..., in one process.
BUILD = """
import json, os, sys
from hatchling import build
for kind, folder, out in json.loads(sys.argv[1]):
    os.chdir(folder)
    getattr(build, "build_" + kind)(out)
"""
PRESENT = """
import importlib.metadata, json, tuneport
names = [found.metadata["Name"] for found in importlib.metadata.distributions()]
print(json.dumps([tuneport.__file__, tuneport.__version__, names]))
"""


@dataclass(frozen=True)
class Built:
    """`tree` is a copy of what git keeps, so that nobody's edits come in between; `wheels` are from it,
    `rebuilt` from its sdists, `third_party` is everything else. All are folders."""

    tree: Path
    wheels: Path
    rebuilt: Path
    third_party: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    base = tmp_path_factory.mktemp("packaging")
    found = Built(base / "tree", base / "wheels", base / "rebuilt", base / "third-party")
    sdists, sources = base / "sdists", base / "sources"
    for folder in (found.tree, found.wheels, found.rebuilt, found.third_party, sdists, sources):
        folder.mkdir()
    copy_the_tree(found.tree)
    ours = folders(found.tree)
    jobs = [("wheel", folder, found.wheels) for folder in ours]
    build(jobs + [("sdist", folder, sdists) for folder in ours])
    for path in sdists.iterdir():
        with tarfile.open(path) as archive:
            archive.extractall(sources, filter="data")
    build([("wheel", folder, found.rebuilt) for folder in sources.iterdir()])

    own = {project(folder)["name"] for folder in ours}
    needs = {need for folder in ours for need in project(folder).get("dependencies", ())}
    needs = {need for need in needs if name_of(need) not in own}
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    constraints = ["--constraint", found.tree / "constraints.txt"]
    run(*pip, *constraints, "--dest", found.third_party, "hatchling", "editables", *sorted(needs))
    return found


def copy_the_tree(target: Path) -> None:
    listed = run("git", "-C", TREE, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    for name in filter(None, listed.split("\0")):
        if (TREE / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TREE / name, target / name)


def folders(tree: Path) -> list[Path]:
    """The folder of each distribution, the meta-package first."""
    found = [tree, *sorted(path.parent for path in tree.glob("*/pyproject.toml"))]
    return found + sorted(path.parent for path in tree.glob("plugins/*/pyproject.toml"))


def tables(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())


def project(folder: Path) -> dict[str, Any]:
    return dict(tables(folder)["project"])


def name_of(requirement: str) -> str:
    for mark in "<>=!~[; ":
        requirement = requirement.partition(mark)[0]
    return requirement.lower()


def run(*argv: object, **environ: str) -> str:
    words = [str(arg) for arg in argv]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | environ, cwd=TREE.anchor)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(jobs: list[tuple[str, Path, Path]]) -> None:
    run(
        sys.executable, "-c", BUILD, json.dumps([[kind, str(folder), str(out)] for kind, folder, out in jobs])
    )


def from_wheels(built: Built) -> list[object]:
    return ["--find-links", built.wheels, "tuneport"]


def from_sdists(built: Built) -> list[object]:
    return ["--find-links", built.rebuilt, "tuneport"]


def editable(built: Built) -> list[object]:
    return ["--no-build-isolation", *(part for one in folders(built.tree) for part in ("--editable", one))]


@pytest.mark.parametrize("way", [editable, from_wheels, from_sdists])
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


def content(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("RECORD")}
