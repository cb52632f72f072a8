"""What parameters are in the release's own keys, where that is more than another name.
No manifest: a parameter there is a whole value; here two are halves of one, or one less, or left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuneport.types import Context, Json, Location

_PAIRS = (("adam_beta1", "adam_beta2"), ("clip_ratio_low", "clip_ratio_high"))
"""Parameters that are the first and the second value of one key."""
_FILES = (".json", ".jsonl", ".csv", ".parquet", ".arrow")


def values(context: Context) -> dict[str, Json]:
    """Native keys for those of the request's parameters, and data, that need more than their value."""
    given, found = context.request.params, dict[str, Json]()
    for names in _PAIRS:
        if any(name in given for name in names):
            key = context.method.params[names[0]].keys[0]
            both = _current(context, key)
            found[key] = [given.get(name, value) for name, value in zip(names, both, strict=True)]
    if "critic_warmup_steps" in given:
        # The policy learns in steps above this number, and the first step is number 0.
        found["critic.freezing_steps"] = given["critic_warmup_steps"] - 1
    if given.get("norm_adv_by_std") is False:
        # The method's estimator divides whatever is set; the one without the division has its own name.
        found["algo.advantage.estimator"] = "dr_grpo"
    if _is_file(context.request.validation_data) and "eval.split" not in context.own:
        found["eval.split"] = "train"  # the one split that a single file has
    return found


def unused(context: Context) -> set[str]:
    """Keys of parameters that speak of the distance in the loss where it is in the reward, or the other way
    round: one key holds both, and a rule says what is wrong."""
    given = context.request.params
    in_loss = given.get("use_kl_loss", context.config.get("algo.kl.use_loss")) is True
    wrong = ("kl_coef", "kl_reward_type") if in_loss else ("kl_loss_coef", "kl_loss_type")
    return {key for name in wrong if name in given for key in context.method.params[name].keys}


def _current(context: Context, key: str) -> tuple[Json, Json]:
    """The two values that a key has; for the clip range, unless set, the one for both sides."""
    config: Mapping[str, Json] = context.config
    value = config.get(key)
    if isinstance(value, list) and len(value) == 2:
        return value[0], value[1]
    both = context.request.params.get("clip_ratio", config.get("actor.eps_clip"))
    return both, both


def _is_file(location: Location | None) -> bool:
    return location is not None and location.kind != "hub" and location.value.endswith(_FILES)
