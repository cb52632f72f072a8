"""Decides what each parameter of one method becomes in another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tuneport.compiler.convert import DEVICES, is_converted
from tuneport.experiment import values
from tuneport.porting.canonical import Said, own_words, shapes_result
from tuneport.registry import vocabulary
from tuneport.types import Json, Method

SAID = "the batch says it, in its own unit"
How = Literal["kept", "switch", "off", "idle", "own words", "no counterpart", "out of range"]


@dataclass(frozen=True, slots=True)
class Row:
    """One parameter of the source, and what becomes of it; `why` where it does not come along, `word` where
    the source says the value by another word."""

    name: str
    value: Json
    how: How
    why: str = ""
    word: Json = None


def carried(
    said: Mapping[str, Said], source: Method, target: Method, before: Mapping[str, Said], devices: int
) -> tuple[dict[str, Json], list[Row]]:
    """(the target's parameters, what became of each of the source's). `before` is what the target says where
    nothing is set.

    Whatever shapes the result comes along, even where it is a default: the other stack has its own defaults.
    Of the rest, what a person set.
    """
    params: dict[str, Json] = {}
    rows: list[Row] = []
    for name in vocabulary.words():
        if name not in said or not (said[name].asked or name in shapes_result()):
            continue
        if name not in before and not said[name].asked and is_off(name, said):
            continue  # what does nothing there and here needs no counterpart
        row = _row(name, said, source, target)
        if row.how in ("kept", "switch"):
            params[name] = row.value
        rows.append(row)
    for at, row in enumerate(rows):
        if row.how == "switch" and _is_spoken_for(row.name, params, target):
            del params[row.name]
            rows[at] = replace(row, how="off")
    params |= dict(_switches(said, target, before))
    params |= dict(_neutral(said, params, target, before))
    params |= _fitting(params, target, before, devices)
    twice = set(_said_twice(params, target))
    rows = [replace(row, how="idle", why=SAID) if row.name in twice else row for row in rows]
    return {name: value for name, value in params.items() if name not in twice}, rows


def _row(name: str, said: Mapping[str, Said], source: Method, target: Method) -> Row:
    value, word = said[name].value, vocabulary.words()[name]
    switch = word.get("switch", "")
    if switch in target.params and switch not in said and is_off(name, said):
        return Row(name, value, "off", f"{target.id} says so by {switch}")
    if switch and is_off(switch, said):
        if "neutral" not in word or name not in target.params or switch in target.params:
            return Row(name, value, "off", f"{switch} is off")
        return Row(name, word["neutral"], "switch", f"{switch} is off")
    if name not in target.params:
        return Row(name, value, "no counterpart", f"{target.id} has no such parameter")
    if name in own_words() and source.framework != target.framework and not alike(name, value):
        return Row(name, value, "own words", f"{target.framework} has words of its own: set it by hand")
    problems = []
    for form in [*_forms(value, target.params[name].schema), *alike(name, value)]:
        problem = next(iter(values.check({name: form}, target, "params")), None)
        if problem is None:
            return Row(name, form, "kept", word=value if isinstance(form, str) and form != value else None)
        problems.append(problem.message)
    return Row(name, value, "out of range", problems[0])


def _forms(value: Json, schema: Mapping[str, Json]) -> Iterator[Json]:
    """A value as it is, and one of several as the other writes it: alone, or in a list. A whole number is
    written as one where the other counts."""
    if isinstance(value, float) and value.is_integer() and schema.get("type") == "integer":
        yield int(value)
    yield value
    if isinstance(value, str):
        yield [value]
    elif isinstance(value, list) and len(value) == 1:
        yield value[0]


def alike(name: str, value: Json) -> list[Json]:
    """The words for the same thing, this one among them, of a parameter whose words are known (`same` of the
    vocabulary)."""
    groups = vocabulary.words()[name].get("same", ())
    return next((list(group) for group in groups if value in group), [])


def is_off(name: str, said: Mapping[str, Said]) -> bool:
    """Whether a parameter is off: false, or the number that says `not at all`, or its own switch is off."""
    word = vocabulary.words()[name]
    value = said[name].value if name in said else None
    nothing = value is False or ("neutral" in word and value == word["neutral"])
    return nothing or ("switch" in word and is_off(word["switch"], said))


def _said_twice(params: Mapping[str, Json], target: Method) -> Iterator[str]:
    """Parameters whose key another one writes in a unit of its own, such as batches in examples: that one
    says what the step is."""
    counted = {key for name in params if is_converted(param := target.params[name]) for key in param.keys}
    for name in params:
        param = target.params[name]
        if not is_converted(param) and counted.intersection(param.keys):
            yield name


def _is_spoken_for(name: str, params: Mapping[str, Json], target: Method) -> bool:
    """Whether another parameter that came along writes the key: one key may stand for either of two."""
    keys = set(target.params[name].keys)
    return any(other != name and keys & set(target.params[other].keys) for other in params)


def _switches(
    said: Mapping[str, Said], target: Method, before: Mapping[str, Said]
) -> Iterator[tuple[str, Json]]:
    """Switches that only the target has: on where what they turn on is there and is not nothing; off where
    they would be on."""
    for name, one in said.items():
        word = vocabulary.words()[name]
        switch = word.get("switch", "")
        if "neutral" in word and name in target.params and switch in target.params and switch not in said:
            on = one.value != word["neutral"]
            if on or (switch in before and before[switch].value is True):
                yield switch, on


def _neutral(
    said: Mapping[str, Said], params: Mapping[str, Json], target: Method, before: Mapping[str, Said]
) -> Iterator[tuple[str, Json]]:
    """What only the target has, where its default would change what is learned: it is told to do nothing."""
    now = {**before, **_as_said(params)}
    for name in target.params:
        word = vocabulary.words()[name]
        if name in said or name in params or name not in before or not word.get("result"):
            continue
        if "neutral" not in word or is_off(name, now) or _is_spoken_for(name, {**params, name: None}, target):
            continue
        if not any(values.check({name: word["neutral"]}, target, "params")):
            yield name, word["neutral"]


def _as_said(params: Mapping[str, Json]) -> dict[str, Said]:
    return {name: Said(value, asked=True) for name, value in params.items()}


def _fitting(
    params: Mapping[str, Json], target: Method, before: Mapping[str, Said], devices: int
) -> dict[str, Json]:
    """A smaller share for each device, where the one that was carried does not divide the whole: it changes
    memory and speed only."""
    found: dict[str, Json] = {}
    for name, value in params.items():
        param = target.params[name]
        free = [one for one in param.over if one != DEVICES and one not in shapes_result()]
        if not is_converted(param) or len(free) != 1 or not isinstance(value, int):
            continue
        (share,) = free
        whole = value
        for one in param.times:
            other = params.get(one)
            whole *= other if isinstance(other, int) else 1
        if DEVICES in param.over:
            if not devices or whole % devices:
                continue
            whole //= devices
        size = params.get(share, before[share].value if share in before else None)
        if isinstance(size, int) and whole % size:
            found[share] = math.gcd(whole, size)
    return found
