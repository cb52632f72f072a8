"""`tp dataset` from the outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for key in list(os.environ):
        if key.startswith(("TUNEPORT_", "TUNEPLANE_", "FORGE_")):
            monkeypatch.delenv(key)
    monkeypatch.setenv("TUNEPORT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TUNEPORT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"a": 1}\n' * 200)
    return folder


def tp(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tuneport", "dataset", *map(str, args)], capture_output=True, text=True
    )


def answer(*args: str | Path, code: int = 0) -> Any:
    done = tp(*args, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_push_list_show_verify(place: Path) -> None:
    assert "no datasets" in tp("ls").stdout
    pushed = answer("push", "alice/gsm8k-zh", "v2", place)
    assert (pushed["created"], pushed["reference"]) == (True, "alice/gsm8k-zh@v2")
    assert (pushed["files"], pushed["size"]) == (1, 1800)
    again = tp("push", "alice/gsm8k-zh", "v2", place)
    assert again.returncode == 0
    assert "there already" in again.stderr
    listed = answer("ls")["datasets"]
    assert [(row["reference"], row["digest"]) for row in listed] == [("alice/gsm8k-zh@v2", pushed["digest"])]
    assert "1.8 kB" in tp("ls", "alice/gsm8k-zh").stdout
    shown = answer("show", "alice/gsm8k-zh@v2")
    assert shown["files"]["train.jsonl"]["size"] == 1800
    assert shown["files"]["train.jsonl"]["sha256"] in tp("show", "alice/gsm8k-zh@v2").stdout
    assert answer("verify", "alice/gsm8k-zh@v2")["digest"] == pushed["digest"]
    assert tp("verify", "alice/gsm8k-zh@v2").stdout.rstrip().endswith("as pushed")


def test_what_went_wrong_has_its_exit_code(place: Path) -> None:
    assert tp("push", "alice/x", "v1", place).returncode == 0
    (place / "train.jsonl").write_text("other")
    (place.parent / "links").mkdir()
    (place.parent / "links" / "l").symlink_to("/etc/passwd")
    for args, code, error in [
        (("push", "alice/x", "v1", place), 3, "dataset-version-exists"),
        (("push", "alice", "v1", place), 3, "dataset-reference"),
        (("push", "alice/y", "v1", place.parent / "links"), 3, "dataset-files"),
        (("show", "alice/x"), 3, "dataset-version-missing"),
        (("show", "alice/x@v9"), 4, "dataset-version-unknown"),
        (("verify", "bob/x@v1"), 4, "dataset-unknown"),
        (("ls", "bob/x"), 4, "dataset-unknown"),
        (("push", "alice/x"), 2, "usage"),
    ]:
        failed = answer(*args, code=code)
        assert (failed["ok"], failed["error"]["code"]) == (False, error), args
        assert failed["error"]["message"]
    assert "l is a symbolic link" in tp("push", "alice/y", "v1", place.parent / "links").stderr


def test_a_changed_file_is_refused_with_exit_code_5_and_listed_versions_go_on(place: Path) -> None:
    path = Path(answer("push", "alice/x", "v1", place)["path"])
    (path / "train.jsonl").chmod(0o644)
    (path / "train.jsonl").write_text("changed")
    failed = tp("verify", "alice/x@v1")
    assert failed.returncode == 5
    assert "train.jsonl was changed" in failed.stderr
    manifest = path.parent / "manifest.json"
    manifest.unlink()
    assert tp("push", "alice/x", "v2", place).returncode == 0
    rows = answer("ls")["datasets"]
    assert [bool(row["problem"]) for row in rows] == [True, False]
    assert "damaged" in tp("ls").stdout
