"""`tp dataset prepare`: the experiment's script runs, and what it writes is held to what the method reads."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from .test_core_cli import Shop

SCRIPT = """
import json, os, sys
out = os.environ["TUNEPORT_OUTPUT_DIR"]
column = sys.argv[1] if len(sys.argv) > 1 else "text"
print("preparing", os.environ.get("HUB", "none"))
for split in ("train", "test"):
    with open(f"{out}/{split}.jsonl", "w") as stream:
        for number in range(3):
            print(json.dumps({column: str(number)}), file=stream)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    assert made.run("init", "shop", cwd=tmp_path).returncode == 0
    assert made.run("new", "exp", "--method", "acme/tune").returncode == 0
    write(made, "prepare_data.py", SCRIPT)
    return made


def write(shop: Shop, name: str, text: str) -> None:
    (shop.root / "experiments/exp" / name).write_text(text, "utf-8")


def prepare(shop: Shop, *words: str, code: int = 0) -> Any:
    python = [] if "--python" in words else ["--python", sys.executable]
    before, mark, after = list(words), [], []
    if "--" in words:
        at = words.index("--")
        before, mark, after = list(words[:at]), ["--"], list(words[at + 1 :])
    done = shop.run("dataset", "prepare", "exp", *python, *before, "--json", *mark, *after)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) | {"stderr": done.stderr}


def test_what_the_script_wrote_is_checked_kept_and_published(shop: Shop) -> None:
    found = prepare(shop, "--out", "data")
    assert found["ok"] and found["script"] == "prepare_data.py"
    assert found["files"]["train.jsonl"]["rows"] == 3
    assert found["files"]["test.jsonl"]["columns"] == ["text"]
    assert found["path"] == str(shop.root / "data")
    assert "preparing none" in found["stderr"]
    assert sorted(path.name for path in (shop.root / "data").iterdir()) == ["test.jsonl", "train.jsonl"]
    (shop.root / "scratch").mkdir()
    shop.env["TMPDIR"] = str(shop.root / "scratch")
    found = prepare(shop, "--as", "me/three", "v1")
    assert found["reference"] == "me/three@v1"
    shown = shop.json("dataset", "show", "me/three@v1")[1]
    assert sorted(shown["files"]) == ["test.jsonl", "train.jsonl"]
    assert not list((shop.root / "scratch").iterdir())
    text = shop.run("dataset", "prepare", "exp", "--python", sys.executable, "--as", "me/three", "v1").stdout
    assert "train.jsonl" in text and "me/three@v1  sha256:" in text


def test_data_that_the_method_cannot_read_is_not_published(shop: Shop) -> None:
    found = prepare(shop, "--as", "me/three", "v1", "--", "prose", code=3)
    assert [finding["code"] for finding in found["findings"]] == ["acme-columns"]
    assert (found["ok"], found["reference"], found["path"]) == (False, "", "")
    assert shop.json("dataset", "show", "me/three@v1")[0] == 4
    done = shop.run("dataset", "prepare", "exp", "--python", sys.executable, "--out", "x", "--", "prose")
    assert done.returncode == 3
    assert "error[acme-columns]" in done.stdout


def test_what_the_experiment_trains_on_now_does_not_matter(shop: Shop) -> None:
    """The same is wrong with the data that job.yaml names and with the new: it is still said of the new."""
    write(shop, "old.jsonl", '{"prose": "0"}\n')
    write(shop, "job.yaml", "data: {train: {path: old.jsonl}}\n")
    assert "acme-columns" in shop.run("validate", "exp").stdout
    found = prepare(shop, "--out", "data", "--", "prose", code=3)
    assert [finding["code"] for finding in found["findings"]] == ["acme-columns"]
    assert prepare(shop, "--out", "good")["findings"] == []


def test_odd_columns_harm_nobody(shop: Shop) -> None:
    found = prepare(shop, "--out", "data", "--", "te\x1bxt\n", code=3)
    assert found["files"]["train.jsonl"]["columns"] == ["te\x1bxt\n"]
    words = ["--python", sys.executable, "--out", "more", "--", "te\x1bxt"]
    assert "\x1b" not in shop.run("dataset", "prepare", "exp", *words).stdout


def test_the_jobs_environment_is_handed_on(shop: Shop) -> None:
    write(shop, "job.yaml", "env: {HUB: elsewhere}\n")
    assert "preparing elsewhere" in prepare(shop, "--out", "data")["stderr"]


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("open(out + '/notes.txt', 'w').write('x')", "prepare-no-train"),
        ("open(out + '/train.parquet', 'wb').write(b'PAR1' + bytes(100))", "prepare-unreadable"),
        ("open(out + '/train.jsonl', 'w').write('{broken')", "prepare-unreadable"),
        ("open(out + '/train.jsonl', 'wb').write(b'\\xff\\xfe')", "prepare-unreadable"),
        ("open(out + '/train.jsonl', 'w')", "prepare-empty"),
    ],
)
def test_files_that_are_no_data(shop: Shop, script: str, code: str) -> None:
    write(shop, "prepare_data.py", f"import os; out = os.environ['TUNEPORT_OUTPUT_DIR']\n{script}\n")
    found = prepare(shop, "--out", "data", code=3)
    assert code in [finding["code"] for finding in found["findings"] if finding["severity"] == "error"]


def test_a_script_that_dies_leaves_nothing(shop: Shop) -> None:
    write(shop, "prepare_data.py", SCRIPT + "\nimport signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    found = prepare(shop, "--out", "data", code=3)
    assert found["error"]["message"] == "prepare_data.py was ended by SIGKILL"
    assert not list((shop.root / "data").iterdir())
    write(shop, "prepare_data.py", SCRIPT)
    assert prepare(shop, "--out", "data")["ok"]


def test_what_it_left_out_is_said_in_its_own_words(shop: Shop) -> None:
    write(shop, "prepare_data.py", "")
    error = prepare(shop, "--out", "data", code=3)["error"]
    assert error["message"] == "the script ended well and wrote no file"
    write(shop, "prepare_data.py", "import os; os.mkfifo(os.environ['TUNEPORT_OUTPUT_DIR'] + '/train.jsonl')")
    error = prepare(shop, "--out", "data", code=3)["error"]
    assert "push" not in error["message"] + error["hint"] and "not all plain files" in error["message"]


def refusal(shop: Shop, *words: str, code: int) -> str:
    found = prepare(shop, *words, code=code)
    assert found["error"]["message"]
    return str(found["error"]["code"])


def test_refusals(shop: Shop) -> None:
    assert refusal(shop, code=2) == "prepare-target"
    assert refusal(shop, "--as", "three", "v1", code=3) == "dataset-reference"
    assert refusal(shop, "--out", "data", "--script", "other.py", code=4) == "prepare-script"
    assert refusal(shop, "--out", "data", "--script", "../exp/prepare_data.py", code=4) == "prepare-script"
    assert refusal(shop, "--out", "data", "--python", "/nowhere/python", code=6) == "prepare-python"
    assert refusal(shop, "--out", "experiments", code=3) == "prepare-out"
    assert refusal(shop, "--out", "experiments/exp/config.yaml", code=3) == "prepare-out"
    write(shop, "prepare_data.py", "raise SystemExit('no such source')")
    assert refusal(shop, "--out", "data", code=3) == "prepare-failed"
    link = "import os; os.symlink('/etc/passwd', os.environ['TUNEPORT_OUTPUT_DIR'] + '/train.jsonl')"
    write(shop, "prepare_data.py", link)
    assert refusal(shop, "--out", "linked", code=3) == "dataset-files"
    write(shop, "prepare_more.py", SCRIPT)
    assert refusal(shop, "--out", "data", code=3) == "prepare-script"
    assert prepare(shop, "--out", "more", "--script", "prepare_more.py")["ok"]
    for path in (shop.root / "experiments/exp").glob("prepare_*.py"):
        path.unlink()
    assert refusal(shop, "--out", "data", code=4) == "prepare-script"


def test_without_an_environment_the_way_to_one_is_said(shop: Shop) -> None:
    done = shop.run("dataset", "prepare", "exp", "--out", "data", "--json")
    assert done.returncode == 6
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "prepare-python"
    assert "--python" in error["hint"] and "tp runtime install acme@1.0.0" in error["hint"]
