"""What parameters are in the release's own keys, where one means several or part of one.
No manifest: two parameters share a list, a schedule is a list of objects, and an engine has two switches.
"""

from __future__ import annotations

from typing import Any

from tuneport.types import Context, Json

_BETAS = ("adam_beta1", "adam_beta2")
_SCHEDULE = ("lr_schedule", "warmup_steps")
_FLAT = 10**10
"""Steps of a schedule that ends never."""


def engine(context: Context) -> str:
    """What shards the policy: `megatron` or `dtensor`."""
    chosen = context.request.params.get("engine")
    if isinstance(chosen, str):
        return chosen
    return "megatron" if context.config.get("policy.megatron_cfg.enabled") is True else "dtensor"


def values(context: Context) -> dict[str, Json]:
    """Native keys of parameters that need more than the manifest writes for them."""
    given, found = context.request.params, dict[str, Json]()
    if "engine" in given:
        found["policy.dtensor_cfg.enabled"] = given["engine"] == "dtensor"
        found["policy.megatron_cfg.enabled"] = given["engine"] == "megatron"
    if "loggers" in given:
        found |= {
            f"logger.{name}_enabled": name in given["loggers"] for name in ("wandb", "mlflow", "swanlab")
        }
    if "lora_targets" in given and engine(context) == "dtensor":
        found["policy.dtensor_cfg.lora_cfg.match_all_linear"] = False
    if given.get("optimizer_offload") is True and engine(context) == "megatron":
        # The release takes all of it or nothing (models/megatron/setup.py, _validate_optimizer_config).
        found["policy.megatron_cfg.optimizer.optimizer_offload_fraction"] = 1.0
    if engine(context) == "dtensor":
        found |= _pair(context) | _schedule(context)
    elif "lr_schedule" in given and isinstance(steps := _steps(context), int):
        found["policy.megatron_cfg.scheduler.lr_decay_iters"] = steps
    return found


def _setting(context: Context, name: str) -> Json:
    """What a parameter's key is set to now."""
    param = context.method.params.get(name)
    return context.config.get(param.keys[0]) if param is not None else None


def _steps(context: Context) -> Json:
    return context.request.params.get("max_steps", _setting(context, "max_steps"))


def _pair(context: Context) -> dict[str, Json]:
    """The two halves of Adam's betas, which share one key."""
    given, key = context.request.params, "policy.optimizer.kwargs.betas"
    if not any(name in given for name in _BETAS):
        return {}
    both = context.config.get(key)
    both = both if isinstance(both, list) and len(both) == 2 else [0.9, 0.999]
    return {key: [given.get(name, value) for name, value in zip(_BETAS, both, strict=True)]}


def _schedule(context: Context) -> dict[str, Json]:
    """A whole list of PyTorch schedulers: the rise, then what follows until the last step."""
    given = context.request.params
    if not any(name in given for name in _SCHEDULE):
        return {}
    warmup, shape = given.get("warmup_steps", 0), given.get("lr_schedule", "constant")
    steps = _steps(context)
    rest = max(steps - warmup, 1) if isinstance(steps, int) else 1
    later: dict[str, tuple[str, dict[str, Any]]] = {
        "constant": ("ConstantLR", {"factor": 1.0, "total_iters": _FLAT}),
        "linear": ("LinearLR", {"start_factor": 1.0, "end_factor": 0.0, "total_iters": rest}),
        "cosine": ("CosineAnnealingLR", {"T_max": rest, "eta_min": 0.0}),
    }
    name, kwargs = later[shape]
    after = {"name": f"torch.optim.lr_scheduler.{name}", "kwargs": kwargs}
    if not warmup:
        return {"policy.scheduler": [after, {"milestones": []}]}
    rise = {"start_factor": 0.1, "end_factor": 1.0, "total_iters": warmup}
    before = {"name": "torch.optim.lr_scheduler.LinearLR", "kwargs": rise}
    return {"policy.scheduler": [before, after, {"milestones": [warmup]}]}
