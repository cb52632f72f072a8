"""Real releases that are not among the manifests, adopted into a folder: no code changes, and no lock."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from tuneport.registry import catalog
from tuneport.upstream import adopt_review
from tuneport.upstream.adopt import adopt

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.upstream


def code(framework: str) -> dict[str, str]:
    """Every file that makes the framework what it is here, by its digest."""
    folders = [ROOT / "plugins" / framework / "src", ROOT / "manifests/tuneport_manifests" / framework]
    files = [
        path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"
    ]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("framework", "version", "base", "clean"),
    [
        ("openrlhf", "0.11.1", "0.11.0", True),
        # Backwards: the methods of 0.9 have settings that 0.8 does not know, which is what has to be said.
        ("verl", "0.8.0", "0.9.0", False),
        ("trl", "1.14.0", "1.13.0", True),
        # What its launcher takes is in the release; what its method takes is in the experiment's own script.
        ("pytorch", "2.14.1", "2.14.0", True),
    ],
)
def test_a_real_release_is_adopted_as_data(
    framework: str, version: str, base: str, clean: bool, tmp_path: Path
) -> None:
    before = code(framework)
    adoption = adopt(framework, version)
    written = adoption.write(tmp_path)
    assert before and code(framework) == before
    surfaces = {f"{framework}/surfaces/{version}.json"} if framework != "pytorch" else set()
    assert {path.relative_to(tmp_path).as_posix() for path in written} == {
        f"{framework}/releases/{version}.yaml",
        *surfaces,
    }
    assert (adoption.base, adoption.changed, adoption.ok) == (base, (), clean)
    sheet = adopt_review.document(adoption)
    assert len(sheet["methods"]) == len(catalog.methods(framework))
    assert bool(sheet["failed"]) is not clean
    assert len([line for line in sheet["decide"] if "no code proves it" in line]) < len(adoption.verdicts) / 2
