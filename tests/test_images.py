"""The image files are what the manifests say, and good practice. To build them takes an engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tuneport.registry import catalog

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from dockerfiles import FOLDER, ROOT, files

HADOLINT = str(Path(sys.executable).parent / "hadolint")
DOCKERFILES = sorted((ROOT / FOLDER).glob("Dockerfile.*"))


def test_the_files_are_current() -> None:
    expected = files()
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / FOLDER).rglob("*") if path.is_file()}
    assert there == set(expected)
    stale = [name for name, content in expected.items() if (ROOT / name).read_text("utf-8") != content]
    assert not stale, "run python tools/dockerfiles.py"


def test_every_release_has_an_image_or_a_file_that_builds_one() -> None:
    for framework in catalog.frameworks():
        for release in catalog.releases(framework):
            runtime = catalog.release_spec(framework, release)["runtime"]
            build = runtime.get("oci", {}).get("build")
            if "image" in runtime.get("oci", {}) or ("venv" not in runtime and not build):
                continue
            text = (ROOT / FOLDER / f"Dockerfile.{framework}").read_text("utf-8")
            assert f" {release}" in text.split("\nFROM")[0]
            lines = (
                (ROOT / FOLDER / f"requirements/{framework}-{release}.txt").read_text("utf-8").splitlines()
            )
            variants = [build] if build else runtime["venv"]["variants"].values()
            pinned = {item for variant in variants for item in variant["requirements"]}
            assert lines and set(lines) <= pinned
            for line in lines:
                (version,) = Requirement(line).specifier
                assert version.operator == "=="


def test_what_is_compiled_is_what_the_wheel_asks_for_and_comes_after_torch() -> None:
    for release in catalog.releases("openrlhf"):
        spec = catalog.release_spec("openrlhf", release)
        build = spec["runtime"]["oci"]["build"]
        pinned = dict(item.split("==") for item in (*build["requirements"], *build["compiled"]))
        assert {name: str(version) for name, version in spec["pins"].items()}.items() <= pinned.items()
        assert pinned["openrlhf"] == release
        assert {item.split("==")[0] for item in build["compiled"]} == {"flash-attn", "deepspeed"}


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_lint(path: Path) -> None:
    done = subprocess.run([HADOLINT, "--no-color", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_linter_bites(tmp_path: Path) -> None:
    text = DOCKERFILES[0].read_text("utf-8").replace("--no-cache-dir ", "")
    (tmp_path / "Dockerfile").write_text(text, "utf-8")
    done = subprocess.run(
        [HADOLINT, "--no-color", str(tmp_path / "Dockerfile")], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "DL3042" in done.stdout
