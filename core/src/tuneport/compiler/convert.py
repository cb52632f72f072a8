"""Parameters whose native key counts in another unit: prompts as answers, a step as one device's share.

`times` and `over` of a parameter name other parameters, or `devices`. The native value is
value x times / over: with 8 answers to each prompt, 4 prompts are 32 answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, prod

from tuneport.types import Context, Finding, Json, Param

DEVICES = "devices"
"""Processes that train: one for each GPU, or as many as a pool without GPUs has."""


def is_converted(param: Param) -> bool:
    return bool(param.times or param.over)


def native(context: Context, param: Param, value: Json) -> Json:
    """A parameter's value in its key's unit: whole where it can be; None while a factor is not known."""
    times, over = _factors(context, param)
    return _scaled(value, times, over)


def canonical(context: Context, param: Param, value: Json) -> Json:
    """The other way round: a native value in the parameter's own unit; None where that is not known."""
    times, over = _factors(context, param)
    return _scaled(value, over, times)


def check(context: Context) -> Iterator[Finding]:
    """An error for each parameter that comes to no whole number of its key's unit."""
    for name, value in context.request.params.items():
        param = context.method.params[name]
        found = native(context, param, value) if is_converted(param) else None
        if not isinstance(found, float):
            continue
        factors = [f"x {_named(context, one)}" for one in param.times]
        factors += [f"/ {_named(context, one)}" for one in param.over]
        message = f"{name} {value} {' '.join(factors)} is {found:g}, and `{param.keys[0]}` is a whole number"
        times, over = _factors(context, param)
        hint = f"use a multiple of {over // gcd(times, over)}"
        yield Finding("param-fraction", "error", message, hint, name)


def once(findings: Sequence[Finding], context: Context) -> list[Finding]:
    """The findings without those about a key into which a parameter writes no whole number."""
    params = {finding.key for finding in findings if finding.code == "param-fraction"}
    broken = params | {key for name in params for key in context.method.params[name].keys}
    return [one for one in findings if one.code == "param-fraction" or one.key not in broken]


def _named(context: Context, name: str) -> str:
    return f"{name} ({_known(context, name)})"


def _scaled(value: Json, times: int, over: int) -> Json:
    if not times or not over or not isinstance(value, int) or isinstance(value, bool):
        return None
    return value * times / over if value * times % over else value * times // over


def _factors(context: Context, param: Param) -> tuple[int, int]:
    """(the product of `times`, that of `over`); 0 where one of them is not known."""
    times, over = (prod(_known(context, name) for name in names) for names in (param.times, param.over))
    return times, over


def _known(context: Context, name: str) -> int:
    """A factor: what the request says, or else what its key holds; 0 where neither is a number."""
    if name == DEVICES:
        pools = context.topology.pools
        return pools[0].nodes * pools[0].gpus_per_node if pools else 0
    value = context.request.params.get(name)
    if value is None:
        param = context.method.params[name]
        value = context.config.get(param.keys[0])
        if is_converted(param):
            value = canonical(context, param, value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
