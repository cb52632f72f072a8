"""`tp methods --data`: a method is found by the data that one has."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tuneport.cli.methods import DATA
from tuneport.registry import catalog


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


def test_every_method_says_what_it_starts_from() -> None:
    for name, _, _ in catalog.methods():
        kinds = catalog.resolved(*name.split("/")).get("starts_from", ())
        assert kinds and set(kinds) <= set(DATA), name


def test_other_words_are_answered_with_the_kinds() -> None:
    done = tp("methods", "--data", "pears")
    assert done.returncode == 2 and "did you mean 'pairs'?" in done.stderr
    assert tp("methods", "--data", "list").stdout.count("\n") == len(DATA)
