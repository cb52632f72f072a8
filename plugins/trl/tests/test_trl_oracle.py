"""The release itself rejects what the rules reject, accepts their neighbours, and ignores what is said to be inert."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from trl_support import BASE, RELEASES, Workshop, cases, launched, question

pytestmark = pytest.mark.engine
Ask = Callable[[str, Sequence[dict[str, Any]]], dict[str, Any]]


@pytest.fixture
def built(workshop: Workshop, tiny: Path) -> Workshop:
    """The workshop with a model that can be trained."""
    return Workshop(workshop.root, workshop.data, tiny)


def asked(
    workshop: Workshop, case: Mapping[str, Any], layers: Sequence[str], folder: Path, stage: str, data: str = ""
) -> dict[str, Any]:
    config = dict(BASE)
    for layer in layers:
        config |= case.get(layer) or {}
    kind, validation = data or case.get("data", "pairs"), case.get("validation", False)
    compiled = workshop.compile(case["release"], config, data=kind, validation=validation)
    name = f"{case['id']}-{layers[-1]}"
    return question(launched(compiled), folder / name, stage, name)


@pytest.mark.parametrize("release", RELEASES)
def test_rules_agree_with_the_release(release: str, built: Workshop, oracle: Ask, tmp_path: Path) -> None:
    questions, expected = [], {}
    for case in cases("rules"):
        if case["release"] != release or case["stage"] == "none":
            continue
        stage, data = case["stage"], case.get("bad_data", "")
        questions.append(asked(built, case, ("with", "bad"), tmp_path, stage, data))
        expected[questions[-1]["id"]] = False
        if case.get("good_stage") != "none":
            questions.append(asked(built, case, ("with", "good"), tmp_path, case.get("good_stage", stage)))
            expected[questions[-1]["id"]] = True
    answers = oracle(release, questions)
    wrong = [
        f"{name}: {answer['error'] or 'accepted'}"
        for name, answer in answers.items()
        if answer["accepted"] != expected[name]
    ]
    assert len(answers) > 80
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("release", RELEASES)
def test_inert_keys_change_nothing(release: str, built: Workshop, oracle: Ask, tmp_path: Path) -> None:
    mine = [case for case in cases("inert") if case["release"] == release]
    questions = []
    for case in mine:
        questions.append(asked(built, case, ("with", "set"), tmp_path, "train"))
        questions.append(asked(built, case, ("with",), tmp_path, "train"))
    answers = oracle(release, questions)
    wrong = []
    for case in mine:
        with_it, without = answers[f"{case['id']}-set"], answers[f"{case['id']}-with"]
        for part in ("accepted", "logs", "weights"):
            if with_it.get(part) != without.get(part) or not without["accepted"]:
                wrong.append(f"{case['id']}: {part} {with_it.get(part)} / {without.get(part)} {with_it['error']}")
                break
    assert not wrong, "\n".join(wrong)
