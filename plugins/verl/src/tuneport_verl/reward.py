"""The reward function, judged by its signature: verl passes four arguments by name, sometimes two more.
No manifest: rules do not see the functions of a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuneport.types import Context, Finding, Json, Ref

GIVEN = ("data_source", "solution_str", "ground_truth", "extra_info")
WITH_MODEL = ("reward_router_address", "reward_model_tokenizer")
_PATH, _NAME = "reward.custom_reward_function.path", "reward.custom_reward_function.name"
_KWARGS = "reward.custom_reward_function.reward_kwargs"
_CALL = "verl/experimental/reward_loop/reward_manager/naive.py, NaiveRewardManager.run_single"
_LOAD = "verl/trainer/ppo/reward.py, get_custom_reward_fn"


def check(context: Context) -> Iterator[Finding]:
    """Findings about the reward function that lies in the experiment."""
    file, name = _file(context), context.config.get(_NAME)
    functions: Mapping[str, Json] = context.facts.get("functions", {}).get(file, {})
    if not functions or not isinstance(name, str):
        return
    broken = functions.get("", {}).get("error")
    if broken:
        line, message = functions[""].get("line", 0), f"{file} cannot be read: {broken}"
        yield Finding("verl-reward-syntax", "error", message, "", _PATH, file, line)
        return
    found = functions.get(name)
    if found is None:
        if not functions.get("", {}).get("dynamic"):
            others = ", ".join(key for key, item in functions.items() if key and item["kind"] == "function")
            message = f"{file} has no function named {name}" + (f"; it has {others}" if others else "")
            hint = "name the function compute_score, or set reward_function_name"
            yield Finding("verl-reward-name", "error", message, hint, _NAME, file, 0, _LOAD)
    elif found["kind"] == "function" and not found["decorated"]:
        yield from _signature(context, file, name, found)


def _signature(context: Context, file: str, name: str, found: Mapping[str, Json]) -> Iterator[Finding]:
    given = [*GIVEN, *(WITH_MODEL if context.config.get("reward.reward_model.enable") else ())]
    given += [key.removeprefix(f"{_KWARGS}.") for key in context.own if key.startswith(f"{_KWARGS}.")]
    extra = context.own.get(_KWARGS)
    given += list(extra) if isinstance(extra, dict) else []
    takes = "def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs)"

    def refuse(message: str) -> Finding:
        return Finding(
            "verl-reward-signature", "error", message, f"write {takes}", _PATH, file, found["line"], _CALL
        )

    unknown = [word for word in found["required"] if word not in given]
    if unknown:
        asked, passed = ", ".join(unknown), ", ".join(given)
        yield refuse(f"{name} asks for {asked}, which nobody passes: verl passes {passed}")
    hidden = [word for word in given if word in found["positional_only"]]
    if hidden:
        yield refuse(f"{name} takes {', '.join(hidden)} by position only, and verl passes them by name")
    untaken = [word for word in given if word not in found["args"]]
    if untaken and not found["kwargs"]:
        yield refuse(f"{name} does not take {', '.join(untaken)}, which verl passes by name")


def _file(context: Context) -> str:
    """The experiment's file with the reward function, as the facts call it; empty for any other place."""
    value = context.config.get(_PATH)
    if isinstance(value, Ref):
        return value.suffix.lstrip("/") if value.ref == "work_dir" else ""
    return value if isinstance(value, str) and not value.startswith(("/", "~")) else ""
