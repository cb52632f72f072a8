"""Real releases that are not among the manifests, adopted into a folder: no code changes, and no lock."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from pathlib import Path

import pytest
from tuneport.registry import catalog
from tuneport.upstream import adopt_review
from tuneport.upstream.adopt import adopt

ROOT = Path(__file__).resolve().parents[1]
CORPUS = Path(os.environ.get("TUNEPORT_CORPUS") or ROOT.parent / "shared" / "corpus") / "accept" / "openrlhf"
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


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no corpus of invocations in {CORPUS}")
def test_published_commands_are_checked_at_both_releases(tmp_path: Path) -> None:
    """Those that the release refuses bring the same errors at both, and the others none."""
    refused = 0
    for path in sorted(CORPUS.glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        words = ["deepspeed", *record["launcher_args"]]
        if record["launcher"] != "deepspeed":
            words = ["python3", "-m"]
        text = shlex.join([*words, record["entry"], *record["args"]])
        (tmp_path / f"{path.stem}.sh").write_text(f"{text}\n", "utf-8")
        refused += record["upstream_check"]["result"] != "ok"
    count = len(list(tmp_path.iterdir()))
    (tmp_path / "late.sh").write_text("python3 -m openrlhf.cli.train_sft --nowhere.at_all 1\n", "utf-8")
    sheet = adopt_review.document(adopt("openrlhf", "0.11.1", commands=[str(tmp_path)]))
    found = sheet["commands"]
    assert count >= 9 and 0 < refused < count
    assert (found["scripts"], found["commands"], found["others"]) == (count + 1, count + 1, 0)
    assert (found["both"], found["neither"]) == (count - refused, refused + 1)
    assert (found["new"], found["gone"], found["unread"]) == ([], [], [])
    assert any(line.startswith(f"{count + 1} commands in {count + 1} scripts") for line in sheet["proved"])
    assert sheet["ok"] and "no manifest says how openrlhf's own parser is asked" in sheet["notes"]
