"""Jobs and their curves as JSON documents and as text."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tuneport.jobs.model import Attempt, Record, Transition

if TYPE_CHECKING:
    from tuneport.jobs.metrics import Collected, Series


def job_json(record: Record) -> dict[str, Any]:
    """A job with its last attempt's state. Times are seconds since the epoch, null where not yet."""
    last = record.last
    return {
        "id": record.id,
        "state": last.state,
        "cause": last.cause,
        "exit_code": last.exit_code,
        "method": record.method,
        "release": record.release,
        "action": record.action,
        "experiment": record.experiment,
        "fleet": record.fleet,
        "digest": record.digest,
        "parent": record.parent or None,
        "attempt": last.number,
        "created": record.created,
        "started": last.started,
        "ended": last.ended,
    }


def attempt_json(attempt: Attempt, history: Sequence[Transition]) -> dict[str, Any]:
    return {
        "attempt": attempt.number,
        "key": attempt.key,
        "state": attempt.state,
        "cause": attempt.cause,
        "exit_code": attempt.exit_code,
        "created": attempt.created,
        "started": attempt.started,
        "ended": attempt.ended,
        "history": [
            {
                "time": step.time,
                "before": step.before,
                "after": step.after,
                "cause": step.cause,
                "actor": step.actor,
            }
            for step in history
        ],
    }


def job_row(record: Record) -> tuple[str, ...]:
    """Cells for JOB_HEADER."""
    last = record.last
    kind = record.method if record.action == "train" else f"{record.action} {record.method}"
    tells = last.cause if last.state != "SUCCEEDED" else ""
    return (
        record.id,
        last.state,
        kind,
        record.experiment,
        record.fleet,
        clock(record.created),
        took(last),
        tells,
    )


JOB_HEADER = ("job", "state", "method", "experiment", "fleet", "submitted", "took", "cause")


def history_rows(history: Sequence[Transition]) -> list[tuple[str, ...]]:
    return [(clock(step.time), step.after, step.cause, f"({step.actor})") for step in history]


def clock(when: float | None) -> str:
    return "-" if when is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))


def took(attempt: Attempt) -> str:
    """How long an attempt has run."""
    if attempt.started is None:
        return "-"
    return duration((attempt.ended or time.time()) - attempt.started)


def duration(seconds: float) -> str:
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"


def metrics_json(found: Collected, primary: Sequence[str]) -> dict[str, Any]:
    """Points are [step, value, time]; NaN and infinities are the texts "NaN", "Infinity", "-Infinity"."""
    return {
        "series": [
            {
                "name": series.name,
                "tag": series.tag,
                "source": series.source,
                "points": [[point.step, number_json(point.value), point.time] for point in series.points],
            }
            for series in found.series.values()
        ],
        "primary": list(primary),
        "missing": found.missing(primary),
        "problems": list(found.problems),
    }


def number_json(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


SCORE_HEADER = ("task", "metric", "value", "stderr", "n")


def score_rows(scores: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Cells for SCORE_HEADER. What an evaluation script wrote is shown as far as it is what it should be."""
    rows = []
    for score in scores:
        way = f" ({score['filter']})" if score.get("filter") else ""
        numbers = (
            f"{value:.4f}" if isinstance(value, int | float) else "-"
            for value in (score.get("value"), score.get("stderr"))
        )
        rows.append(
            (
                str(score.get("task", "")),
                f"{score.get('metric', '')}{way}",
                *numbers,
                str(score.get("n") or "-"),
            )
        )
    return rows


METRIC_HEADER = ("metric", "points", "step", "last", "lowest", "highest", "")


def metric_rows(found: Collected, primary: Sequence[str]) -> list[tuple[str, ...]]:
    """Cells for METRIC_HEADER: the primary metrics first, also those that are missing."""
    names = [*primary, *(name for name in found.series if name not in primary)]
    return [_metric_row(name, found.series.get(name)) for name in names]


def _metric_row(name: str, series: Series | None) -> tuple[str, ...]:
    from tuneport.jobs.metrics.plot import number

    if series is None:
        return name, "0", "-", "-", "-", "-", "missing"
    finite = series.finite
    low, high = (number(min(finite)), number(max(finite))) if finite else ("-", "-")
    remark = f"{series.odd} not finite" if series.odd else ""
    return name, str(len(series.points)), str(series.last.step), number(series.last.value), low, high, remark
