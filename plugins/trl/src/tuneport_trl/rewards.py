"""Reward functions of the experiment, as TRL's scripts import and call them.
No manifest: rules see neither the functions of a file nor a module's name as a path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuneport.types import Context, Finding, Severity

KEY = "reward_funcs"
_PASSED = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
_SOURCE = "trl/scripts/grpo.py, main"
_CALL = "trl/trainer/grpo_trainer.py, GRPOTrainer._calculate_rewards"


def check(context: Context) -> Iterator[Finding]:
    """Findings about each function that lies in a file of the experiment."""
    if KEY not in context.release.keys or context.linted:
        return
    given = context.config.get(KEY)
    for name in [given] if isinstance(given, str) else given if isinstance(given, list) else []:
        if isinstance(name, str) and "." in name:
            yield from _function(context, name)


def _function(context: Context, dotted: str) -> Iterator[Finding]:
    module, _, name = dotted.rpartition(".")
    path = module.replace(".", "/")
    file = next((one for one in (f"{path}.py", f"{path}/__init__.py") if one in context.files), "")
    if not file:
        if not _installed(context, module):
            message = f"{dotted} is imported from {path}.py, which is not in the experiment"
            hint = "put the file there, or see that the job's environment has the module"
            yield _finding(context, message, hint, _SOURCE, code="trl-reward-file", severity="warning")
        return
    functions: Mapping[str, Any] = context.facts.get("functions", {}).get(file, {})
    about: Mapping[str, Any] = functions.get("", {})
    if about.get("error"):
        message = f"{file} cannot be read: {about['error']}"
        yield _finding(context, message, "mend it", _SOURCE, code="trl-reward-function")
        return
    found = functions.get(name)
    if found is None:
        if not about.get("dynamic"):
            message = f"{file} has no function {name}"
            others = ", ".join(one for one, item in functions.items() if one and item["kind"] == "function")
            hint = f"it has {others or 'none'}"
            yield _finding(context, message, hint, _SOURCE, code="trl-reward-function")
        return
    if found["kind"] == "function" and not found["decorated"]:
        yield from _signature(context, file, name, found)


def _signature(context: Context, file: str, name: str, found: Mapping[str, Any]) -> Iterator[Finding]:
    """A function is called with keywords alone: what the trainer passes, and every column but the prompt."""
    columns = context.facts.get("data", {}).get("train", {}).get("columns")
    passed = {*_PASSED, *(columns or ())}
    place = f"{file}, {name}"
    if columns:
        unknown = [arg for arg in found["required"] if arg not in passed - {"prompt", "completion"}]
        if unknown:
            message = f"{place} needs {', '.join(unknown)}, which is no column of the data"
            hint = f"the columns are {', '.join(columns[:8])}"
            yield _finding(context, message, hint, _CALL, code="trl-reward-arguments")
    if found["positional_only"]:
        message = (
            f"{place} takes {', '.join(found['positional_only'])} by position, and is called with keywords"
        )
        yield _finding(context, message, "delete the slash", _CALL, code="trl-reward-arguments")
    lost = [one for one in _PASSED if one not in found["args"]]
    if not found["kwargs"] and lost:
        message = f"{place} does not take {', '.join(lost)}, which every function is given"
        yield _finding(context, message, "add **kwargs", _CALL, code="trl-reward-arguments")


def _installed(context: Context, module: str) -> bool:
    """Whether a module is one of the release's own environment, by the name of its package."""
    return module.partition(".")[0] in ("trl", "tuneport_judge") or bool(context.request.image)


def _finding(
    context: Context, message: str, hint: str, source: str, *, code: str, severity: Severity = "error"
) -> Finding:
    origin = context.origins.get(KEY)
    place = (origin.file, origin.line) if origin else ("", 0)
    return Finding(code, severity, message, hint, KEY, *place, source)
