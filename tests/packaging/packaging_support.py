"""Wheels of every distribution, built once, and what they need: what the tests of installing stand on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TREE = Path(__file__).parents[2]

# Builds what its argument lists, [kind, folder, out]..., in one process.
BUILD = """
import json, os, sys
from hatchling import build
for kind, folder, out in json.loads(sys.argv[1]):
    os.chdir(folder)
    getattr(build, "build_" + kind)(out)
"""


@dataclass(frozen=True)
class Built:
    """`tree` is a copy of what git keeps, so that nobody's edits come in between; `wheels` are from it,
    `rebuilt` from its sdists, `third_party` is everything else. All are folders."""

    tree: Path
    wheels: Path
    rebuilt: Path
    third_party: Path


def make(base: Path) -> Built:
    """Build everything under `base`; other packages come by the pip configuration of whoever runs this."""
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


def content(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("RECORD")}
