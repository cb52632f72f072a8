"""Every golden plan and the whole surface against ms-swift's own parser. Runs where TUNEPORT_MS_SWIFT_PYTHON
names a Python with ms-swift 4.6.0, transformers 5.19.0 and a CPU build of torch in it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PYTHON = os.environ.get("TUNEPORT_MS_SWIFT_PYTHON", "")
DATA = HERE.parent / "src/tuneport_ms_swift_manifests/ms-swift"
CLASSES = {
    "swift_sft": "SftArguments",
    "swift_rlhf": "RLHFArguments",
    "swift_megatron_sft": "MegatronSftArguments",
}
PROGRAMS = {
    ("swift.cli.main", "sft"): "swift_sft",
    ("swift.cli.main", "rlhf"): "swift_rlhf",
    ("swift.cli._megatron.main", "sft"): "swift_megatron_sft",
}
pytestmark = pytest.mark.skipif(not PYTHON, reason="TUNEPORT_MS_SWIFT_PYTHON names no Python with ms-swift")


def ask(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [PYTHON, str(HERE / "ms_swift_oracle.py")],
        input=json.dumps(questions), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def surface() -> dict[str, Any]:
    return json.loads((DATA / "surfaces/4.6.0.json").read_text("utf-8"))["entries"]


def plans() -> list[dict[str, Any]]:
    return [json.loads(path.read_text("utf-8")) for path in sorted((HERE / "golden").glob("*.json"))]


def question(plan: dict[str, Any]) -> dict[str, Any]:
    argv = [word if isinstance(word, str) else f"/ref/{word['ref']}" for word in plan["commands"][0]["argv"]]
    return {"class": CLASSES[PROGRAMS[argv[2], argv[3]]], "argv": argv[4:]}


WRONG = [
    {"class": "SftArguments", "argv": ["--learning_rates=1"]},
    {"class": "RLHFArguments", "argv": ["--rlhf_type=dppo"]},
    {"class": "SftArguments", "argv": ["--max_steps=many"]},
]


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    """The parsers' flags, then what they make of each plan and of WRONG; importing ms-swift takes long."""
    return ask([*({"class": name} for name in CLASSES.values()), *map(question, plans()), *WRONG])


def test_the_surface_is_what_the_parser_takes(answers: list[dict[str, Any]]) -> None:
    for entry, answer in zip(CLASSES, answers[:3], strict=True):
        keys, flags = surface()[entry]["keys"], answer["flags"]
        assert set(flags) == set(keys), entry
        known = {name: key["default"] for name, key in keys.items() if "default" in key}
        wrong = {name: (known[name], flags[name]) for name in known if known[name] != flags[name]}
        # A field of a truth value or a word, with the word `no` for its default: it ends as false.
        wrong.pop("include_num_input_tokens_seen", None)
        assert not wrong, entry


def test_each_plan_is_read_as_it_was_meant(answers: list[dict[str, Any]]) -> None:
    assert len(plans()) == 7
    for plan, answer in zip(plans(), answers[3:10], strict=True):
        assert answer.get("rest") == [], (plan["method"], answer)
        lists = {name for name, value in answer["values"].items() if isinstance(value, list)}
        for name, value in plan["config"].items():
            ref = plan["config_refs"].get(f"/{name}")
            wanted = f"/ref/{ref['ref']}" if ref else value
            wanted = [wanted] if name in lists and not isinstance(wanted, list) else wanted
            assert answer["values"][name] == wanted, (plan["method"], name)


def test_it_refuses_what_we_refuse(answers: list[dict[str, Any]]) -> None:
    unknown, choice, number = answers[10:]
    assert unknown["rest"] == ["--learning_rates=1"], "which the release refuses: SwiftPipeline._parse_args"
    assert "invalid choice" in choice["error"]
    assert "invalid int value" in number["error"]
