"""Every distribution installs three ways into a clean environment, with the same result.

Editable from the tree, wheels from the tree, wheels built out of sdists. Third-party packages are
downloaded once, with the pip configuration of whoever runs this.
"""

from __future__ import annotations

import json
import os
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
FOLDERS = [TREE, *sorted(path.parent for path in TREE.glob("*/pyproject.toml"))]
FOLDERS += sorted(path.parent for path in TREE.glob("plugins/*/pyproject.toml"))

# Builds what its arguments name, in one process: [kind, folder, out]... ; prints the file names.
BUILD = """
import json, os, sys
from hatchling import build
made = []
for kind, folder, out in json.loads(sys.argv[1]):
    os.chdir(folder)
    made.append(getattr(build, "build_" + kind)(out))
print(json.dumps(made))
"""


@dataclass(frozen=True)
class Built:
    """`wheels` from the tree, `rebuilt` from sdists, `third_party` everything else; all folders."""

    wheels: Path
    rebuilt: Path
    third_party: Path


def project(folder: Path) -> dict[str, Any]:
    return dict(tomllib.loads((folder / "pyproject.toml").read_text())["project"])


def own_names() -> set[str]:
    return {project(folder)["name"] for folder in FOLDERS}


def run(*argv: str | Path, **environ: str) -> str:
    done = subprocess.run(
        [str(arg) for arg in argv], capture_output=True, text=True, env=os.environ | environ, cwd=TREE.anchor
    )
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(jobs: list[tuple[str, Path, Path]]) -> list[str]:
    steps = [[kind, str(folder), str(out)] for kind, folder, out in jobs]
    made: list[str] = json.loads(run(sys.executable, "-c", BUILD, json.dumps(steps)))
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    base = tmp_path_factory.mktemp("packaging")
    found = Built(base / "wheels", base / "rebuilt", base / "third-party")
    sdists, sources = base / "sdists", base / "sources"
    for folder in (found.wheels, found.rebuilt, found.third_party, sdists, sources):
        folder.mkdir()
    build(
        [("wheel", folder, found.wheels) for folder in FOLDERS]
        + [("sdist", folder, sdists) for folder in FOLDERS]
    )
    for path in sdists.iterdir():
        with tarfile.open(path) as archive:
            archive.extractall(sources, filter="data")
    build([("wheel", folder, found.rebuilt) for folder in sources.iterdir()])

    own = {name.lower() for name in own_names()}
    needs = {need for folder in FOLDERS for need in project(folder).get("dependencies", ())}
    needs = {need for need in needs if _name(need) not in own}
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    constraints = ["--constraint", str(TREE / "constraints.txt")]
    run(*download, *constraints, "--dest", found.third_party, "hatchling", "editables", *sorted(needs))
    return found


def _name(requirement: str) -> str:
    for mark in "<>=!~[; ":
        requirement = requirement.partition(mark)[0]
    return requirement.lower()


def from_wheels(built: Built) -> list[str | Path]:
    return ["--find-links", built.wheels, "tuneport"]


def from_sdists(built: Built) -> list[str | Path]:
    return ["--find-links", built.rebuilt, "tuneport"]


def editable(_built: Built) -> list[str | Path]:
    return ["--no-build-isolation", *(part for folder in FOLDERS for part in ("--editable", folder))]


@pytest.mark.parametrize("way", [editable, from_wheels, from_sdists])
def test_it_installs_and_lists_its_methods(
    built: Built, tmp_path: Path, way: Callable[[Built], list[str | Path]]
) -> None:
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    python = venv / "bin" / "python"
    offline = ["--no-index", "--find-links", built.third_party, "--quiet", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "--python", python, "install", *offline]
    if way is editable:
        run(*pip, "hatchling", "editables")
    run(*pip, *way(built))

    home = tmp_path / "home"
    home.mkdir()
    clean = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONSAFEPATH": "1"}

    def tp(*args: str) -> Any:
        done = subprocess.run(
            [venv / "bin" / "tp", *args, "--json"], env=clean, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    ours = {
        path.parent.parent.name + "/" + path.stem for path in TREE.glob("manifests/*/*/methods/[!_]*.yaml")
    }
    assert ours, "the tree has methods"
    listed = tp("methods")
    assert {row["id"] for row in listed["methods"]} == ours, listed
    assert not [row for row in listed["methods"] if row.get("problem")]

    code = "import importlib.metadata as m, json, tuneport; print(json.dumps([tuneport.__file__, tuneport.__version__, "
    code += "sorted(d.metadata['Name'] for d in m.distributions())]))"
    file, version, present = json.loads(run(python, "-c", code, HOME=str(home)))
    assert own_names() <= set(present)
    assert version == project(TREE / "core")["version"]
    assert Path(file).is_relative_to(TREE if way is editable else venv)


def test_a_wheel_out_of_an_sdist_is_the_wheel_of_the_tree(built: Built) -> None:
    for path in built.wheels.iterdir():
        assert _content(path) == _content(built.rebuilt / path.name), path.name


def test_wheels_hold_every_file_of_the_tree_and_no_other(built: Built) -> None:
    for folder in FOLDERS:
        name = project(folder)["name"].replace("-", "_")
        (path,) = built.wheels.glob(f"{name}-*.whl")
        inside = {file for file in _content(path) if ".dist-info/" not in file}
        assert inside == _expected(folder), path.name


def _expected(folder: Path) -> set[str]:
    """The files that git would keep in the packages of a distribution; the meta-package has none."""
    if folder == TREE:
        return set()
    target = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    found = set()
    for package in target["packages"]:
        root = folder / package
        listed = run("git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
        names = [name for name in listed.split("\0") if name and (root / name).exists()]
        found |= {f"{root.name}/{name}" for name in names}
    return found


def _content(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("RECORD")}


def test_only_the_core_ships_the_import_name_and_all_are_typed_or_data(built: Built) -> None:
    for path in built.wheels.iterdir():
        tops = {name.partition("/")[0] for name in _content(path) if ".dist-info/" not in name}
        assert ("tuneport" in tops) == path.name.startswith("tuneport_core-"), path.name
        for top in tops - {"tuneport_manifests", "tuneport_schemas"}:
            assert f"{top}/py.typed" in _content(path), path.name
