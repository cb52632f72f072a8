"""Whether the rows of the data are what the method learns from, by the method's `data`: columns and the kind
of value in each, as far as the first rows show them.

    data:
      rows: [{prompt: [text, messages], chosen: [text, messages], rejected: [text, messages]}]
      alike: [prompt, chosen, rejected]      # all text, or all messages, within the whole file
      instead: {input_ids_chosen: what to do where a known mistake is seen}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tuneport.types import Context, Finding

SPLITS = {"train": "--train-data", "validation": "--validation-data"}
WORDS = {
    "text": "text",
    "messages": "messages",
    "bool": "true or false",
    "number": "a number",
    "list": "a list that is no messages",
    "record": "a record",
    "null": "null",
    "empty": "empty",
    "absent": "not there",
}
_FORM = Mapping[str, Sequence[str]]


def check(context: Context) -> Iterator[Finding]:
    """Findings about each file of the request whose columns are known."""
    spec = context.method.spec.get("data")
    if not spec or any(context.own.get(key) for key in spec.get("unless", ())):
        return
    for split, flag in SPLITS.items():
        facts: Mapping[str, Any] = context.facts.get("data", {}).get(split, {})
        columns = facts.get("columns")
        if columns:
            bound = context.method.spec.get("bind", {}).get("train_data", {}).get("key", flag)
            yield from _file(spec, columns, facts.get("shapes", {}), bound if split == "train" else flag)


def _file(
    spec: Mapping[str, Any], columns: Sequence[str], shapes: Mapping[str, Mapping[str, int]], key: str
) -> Iterator[Finding]:
    forms: list[_FORM] = spec["rows"]
    form = next((form for form in forms if set(form) <= set(columns)), None)
    if form is None:
        if not spec.get("open"):
            yield _missing(spec, forms, columns, key)
        return
    found = [finding for name in form for finding in _column(name, form[name], shapes.get(name, {}), key)]
    yield from found
    if not any(finding.severity == "error" for finding in found):
        yield from _mixed([name for name in spec.get("alike", ()) if name in form], shapes, key)


def _missing(spec: Mapping[str, Any], forms: Sequence[_FORM], columns: Sequence[str], key: str) -> Finding:
    has = ", ".join(columns[:8]) + (", …" if len(columns) > 8 else "")
    near = min(forms, key=lambda form: len(set(form) - set(columns)))
    lacks = [name for name in near if name not in columns]
    message = f"the data has no column {' and no column '.join(lacks)}; its columns are {has}"
    ways = " or ".join(" + ".join(form) for form in forms)
    hint = next(
        (say for name, say in spec.get("instead", {}).items() if name in columns), f"a row needs {ways}"
    )
    return Finding("data-columns", "error", message, hint, key)


def _column(name: str, kinds: Sequence[str], shapes: Mapping[str, int], key: str) -> Iterator[Finding]:
    """The first row whose value is of no kind that the column takes."""
    wrong = {shape: row for shape, row in shapes.items() if shape not in (*kinds, "empty")}
    if not wrong:
        if "empty" in shapes:
            message = (
                f"{_row(shapes['empty'])}, column {name}: it is empty, so there is nothing to learn from"
            )
            yield Finding("data-empty", "warning", message, "fill it, or drop the row", key)
        return
    shape = min(wrong, key=lambda one: wrong[one])
    wants = " or ".join(WORDS[kind] for kind in kinds)
    message = f"{_row(wrong[shape])}, column {name}: it is {WORDS[shape]}, and has to be {wants}"
    hint = {
        "list": "write messages as records with role and content",
        "number": "write true and false" if "bool" in kinds else "write it as text, in quotes",
        "text": "write true and false, without quotes" if "bool" in kinds else "",
    }.get(shape, "fill it, or drop the row")
    yield Finding("data-value", "error", message, hint, key)


def _mixed(names: Sequence[str], shapes: Mapping[str, Mapping[str, int]], key: str) -> Iterator[Finding]:
    """The first value that is text where the others are messages, or the other way round."""
    seen = [(row, name, shape) for name in names for shape, row in shapes.get(name, {}).items()]
    seen = [one for one in seen if one[2] in ("text", "messages")]
    first = min(seen, default=None)
    other = min((one for one in seen if first is not None and one[2] != first[2]), default=None)
    if first is None or other is None:
        return
    message = (
        f"{_row(other[0])}, column {other[1]}: it is {WORDS[other[2]]}, and {first[1]} is {WORDS[first[2]]}"
    )
    hint = "write all of them as text, or all as messages"
    yield Finding("data-mixed", "error", message, hint, key)


def _row(number: int) -> str:
    return f"row {number}" if number else "every row"
