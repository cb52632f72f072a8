"""What a run needs of each GPU, estimated from the model's shape, with its arithmetic shown.
No manifest: a rule's sentence has values of keys in it, and none that are computed, such as a sum of bytes.

A lower bound: weights, gradients, optimizer, reference, the rollout engine's share and the logits of one
micro batch. Activations, fragmentation and communication buffers come on top, so that what does not fit
here does not fit at all; what fits here may still not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuneport.types import Context, Finding, Json

from tuneport_verl import pools
from tuneport_verl.engines import ACTOR, engine, held, whole

_RL = "actor_rollout_ref"
_ROLLOUT = f"{_RL}.rollout"
_RL_TOKENS = {
    "dynamic": f"{ACTOR}.use_dynamic_bsz",
    "budget": f"{ACTOR}.ppo_max_token_len_per_gpu",
    "lengths": "data.max_prompt_length data.max_response_length",
    "batch": f"{ACTOR}.ppo_micro_batch_size_per_gpu",
    "sequence": f"{ACTOR}.ulysses_sequence_parallel_size",
}
_SFT_TOKENS = {
    "dynamic": "data.use_dynamic_bsz",
    "budget": "data.max_token_len_per_gpu",
    "lengths": "data.max_length",
    "batch": "data.micro_batch_size_per_gpu",
    "sequence": "engine.ulysses_sequence_parallel_size",
}
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
    series = pools.pool(context, context.method.spec["roles"][0]).series
    card = CARDS.get(series)
    parts = estimate(context, parameters, card)
    if not parts:
        return
    total = sum(parts.values())
    sums = " + ".join(f"{name} {size / GIB:.1f}" for name, size in parts.items() if size)
    size = f"{parameters / 1e9:.1f} billion parameters"
    shown = f"{size} need at least {total / GIB:.0f} GiB of each GPU: {sums}"
    if card is not None and total > card * GIB:
        share = "a smaller gpu_memory_utilization, " if "rollout engine" in parts else ""
        hint = f"use more GPUs, {share}or train adapters with lora_rank"
        message = f"{shown}; a {series} has {card}"
        yield Finding("verl-memory", "warning", message, hint, "--profile")
    else:
        yield Finding("verl-memory", "note", shown)


def estimate(context: Context, parameters: int, card: int | None) -> dict[str, float]:
    """Bytes of each GPU by what they are for, at the time of an update and at the time of generation,
    whichever is more; empty where a needed number is not known."""
    config, found = context.config, engine(context)
    if found is None or found.get("offload_policy") or found.get("enable_fsdp_offload"):
        return {}
    parts = held(found, parameters)
    weights, optimizer = parts["weights"], parts["optimizer"]
    if _lora(context):
        parts, optimizer = {"weights": weights}, 0.0
    compared = config.get("algorithm.use_kl_in_reward") or config.get(f"{ACTOR}.use_kl_loss")
    reference = found.prefix.replace(".actor.", ".ref.")
    # With adapters the reference is the model without them.
    if compared and not _lora(context) and not config.get(f"{reference}.param_offload"):
        parts["reference"] = weights
    parts["logits"] = _logits(context)
    memory = config.get(f"{_ROLLOUT}.gpu_memory_utilization")
    apart = "rollout.nnodes" in context.release.keys  # generation has GPUs of its own
    if card is None or apart or not isinstance(memory, int | float):
        return parts
    generation = {"weights": 0.0 if found.get("param_offload") else weights}
    if not found.get("optimizer_offload"):
        generation["optimizer"] = optimizer
    generation["rollout engine"] = memory * card * GIB
    return max(parts, generation, key=lambda parts: sum(parts.values()))


def parameter_count(model: Mapping[str, Json]) -> int:
    """Parameters of a dense decoder from its configuration; what facts declare wins. 0 where not known."""
    declared = whole(model.get("parameters"))
    if declared:
        return declared
    names = ("hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads", "vocab_size")
    width, layers, inner, heads, vocabulary = (whole(model.get(name)) for name in names)
    if not all((width, layers, inner, heads, vocabulary)) or any("expert" in name for name in model):
        return 0
    head = whole(model.get("head_dim")) or width // heads
    groups = whole(model.get("num_key_value_heads")) or heads
    attention = width * head * (2 * heads + 2 * groups)
    tied = 1 if model.get("tie_word_embeddings") else 2
    return layers * (attention + 3 * width * inner) + tied * vocabulary * width


def _logits(context: Context) -> float:
    """Bytes of the scores of one micro batch over the vocabulary, once in full precision."""
    config, vocabulary = context.config, whole(context.facts.get("model", {}).get("vocab_size"))
    if config.get(f"{_RL}.model.use_fused_kernels") or config.get("model.use_fused_kernels"):
        return 0.0
    names = _RL_TOKENS if f"{ACTOR}.strategy" in context.release.keys else _SFT_TOKENS
    if config.get(names["dynamic"]):
        tokens = whole(config.get(names["budget"]))
    else:
        length = sum(whole(config.get(name)) for name in names["lengths"].split())
        tokens = length * whole(config.get(names["batch"])) // (whole(config.get(names["sequence"])) or 1)
    found = engine(context)
    split = found.number("tensor_model_parallel_size") if found is not None else 1
    return float(tokens * vocabulary * 4 / split)


def _lora(context: Context) -> bool:
    names = (f"{_RL}.model.lora_rank", f"{_RL}.model.lora.rank", "model.lora_rank", "model.lora.rank")
    return any(whole(context.config.get(name)) for name in names)
