"""What a run needs of each GPU, estimated from the model's shape, with its arithmetic shown.

A lower bound: weights, gradients, optimizer, reference, the rollout engine's share and the logits of one
micro batch. Activations, fragmentation and communication buffers come on top, so that what does not fit
here does not fit at all; what fits here may still not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuneport.types import Context, Finding, Json

from tuneport_verl import pools

_RL = "actor_rollout_ref"
GIB = 1 << 30
CARDS = {
    "a10": 24, "l4": 24, "rtx3090": 24, "rtx4090": 24, "rtx5090": 32, "v100": 32, "a40": 48, "l40": 48,
    "l40s": 48, "a100": 80, "h100": 80, "h800": 80, "h20": 141, "gh200": 144, "h200": 141, "b200": 192,
    "gb200": 192, "b300": 288, "gb300": 288,
}  # fmt: skip
"""GiB of a card by series, the largest version of each, so that nothing is called too big for what exists."""


def check(context: Context) -> Iterator[Finding]:
    """A warning where the sum is more than a card of the series has; a note otherwise."""
    parameters = parameter_count(context.facts.get("model", {}))
    if not parameters or not context.topology.pools:
        return
    if context.config.get("model_engine", "dp") != "dp" or _lora(context):
        return
    series = pools.pool(context, "actor").series
    card = CARDS.get(series)
    parts = estimate(context, parameters, card)
    if not parts:
        return
    total = sum(parts.values())
    sums = " + ".join(f"{name} {size / GIB:.1f}" for name, size in parts.items())
    size = f"{parameters / 1e9:.1f} billion parameters"
    shown = f"{size} need at least {total / GIB:.0f} GiB of each GPU: {sums}"
    if card is not None and total > card * GIB:
        hint = "use more GPUs, a smaller gpu_memory_utilization, or train adapters with lora_rank"
        message = f"{shown}; a {series} has {card}"
        yield Finding("verl-memory", "warning", message, hint, "--profile")
    else:
        yield Finding("verl-memory", "note", shown)


def estimate(context: Context, parameters: int, card: int | None) -> dict[str, float]:
    """Bytes of each GPU by what they are for, at the time of an update and at the time of generation,
    whichever is more; empty where a needed number is not known."""
    config = context.config
    ranks = _int(config.get("trainer.nnodes")) * _int(config.get("trainer.n_gpus_per_node"))
    size = _int(config.get(f"{_RL}.actor.fsdp_config.fsdp_size"))
    ranks = min(ranks, size) if size else ranks
    if not ranks or config.get(f"{_RL}.actor.fsdp_config.offload_policy"):
        return {}
    share = parameters / ranks
    width = 4 if config.get(f"{_RL}.actor.fsdp_config.model_dtype") in ("fp32", "float32", None) else 2
    offload = config.get(f"{_RL}.actor.fsdp_config.param_offload")
    update = {"weights": share * width, "gradients": share * width, "optimizer": share * width * 2}
    compared = config.get("algorithm.use_kl_in_reward") or config.get(f"{_RL}.actor.use_kl_loss")
    if compared and not config.get(f"{_RL}.ref.fsdp_config.param_offload"):
        update["reference"] = share * width
    update["logits"] = _logits(context)
    generation = {"weights": 0.0 if offload else share * width}
    if not config.get(f"{_RL}.actor.fsdp_config.optimizer_offload"):
        generation["optimizer"] = share * width * 2
    memory = config.get(f"{_RL}.rollout.gpu_memory_utilization")
    if card is not None and isinstance(memory, int | float):
        generation["rollout engine"] = memory * card * GIB
    return max(update, generation, key=lambda parts: sum(parts.values()))


def parameter_count(model: Mapping[str, Json]) -> int:
    """Parameters of a dense decoder from its configuration; what facts declare wins. 0 where not known."""
    declared = _int(model.get("parameters"))
    if declared:
        return declared
    names = ("hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads", "vocab_size")
    width, layers, inner, heads, vocabulary = (_int(model.get(name)) for name in names)
    if not all((width, layers, inner, heads, vocabulary)) or any("expert" in name for name in model):
        return 0
    head = _int(model.get("head_dim")) or width // heads
    groups = _int(model.get("num_key_value_heads")) or heads
    attention = width * head * (2 * heads + 2 * groups)
    tied = 1 if model.get("tie_word_embeddings") else 2
    return layers * (attention + 3 * width * inner) + tied * vocabulary * width


def _logits(context: Context) -> float:
    """Bytes of the scores of one micro batch over the vocabulary, once in full precision."""
    config, vocabulary = context.config, _int(context.facts.get("model", {}).get("vocab_size"))
    if config.get(f"{_RL}.model.use_fused_kernels"):
        return 0.0
    if config.get(f"{_RL}.actor.use_dynamic_bsz"):
        tokens = _int(config.get(f"{_RL}.actor.ppo_max_token_len_per_gpu"))
    else:
        length = _int(config.get("data.max_prompt_length")) + _int(config.get("data.max_response_length"))
        tokens = length * _int(config.get(f"{_RL}.actor.ppo_micro_batch_size_per_gpu"))
        tokens //= _int(config.get(f"{_RL}.actor.ulysses_sequence_parallel_size")) or 1
    return float(tokens * vocabulary * 4)


def _lora(context: Context) -> bool:
    names = (f"{_RL}.model.lora_rank", f"{_RL}.model.lora.rank")
    return any(_int(context.config.get(name)) for name in names)


def _int(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
