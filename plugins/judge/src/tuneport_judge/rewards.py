"""The judge as a reward function of a trainer that calls one with prompts and completions.
No manifest: it is a part of a program, shipped to the job as it stands.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from tuneport_judge.endpoint import JudgeError
from tuneport_judge.judge import Judge


@cache
def _judge() -> Judge:
    judge = Judge.open()
    _report("init", {"rubric": judge.rubric.digest, "judge": judge.endpoint.model})
    return judge


def reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
    """One reward for each completion, from 0 to 1.

    None where the judge's reply could not be taken: the trainer then learns nothing from that completion.
    How many there were is printed, and logged where the trainer offers to.

    Args:
        prompts, completions: text, or lists of messages.
        columns: the data's other columns; the rubric's `reference` names one. `log_metric` is used if given.

    Raises:
        JudgeError: the judge cannot be asked, which ends the training.
    """
    judge = _judge()
    name = judge.rubric.reference
    if name and name not in columns:
        raise JudgeError(
            f"the rubric's reference is the column {name}, which the training data does not have"
        )
    references = [text(item) for item in columns[name]] if name else None
    results = judge.score([text(item) for item in prompts], [text(item) for item in completions], references)
    refused = [result.reason for result in results if result.value is None]
    if refused:
        why = ", ".join(f"{reason} ({refused.count(reason)})" for reason in dict.fromkeys(refused))
        sys.stdout.write(f"judge: {len(refused)} of {len(results)} replies could not be taken: {why}\n")
        sys.stdout.flush()
    log = columns.get("log_metric")
    if callable(log) and results:
        log("judge/refused", len(refused) / len(results))
        log("judge/cached", sum(result.cached for result in results) / len(results))
    return [result.value for result in results]


def text(value: Any) -> str:
    """Text, a message, or a conversation as text; of several messages each with its role."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return text(value.get("text") if value.get("type") == "text" else value.get("content", ""))
    if isinstance(value, Sequence):
        if len(value) == 1:
            return text(value[0])
        parts = (
            f"{m['role']}: {text(m)}" if isinstance(m, Mapping) and "role" in m else text(m) for m in value
        )
        return "\n".join(part for part in parts if part)
    return "" if value is None else str(value)


def _report(call: str, values: Mapping[str, Any]) -> None:
    """Into the run's report, inside a job."""
    try:
        reporter = import_module("tuneport_report")
    except ImportError:
        return
    getattr(reporter, call)(values)
