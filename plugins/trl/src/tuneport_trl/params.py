"""What parameters are in TRL's own keys, where that is more than another name for one value.
No manifest: a parameter there gives all its keys one value, and never a key of another parameter's making.
"""

from __future__ import annotations

import re

from tuneport.types import Context, Json

OURS = (
    *("validation_data", "bf16", "fp16", "save_strategy", "save_steps", "eval_strategy", "eval_steps"),
    *("epsilon", "epsilon_high", "loss_type", "loss_weights", "reward_funcs"),
)
"""Keys that the declarative adapter would fill wrongly: they are written here instead."""
REWARD = "reward"
"""The function that a reward file is asked for, unless another one is named."""


def values(context: Context) -> dict[str, Json]:
    """Native keys of the parameters that are more than one key, or another shape."""
    params = context.request.params
    found: dict[str, Json] = {}
    if "mixed_precision" in params:
        found |= {key: params["mixed_precision"] == key for key in ("bf16", "fp16")}
    for name, strategy, interval in (
        ("save_every", "save_strategy", "save_steps"),
        ("eval_every", "eval_strategy", "eval_steps"),
    ):
        if name in params:
            found[strategy] = "steps" if params[name] else "no"
            if params[name]:
                found[interval] = params[name]
    if "lora_targets" in params:
        found["lora_target_modules"] = _targets(params["lora_targets"])
    return found | _clip(context) | _losses(context) | _rewards(context)


def _clip(context: Context) -> dict[str, Json]:
    """The release has one bound, and another for the upper side."""
    params = context.request.params
    found: dict[str, Json] = {}
    if "clip_ratio" in params:
        found["epsilon"] = params["clip_ratio"]
    if "clip_ratio_low" in params:
        found["epsilon"] = params["clip_ratio_low"]
        found["epsilon_high"] = params.get("clip_ratio", context.config.get("epsilon"))
        if context.config.get("epsilon_high") is not None:
            found["epsilon_high"] = context.config["epsilon_high"]
    if "clip_ratio_high" in params:
        found["epsilon_high"] = params["clip_ratio_high"]
    return found


def _losses(context: Context) -> dict[str, Json]:
    """Names of losses and their weights. Other methods have a single loss by a name of its own."""
    params = context.request.params
    found: dict[str, Json] = {}
    if "policy_loss_mode" in params:
        found["loss_type"] = params["policy_loss_mode"]
    if "preference_loss" in params:
        given = params["preference_loss"]
        several = "list" in context.release.keys["loss_type"].types
        found["loss_type"] = [given] if several and isinstance(given, str) else given
    if "preference_loss_weights" in params:
        found["loss_weights"] = params["preference_loss_weights"]
    if "ipo" in params:
        found["loss_type"] = ["ipo" if params["ipo"] else "sigmoid"]
    if params.get("nll_coef"):
        main = found.get("loss_type") or ["sigmoid"]
        found |= {"loss_type": [*main, "sft"], "loss_weights": [1.0, params["nll_coef"]]}
    return found


def _rewards(context: Context) -> dict[str, Json]:
    """A function of a file, as Python imports it: the script looks in the folder that it runs in."""
    params = context.request.params
    if "reward_functions" in params:
        return {"reward_funcs": params["reward_functions"]}
    if "reward_function" not in params:
        return {}
    module = params["reward_function"].removesuffix(".py").removeprefix("./").replace("/", ".")
    return {"reward_funcs": [f"{module}.{params.get('reward_function_name', REWARD)}"]}


def _targets(given: str | list[str]) -> list[str]:
    """Names as PEFT means them. TRL hands on a single one as a pattern for whole module names, so a name
    becomes the pattern that means the same as it does in a list."""
    names = [given] if isinstance(given, str) else given
    if len(names) == 1 and names[0] != "all-linear" and re.fullmatch(r"[\w.]+", names[0]):
        return [rf"(.*\.)?{re.escape(names[0])}"]
    return names
