"""`tp methods --data`: a method is found by the data that one has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tuneport.checks import fitting
from tuneport.cli.methods import DATA
from tuneport.registry import catalog

CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def tp(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tuneport", *words], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("words", "kind", "method"),
    [
        ("pairs", "pairs", "trl/dpo"),
        ("good/bad labels", "good-bad-labels", "trl/kto"),
        ("verifiable answers", "verifiable-answers", "verl/grpo"),
        ("demonstrations", "demonstrations", "openrlhf/sft"),
        ("images with labels", "labelled-images", "pytorch/image-classification"),
        ("rubric", "rubric", "trl/grpo-judge"),
    ],
)
def test_data_names_its_methods(words: str, kind: str, method: str) -> None:
    document = json.loads(tp("methods", "--data", words, "--json").stdout)
    assert document["data"] == kind
    assert method in [row["method"] for row in document["methods"]]
    assert all(
        kind in catalog.resolved(*row["method"].split("/"))["starts_from"] for row in document["methods"]
    )


def test_a_framework_may_be_named_beside_the_data() -> None:
    lines = tp("methods", "verl", "--data", "demonstrations").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["verl/sft"]


@pytest.mark.parametrize(
    ("row", "some", "others"),
    [
        (
            {"prompt": "q", "chosen": "a", "rejected": "b"},
            ["trl/dpo", "nemo-rl/rm"],
            ["verl/grpo", "trl/sft", "openrlhf/dpo"],
        ),
        # As `tp new` sets them up: openrlhf/sft reads conversations, and openrlhf/dpo pairs of them.
        (
            {"messages": [{"role": "user", "content": "q"}]},
            ["verl/sft", "trl/sft", "openrlhf/sft"],
            ["openrlhf/dpo"],
        ),
        ({"input": "q", "output": "a"}, ["nemo-rl/sft", "nemo-rl/grpo"], ["openrlhf/sft"]),
        ({"chosen": CHAT, "rejected": CHAT}, ["openrlhf/dpo", "openrlhf/rm", "trl/dpo"], ["openrlhf/sft"]),
        ({"text": "q a"}, ["trl/sft"], ["trl/grpo", "verl/sft"]),
        ({"prompt": "q", "completion": "a", "label": True}, ["trl/kto"], ["trl/dpo"]),
        (
            {"data_source": "a", "prompt": [], "reward_model": {"ground_truth": "1"}},
            ["verl/grpo"],
            ["verl/sft"],
        ),
        ({"data_source": "a", "prompt": []}, [], ["verl/grpo"]),
        ({"pears": 1}, [], ["trl/sft"]),
    ],
)
def test_a_file_names_the_methods_that_read_its_rows(
    tmp_path: Path, row: object, some: list[str], others: list[str]
) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(row), "utf-8")
    found = {method for method in (*some, *others) if fitting.fits(method, tmp_path / "a.jsonl")}
    assert found == set(some)


def test_the_command_lists_them(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": CHAT}), "utf-8")
    words = ("methods", "openrlhf", "--data", str(tmp_path / "a.jsonl"), "--json")
    document = json.loads(tp(*words).stdout)
    assert [entry["method"] for entry in document["methods"]] == ["openrlhf/sft"]
    assert document["columns"] == ["messages"]


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    done = tp("methods", "--data", str(tmp_path / "a.txt"))
    assert done.returncode == 2 and "no rows are seen" in done.stderr
    (tmp_path / "a.jsonl").write_text('{"a": 1, "a": 2}\n')
    assert 'line 1: it says "a" twice' in tp("methods", "--data", str(tmp_path / "a.jsonl")).stderr


def test_every_method_says_what_it_starts_from() -> None:
    for name, _, _ in catalog.methods():
        kinds = catalog.resolved(*name.split("/")).get("starts_from", ())
        assert kinds and set(kinds) <= set(DATA), name


def test_other_words_are_answered_with_the_kinds() -> None:
    done = tp("methods", "--data", "pears")
    assert done.returncode == 2 and "did you mean 'pairs'?" in done.stderr
    assert tp("methods", "--data", "list").stdout.count("\n") == len(DATA)
