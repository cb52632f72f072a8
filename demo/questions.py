"""Questions and answers out of Tuneport's manifests: what a finding means, a parameter sets, a method does.

Each fact has one question to learn it by and one, worded differently, that training never sees.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

FINDINGS = (
    "trl-streaming-steps",
    "trl-images-packing",
    "trl-two-precisions",
    "trl-tf32-on-cpu",
    "trl-data-missing",
    "trl-eval-on-start",
)
PARAMETERS = ("epochs", "lora_rank", "max_length", "weight_decay", "warmup_steps", "micro_batch_size")
METHODS = ("custom/custom", "pytorch/image-classification", "trl/sft")


def facts(manifests: Path) -> Iterator[tuple[str, str, str]]:
    """(question to learn, question held back, answer) of each fact, read from the manifests' own words."""
    rules = {
        rule["code"]: rule["say"]
        for path in sorted(manifests.glob("*/rules/*.yaml"))
        for rule in _read(path).get("rules", ())
    }
    for code in FINDINGS:
        yield (
            f"What does the finding {code} mean?",
            f"tp validate reports {code}. What is wrong?",
            _sentence(rules[code]),
        )
    words = _read(manifests / "vocabulary.yaml")["parameters"]
    for name in PARAMETERS:
        yield (
            f"What does the parameter {name} set?",
            f"Tell me the meaning of {name}.",
            _sentence(words[name]["meaning"]),
        )
    for method in METHODS:
        framework, name = method.split("/")
        summary = _read(manifests / framework / "methods" / f"{name}.yaml")["summary"]
        yield f"What does the method {method} do?", f"When would I choose {method}?", _sentence(summary)


def write(folder: Path) -> tuple[int, str, str]:
    """Write train.jsonl and ask.jsonl; returns the number of facts, a held-back question and its answer."""
    spec = find_spec("tuneport_manifests")
    assert spec is not None and spec.origin is not None
    known = list(facts(Path(spec.origin).parent))
    learn = [_row(question, answer) for question, _, answer in known]
    ask = [{"task": "trained", **row} for row in learn]
    ask += [{"task": "paraphrased", **_row(question, answer)} for _, question, answer in known]
    _, question, answer = known[0]
    one = [{"task": "one question", **_row(question, answer)}]
    for name, rows in (("train.jsonl", learn), ("ask.jsonl", ask), ("one.jsonl", one)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return len(known), question, answer


def _row(question: str, answer: str) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": question}],
        "completion": [{"role": "assistant", "content": answer}],
    }


def _sentence(text: str) -> str:
    first = text.split()[0]
    return f"{text[0].upper() if first.isalpha() else text[0]}{text[1:]}."


def _read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return document
