"""A rubric: what an answer is measured by, how the judge is asked, and how its reply is read.
No manifest: it is a part of a program, shipped to the job, which the platform reads with as well.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

PLACEHOLDERS = ("question", "answer", "reference", "criteria", "scale", "reply")
_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.S)
_MAX_REPLY = 100_000


@dataclass(frozen=True, slots=True)
class Reply:
    """What a reply says: points per criterion, or None and why it says none that can be taken."""

    points: Mapping[str, float] | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rubric:
    """A rubric document that fits `rubric.schema.json`. `digest` is what runs are compared by."""

    document: Mapping[str, Any]
    digest: str

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Rubric:
        return cls(document, digest(document))

    @property
    def names(self) -> list[str]:
        """Of the criteria, as written."""
        return [item["name"] for item in self.document["criteria"]]

    @property
    def sampling(self) -> dict[str, Any]:
        """What the judge is asked with; part of the measure, so part of the digest."""
        return {"temperature": 0, "max_tokens": 512, **self.document.get("sampling", {})}

    @property
    def reference(self) -> str:
        """The column that `{reference}` of the template stands for; empty where it has none."""
        return str(self.document.get("reference", ""))

    def messages(self, question: str, answer: str, reference: str = "") -> list[dict[str, str]]:
        """The conversation that asks for points. Examples are turns of it, in the form that is wanted
        back."""
        found = []
        if self.document.get("system"):
            found.append({"role": "system", "content": self.document["system"]})
        for example in self.document.get("examples", ()):
            asked = self._filled(example["question"], example["answer"], example.get("reference", ""))
            reply = {**({"why": example["why"]} if example.get("why") else {}), **example["scores"]}
            found.append({"role": "user", "content": asked})
            found.append({"role": "assistant", "content": json.dumps(reply, ensure_ascii=False)})
        found.append({"role": "user", "content": self._filled(question, answer, reference)})
        return found

    def _filled(self, question: str, answer: str, reference: str) -> str:
        low, high = self.document["scale"]["min"], self.document["scale"]["max"]
        words = {
            "question": question,
            "answer": answer,
            "reference": reference,
            "criteria": "\n".join(f"- {item['name']}: {item['text']}" for item in self.document["criteria"]),
            "scale": f"{_number(low)} to {_number(high)}",
            "reply": self._wanted(),
        }
        template: str = self.document["template"]
        if "{reply}" not in template:
            template = f"{template.rstrip()}\n\n{{reply}}"
        # In one pass: braces in an answer are the answer's own.
        return _PLACEHOLDER.sub(lambda match: words[match[1]], template)

    def _wanted(self) -> str:
        scale = self.document["scale"]
        form = ", ".join(f'"{name}": <points>' for name in self.names)
        steps = f" in steps of {_number(scale['step'])}" if "step" in scale else ""
        low, high = _number(scale["min"]), _number(scale["max"])
        return (
            f"Reply with one JSON object and nothing else: {{{form}}}. Points go from {low} to {high}{steps}."
        )

    def read(self, text: str) -> Reply:
        """The points of a reply. What is missing, off the scale or said in two ways is not guessed."""
        text = _THOUGHT.sub("", text[:_MAX_REPLY])
        found = [item for item in _objects(text) if set(self.names) <= item.keys()]
        said = {json.dumps([item[name] for name in self.names]) for item in found}
        if not said:
            return Reply(None, "no JSON object with a number for each criterion")
        if len(said) > 1:
            return Reply(None, "several JSON objects that differ")
        points: dict[str, float] = {}
        for name in self.names:
            value = found[0][name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                return Reply(None, f"{name} is no number")
            if not self.on_scale(value):
                return Reply(None, f"{name} is off the scale")
            points[name] = value
        return Reply(points)

    def on_scale(self, value: float) -> bool:
        """Whether points may be given."""
        scale = self.document["scale"]
        if not scale["min"] <= value <= scale["max"]:
            return False
        if "step" not in scale:
            return True
        steps = (value - scale["min"]) / scale["step"]
        return bool(abs(steps - round(steps)) < 1e-9)

    def value(self, points: Mapping[str, float]) -> float:
        """Points of all criteria as one number from 0 to 1: their weighted mean, the scale's ends being 0
        and 1."""
        low, high = self.document["scale"]["min"], self.document["scale"]["max"]
        weights = {item["name"]: item.get("weight", 1) for item in self.document["criteria"]}
        mean = sum(weights[name] * points[name] for name in weights) / sum(weights.values())
        return float((mean - low) / (high - low))


def digest(document: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical JSON (RFC 8785) of a rubric."""
    return "sha256:" + hashlib.sha256(canonical(document).encode()).hexdigest()


def canonical(value: Any) -> str:
    """RFC 8785 for what a rubric may hold: ASCII keys, and numbers between 1e-6 and 1e15."""
    if isinstance(value, Mapping):
        items = (f"{canonical(key)}:{canonical(value[key])}" for key in sorted(value))
        return "{" + ",".join(items) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, float):
        return _number(value)
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else format(Decimal(repr(value)), "f")


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Each JSON object that stands in a text, outermost ones only."""
    decoder, start = json.JSONDecoder(), text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            if isinstance(value, dict):
                yield value
        start = text.find("{", end)
