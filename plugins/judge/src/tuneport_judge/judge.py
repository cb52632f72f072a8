"""The judge of a job: many answers, a few at a time, and what became of each.
No manifest: it is a part of a program, shipped to the job as it stands.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneport_judge.cache import Cache, default_folder
from tuneport_judge.endpoint import Endpoint, JudgeError
from tuneport_judge.rubric import Rubric

FILE = "tuneport-judge.json"
"""What the platform writes into the job's folder, beside this package: the rubric and where the judge is."""


@dataclass(frozen=True, slots=True)
class Result:
    """What the judge made of one answer. `value` is from 0 to 1, None where the reply could not be taken,
    with
    the `reason`; `points` are on the rubric's own scale, per criterion."""

    value: float | None
    points: Mapping[str, float]
    reason: str = ""
    cached: bool = False


class Judge:
    """A rubric, an endpoint that applies it, and a cache."""

    def __init__(
        self, rubric: Rubric, endpoint: Endpoint, *, concurrency: int = 8, cache: Path | None = None
    ) -> None:
        """`cache` is a folder that any number of processes may share; None keeps nothing."""
        self.rubric = rubric
        self.endpoint = endpoint
        self.concurrency = concurrency
        self.cache = Cache(cache)

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None = None) -> Judge:
        """The judge that the platform wrote down for this job, or that of another such file.

        Raises:
            JudgeError: there is none, or it is broken.
        """
        beside = Path(__file__).resolve().parents[1] / FILE
        place = Path(path) if path else beside if beside.exists() else Path(FILE)
        try:
            return cls.of(json.loads(place.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = f"{type(error).__name__}: {error}"
            raise JudgeError(f"{place} describes no judge ({why}); set judge in config.yaml") from error

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Judge:
        """From the content of `tuneport-judge.json`: `rubric` is the whole document, the rest as in
        config.yaml."""
        endpoint = Endpoint(
            settings["base_url"],
            settings["model"],
            settings.get("api_key_env", ""),
            settings.get("timeout", 60.0),
            settings.get("attempts", 6),
            settings.get("pause", 1.0),
        )
        kept = settings.get("cache", True)
        folder = default_folder() if kept is True else Path(kept) if kept else None
        rubric = Rubric.of(settings["rubric"])
        return cls(rubric, endpoint, concurrency=settings.get("concurrency", 8), cache=folder)

    def score(
        self, questions: Sequence[str], answers: Sequence[str], references: Sequence[str] | None = None
    ) -> list[Result]:
        """One result for each answer, in order; equal ones are asked about once.

        Raises:
            JudgeError: the endpoint refuses, or stays silent after every retry. No score is made up.
        """
        about = list(zip(questions, answers, references or [""] * len(answers), strict=True))
        distinct = list(dict.fromkeys(about))
        pool = ThreadPoolExecutor(max(1, min(self.concurrency, len(distinct) or 1)))
        try:
            found = dict(zip(distinct, pool.map(lambda item: self._one(*item), distinct), strict=True))
        finally:
            pool.shutdown(cancel_futures=True)
        return [found[item] for item in about]

    def _one(self, question: str, answer: str, reference: str) -> Result:
        key = (self.rubric.digest, self.endpoint.base_url, self.endpoint.model, question, answer, reference)
        kept = self.cache.get(key)
        cut = False
        if kept is None:
            messages = self.rubric.messages(question, answer, reference)
            text, cut = self.endpoint.ask(messages, self.rubric.sampling)
        else:
            text = kept
        reply = self.rubric.read(text)
        if reply.points is None:
            return Result(None, {}, "the reply was cut short" if cut else reply.reason)
        if kept is None:
            self.cache.put(key, text)
        return Result(self.rubric.value(reply.points), reply.points, cached=kept is not None)

    def rows(self, task: str, results: Sequence[Result]) -> list[dict[str, Any]]:
        """Rows for `scores.json`: the mean value and each criterion's mean, over the answers that got one."""
        taken = [result for result in results if result.value is not None]
        more = {
            "rubric": self.rubric.digest,
            "judge": self.endpoint.model,
            "refused": len(results) - len(taken),
        }
        named = {"judge": [result.value for result in taken if result.value is not None]}
        for name in self.rubric.names:
            named[f"judge/{name}"] = [result.points[name] for result in taken]
        return [
            {"task": task, "metric": name, **_mean(values), **more}
            for name, values in named.items()
            if values
        ]


def _mean(values: Sequence[float]) -> dict[str, Any]:
    count = len(values)
    spread = statistics.stdev(values) / math.sqrt(count) if count > 1 else None
    return {"value": statistics.fmean(values), "stderr": spread, "n": count}
