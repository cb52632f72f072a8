"""What parameters are in the release's own keys: by engine, and where one means several.
No manifest: the declarative adapter writes one set of keys; here the engine and other parameters choose it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tuneport.compiler.adapter import native_value, variant_keys, written
from tuneport.types import Context, Finding, Json, Param

_RL = "actor_rollout_ref"


def values(context: Context) -> dict[str, Json]:
    """Native keys for the request's parameters. Those that the engine cannot do are left out; `check`
    says so."""
    found: dict[str, Json] = {}
    for name, value in context.request.params.items():
        param = context.method.params[name]
        found.update(written(context, param, value, keys(context, param)))
    found.update(_several(context))
    return found


def check(context: Context) -> Iterator[Finding]:
    """Findings for parameters that the chosen engine has no key for."""
    for name in context.request.params:
        param = context.method.params[name]
        if not keys(context, param):
            chosen = engine(context)
            message = f"{name} means nothing to the engine {chosen}"
            hint = f"leave {name} out, or choose another engine"
            yield Finding("verl-engine-parameter", "error", message, hint, name)
    if "warmup_steps" in context.request.params and "warmup_ratio" in context.request.params:
        message = "warmup_steps and warmup_ratio are both set, and the steps win"
        yield Finding("verl-warmup-twice", "warning", message, "keep one", "warmup_ratio")


def keys(context: Context, param: Param) -> tuple[str, ...]:
    """The keys that a parameter writes for the request's engine; none where it has no such setting."""
    return variant_keys(context, param, engine(context))


def engine(context: Context) -> str:
    """The native name of the engine's configuration, as the group choice calls it."""
    by = context.method.spec.get("variants", {}).get("by", "engine")
    if "engine" in context.request.params:
        return str(native_value(context.method.params["engine"], context.request.params["engine"]))
    chosen = context.release.composed.groups.get(by) if context.release.composed else None
    value = chosen or context.config.get(by)
    return value if isinstance(value, str) else ""


def _several(context: Context) -> dict[str, Json]:
    """The values of parameters whose keys do not all get the parameter's own value."""
    params, found = context.request.params, dict[str, Json]()
    rl = context.method.spec["entry"] != "verl.trainer.sft_trainer"
    if params.get("engine") in ("fsdp", "fsdp2"):
        found[f"{_RL}.actor.strategy" if rl else "engine.strategy"] = params["engine"]
        if context.method.spec.get("identity", {}).get("algorithm.adv_estimator") == "gae":
            found["critic.strategy"] = params["engine"]
    if "resume_from" in params:
        found["trainer.resume_mode"] = "resume_path"
    if "reward_model" in params:
        found["reward.reward_model.model_path"] = params["reward_model"]
        found["reward.reward_model.enable"] = True
        server = context.own.get("reward.reward_model.rollout.name")
        found["reward.reward_model.rollout.name"] = server or params.get(
            "rollout_engine", context.config.get(f"{_RL}.rollout.name")
        )
    if "multi_turn" in params and "agent_loop" not in params:
        loop = "tool_agent" if params["multi_turn"] else "single_turn_agent"
        found[f"{_RL}.rollout.agent.default_agent_loop"] = loop
    if "multi_turn" in params:
        found[f"{_RL}.rollout.multi_turn.enable"] = params["multi_turn"]
    if "agent_loop" in params:
        found[f"{_RL}.rollout.agent.default_agent_loop"] = params["agent_loop"]
    if "gradient_checkpointing" in params and engine(context) == "megatron" and rl:
        found.update(_recompute(bool(params["gradient_checkpointing"])))
    return found


def _recompute(on: bool) -> dict[str, Json]:
    """Megatron's way to compute activations again: every layer, one at a time."""
    prefix = f"{_RL}.actor.megatron.override_transformer_config.recompute_"
    chosen = ("full", "uniform", 1) if on else (None, None, None)
    return dict(zip((f"{prefix}granularity", f"{prefix}method", f"{prefix}num_layers"), chosen, strict=True))
