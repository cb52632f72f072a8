"""The thresholds of rollout correction, whose text must be taken apart to be judged.
No manifest: expressions take no text apart, and these thresholds are text with numbers in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tuneport.types import Context, Finding, Json

_PREFIX = "algorithm.rollout_correction."
_IS = "verl/trainer/ppo/rollout_corr_helper.py, _parse_rollout_is_threshold"
_RS = "verl/trainer/ppo/rollout_corr_helper.py, _parse_rollout_rs_thresholds"
MEASURES = (
    *(f"token_k{number}" for number in (1, 2, 3)),
    *(f"seq_{how}_k{number}" for how in ("sum", "mean") for number in (1, 2, 3)),
    *(f"seq_max_k{number}" for number in (2, 3)),
)


def check(context: Context) -> Iterator[Finding]:
    """Findings about `rollout_is_threshold` and the rejection measures with their thresholds."""
    config = context.config
    threshold = config.get(f"{_PREFIX}rollout_is_threshold")
    weighted = config.get(f"{_PREFIX}rollout_is") is not None
    if weighted or f"{_PREFIX}rollout_is_threshold" in context.own:
        why = weight_problem(threshold)
        if why and (threshold is not None or weighted):
            hint = "write one number to cut weights off at, or low_high such as 0.5_5.0"
            yield _finding(context, "verl-correction-threshold", "rollout_is_threshold", why, hint, _IS)
    measures = config.get(f"{_PREFIX}rollout_rs")
    if isinstance(measures, str):
        yield from _rejection(context, measures, config.get(f"{_PREFIX}rollout_rs_threshold"))


def weight_problem(threshold: Json) -> str:
    """Why the release would not take this threshold of importance weights; empty where it would."""
    if threshold is None:
        return "no threshold is set, so nothing is weighted"
    if isinstance(threshold, bool) or not isinstance(threshold, int | float | str):
        return f"{threshold!r} is neither a number nor a band"
    text = str(threshold).strip()
    low_text, sign, high_text = text.partition("_")
    high = _number(high_text if sign else low_text)
    low = _number(low_text) if sign else None
    if high is None or (sign and low is None):
        return f"{threshold!r} is neither a number nor a band low_high"
    if high <= 0 or (low is not None and low <= 0):
        return f"{threshold!r} has a bound that is not above 0"
    if low is not None and low > high:
        return f"the band {threshold!r} has its lower end above its upper end"
    return ""


def _rejection(context: Context, measures: str, threshold: Json) -> Iterator[Finding]:
    names = list(dict.fromkeys(part.strip() for part in measures.split(",") if part.strip()))
    unknown = [name for name in names if name not in MEASURES]
    if unknown or not names:
        why = f"{', '.join(unknown) or repr(measures)} is no measure of rejection"
        hint = f"take {', '.join(MEASURES)}"
        yield _finding(context, "verl-rejection-measure", "rollout_rs", why, hint, _RS)
        return
    why = rejection_problem(names, threshold) if threshold is not None else ""
    if why:
        hint = "one bound for all, or one for each measure, comma separated; k1 also takes low_high"
        yield _finding(context, "verl-rejection-bounds", "rollout_rs_threshold", why, hint, _RS)


def rejection_problem(names: list[str], threshold: Json) -> str:
    """Why the release would not take this threshold for these measures; empty where it would."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float | str):
        return f"{threshold!r} is neither a number nor text"
    specs = [part.strip() for part in str(threshold).split(",") if part.strip()]
    if len(specs) not in (1, len(names)):
        return f"there are {len(specs)} thresholds for {len(names)} measures"
    for name, spec in zip(names, specs * len(names) if len(specs) == 1 else specs, strict=False):
        low_text, sign, high_text = spec.partition("_")
        numbers = [_number(low_text), *([_number(high_text)] if sign else [])]
        if sign and not name.endswith("k1"):
            return f"{name} takes one bound, not {spec}"
        if any(number is None or number <= 0 for number in numbers):
            return f"the threshold {spec} of {name} is not a number above 0"
        bounds = [number for number in numbers if number is not None]
        low, high = (bounds[0], bounds[1]) if sign else (1 / bounds[0], bounds[0])
        if name.endswith("k1") and low > high:
            return f"the threshold {spec} of {name} has its lower end above its upper end"
    return ""


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if not math.isnan(number) else None


def _finding(context: Context, code: str, leaf: str, why: str, hint: str, source: str) -> Finding:
    origin = context.origins.get(_PREFIX + leaf)
    place = (origin.file, origin.line) if origin else ("", 0)
    key = leaf if leaf in context.request.params else _PREFIX + leaf
    return Finding(code, "error", why, hint, key, *place, source)
