"""What the training engine keeps on each GPU: weights, gradients and optimizer states, in bytes.
No manifest: bytes are a product of a dozen keys that each engine spells in its own way.

Every number is a lower bound: an engine whose exact layout depends on more than a configuration says is
taken to spread everything over all GPUs at half precision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tuneport.types import Context, Json

ACTOR = "actor_rollout_ref.actor"
WIDTHS = {
    "fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "half": 2,
    "fp8": 1, "uint8": 1,
}  # fmt: skip
"""Bytes of a number by the names that the release takes for its type."""
_MEGATRON = ("megatron", "mindspeed")


class Engine(NamedTuple):
    """`prefix` is where the engine's keys lie; `name` is `dp` for PyTorch's own sharding."""

    name: str
    prefix: str
    config: Mapping[str, Json]
    ranks: int

    def get(self, key: str) -> Json:
        return self.config.get(f"{self.prefix}.{key}")

    def number(self, key: str) -> int:
        return whole(self.get(key)) or 1


def engine(context: Context) -> Engine | None:
    """The engine that trains; None where the number of GPUs is not known."""
    config = context.config
    ranks = whole(config.get("trainer.nnodes")) * whole(config.get("trainer.n_gpus_per_node"))
    if not ranks:
        return None
    if f"{ACTOR}.strategy" in context.release.keys:
        name = str(config.get("model_engine", "dp"))
        return Engine(name, f"{ACTOR}.{'fsdp_config' if name == 'dp' else name}", config, ranks)
    name = str(config.get("engine.strategy"))
    return Engine("dp" if name in ("fsdp", "fsdp2") else name, "engine", config, ranks)


def held(found: Engine, parameters: int) -> dict[str, float]:
    """Bytes of a model in training on one GPU, by what they are for."""
    return dict(_megatron(found, parameters) if found.name in _MEGATRON else _sharded(found, parameters))


def _sharded(found: Engine, parameters: int) -> Iterator[tuple[str, float]]:
    """All of it is split over the GPUs (verl/workers/engine/fsdp/transformer_impl.py, FSDPEngine)."""
    width = WIDTHS.get(str(found.get("model_dtype") or "fp32"), 2) if found.name == "dp" else 2
    share = parameters * width / min(found.ranks, whole(found.get("fsdp_size")) or found.ranks)
    yield "weights", share
    yield "gradients", share
    yield "optimizer", share * 2


def _megatron(found: Engine, parameters: int) -> Iterator[tuple[str, float]]:
    """Split over tensor and pipeline ranks; the optimizer's states over the copies as well where it is
    distributed (verl/workers/engine/megatron/transformer_impl.py, MegatronEngine)."""
    optim = found.prefix.rpartition(".")[0] + ".optim" if "." in found.prefix else "optim"

    def width(name: str) -> int:
        return WIDTHS.get(str(found.config.get(f"{optim}.{name}") or "fp32"), 4)

    parts = found.number("tensor_model_parallel_size") * found.number("pipeline_model_parallel_size")
    split = max(parts, found.ranks) if found.get("use_distributed_optimizer") else parts
    yield "weights", parameters * WIDTHS.get(str(found.get("dtype")), 2) / parts
    yield "gradients", parameters * width("main_grads_dtype") / parts
    # A master copy in full precision and two moments.
    yield "optimizer", parameters * (4 + width("exp_avg_dtype") + width("exp_avg_sq_dtype")) / split


def whole(value: Json) -> int:
    """A positive whole number; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
