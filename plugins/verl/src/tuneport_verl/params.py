"""Parameters whose keys do not all get the parameter's own value.
No manifest: a parameter there gives its keys one value, whatever other parameters say.
"""

from __future__ import annotations

from tuneport.compiler.adapter import variant
from tuneport.types import Context, Json

_RL = "actor_rollout_ref"
_BETAS = ("adam_beta1", "adam_beta2")


def values(context: Context) -> dict[str, Json]:
    """Native keys of parameters that mean several settings, beside what the manifest writes for them."""
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
    if "gradient_checkpointing" in params and variant(context) == "megatron" and rl:
        found.update(_recompute(bool(params["gradient_checkpointing"])))
    return found | _pair(context)


def _pair(context: Context) -> dict[str, Json]:
    """The two halves of Adam's betas, which share one key except in Megatron."""
    given = context.request.params
    if variant(context) == "megatron" or not any(name in given for name in _BETAS):
        return {}
    (key,) = context.method.params[_BETAS[0]].keys
    both = context.config.get(key)
    both = both if isinstance(both, list) and len(both) == 2 else [0.9, 0.999]
    return {key: [given.get(name, value) for name, value in zip(_BETAS, both, strict=True)]}


def _recompute(on: bool) -> dict[str, Json]:
    """Megatron's way to compute activations again: every layer, one at a time."""
    prefix = f"{_RL}.actor.megatron.override_transformer_config.recompute_"
    chosen = ("full", "uniform", 1) if on else (None, None, None)
    return dict(zip((f"{prefix}granularity", f"{prefix}method", f"{prefix}num_layers"), chosen, strict=True))
