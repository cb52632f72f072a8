"""The demo's questions come from the manifests, and what it asks at the end was never trained on."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

DEMO = Path(__file__).parents[1] / "demo"


@pytest.fixture(scope="module")
def questions() -> dict[str, Any]:
    return runpy.run_path(str(DEMO / "questions.py"))


def test_facts_are_the_manifests_own_words(questions: dict[str, Any], tmp_path: Path) -> None:
    count, question, answer = questions["write"](tmp_path)
    assert 8 <= count <= 20
    learned = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text("utf-8").splitlines()]
    asked = [json.loads(line) for line in (tmp_path / "ask.jsonl").read_text("utf-8").splitlines()]
    (one,) = [json.loads(line) for line in (tmp_path / "one.jsonl").read_text("utf-8").splitlines()]
    assert len(learned) == count
    trained = {said(row, "prompt") for row in learned}
    paraphrased = {said(row, "prompt") for row in asked if row["task"] == "paraphrased"}
    assert len(trained) == len(paraphrased) == len({said(row, "completion") for row in learned}) == count
    assert not trained & paraphrased
    assert {said(row, "prompt") for row in asked if row["task"] == "trained"} == trained
    assert (said(one, "prompt"), said(one, "completion")) == (question, answer)
    assert question in paraphrased
    assert all(row.keys() == {"prompt", "completion"} for row in learned)


def said(row: dict[str, Any], part: str) -> str:
    (message,) = row[part]
    return str(message["content"])


def test_log_lines_become_milestones() -> None:
    import sys

    sys.path.insert(0, str(DEMO))
    try:
        milestones = runpy.run_path(str(DEMO / "demo.py"), run_name="demo")["milestones"]
    finally:
        sys.path.remove(str(DEMO))
    step = "\r 25%|##5 | 1/4 [00:00<00:00]  \r{'loss': '5.6', 'grad_norm': '1', 'epoch': '0.25'}"
    assert milestones(step) == ["loss 5.6, epoch 0.25"]
    assert milestones("epoch 3 step 24 validation loss 0.2\n") == ["epoch 3 step 24 validation loss 0.2"]
    for noise in (
        "",
        " 33%|###   | 1/3 [00:00<?, ? examples/s]",
        "x.py:3: FutureWarning: y",
        "  warnings.warn(",
    ):
        assert milestones(noise) == []
