"""How batches and models divide over GPUs.
No manifest: it takes steps of reckoning, whose parts depend on the engine and on where answers are generated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tuneport.types import Context, Finding, Json

_SECTIONS = ("grpo", "ppo", "distillation")
_GIVEN = ("sft", "dpo", "rm")
_POLICY = "nemo_rl/models/policy/lm_policy.py, Policy.__init__"
_SHARDS = "nemo_rl/distributed/batched_data_dict.py, BatchedDataDict.shard_by_batch_size"
_MICRO = "nemo_rl/distributed/batched_data_dict.py, BatchedDataDict.make_microbatch_iterator"
_VLLM = "nemo_rl/models/generation/vllm/vllm_generation.py, VllmGeneration.__init__"


@dataclass(frozen=True, slots=True)
class Sizes:
    """GPUs that train and that generate (0 where that is not known), and GPUs of one copy of the policy."""

    training: int
    generating: int
    copy: int

    @property
    def copies(self) -> int:
        """Copies of the policy that each learn from a share of a batch; 0 where they do not come out even."""
        return self.training // self.copy if self.copy and self.training % self.copy == 0 else 0


def check(context: Context) -> Iterator[Finding]:
    """Findings about sizes that do not divide. What depends on a value that is not known is left out."""
    sizes = measure(context)
    if not sizes.training or not sizes.copy:
        return
    if sizes.training < sizes.copy or not sizes.copies:
        what = "fewer than" if sizes.training < sizes.copy else "no multiple of"
        message = (
            f"{sizes.training} GPUs train, {what} the {sizes.copy} that one copy of the policy is spread over"
        )
        hint = "change the parallel sizes or the number of GPUs"
        yield _error("nemo-rl-gpus-uneven", message, hint, _copy_key(context, "policy"), _POLICY)
        return
    section = _section(context)
    yield from _batch(context, sizes, section)
    if section in _SECTIONS:
        yield from _sampled(context, sizes, section)
    elif section in _GIVEN:
        yield from _validated(context, sizes, section)
    if section == "distillation":
        size = _copy(context, "teacher")
        if size and sizes.training % size:
            message = f"{sizes.training} GPUs train, no multiple of the {size} of one copy of the teacher"
            hint = "change teacher_tensor_parallel_size or the number of GPUs"
            yield _error("nemo-rl-teacher-gpus", message, hint, _copy_key(context, "teacher"), _POLICY)


def measure(context: Context) -> Sizes:
    """The sizes of a configuration; parts that are no numbers count as not known."""
    config = context.config
    nodes, per_node = _number(config.get("cluster.num_nodes")), _number(config.get("cluster.gpus_per_node"))
    training = generating = nodes * per_node
    if (
        _section(context) in ("grpo", "distillation")
        and config.get("policy.generation.colocated.enabled") is False
    ):
        resources = "policy.generation.colocated.resources"
        count, gpus = (
            _number(config.get(f"{resources}.num_nodes")),
            _number(config.get(f"{resources}.gpus_per_node")),
        )
        generating = gpus if nodes == 1 else count * gpus
        training = max(training - generating, 0) if generating else 0
    # What the release's own files say of machines is nobody's: a command line that says nothing has any
    # number.
    assumed = context.linted and "cluster.gpus_per_node" not in context.own and not context.topology.pools
    if assumed or _takes_more(context):
        training = generating = 0
    return Sizes(training, generating, _copy(context, "policy"))


def _batch(context: Context, sizes: Sizes, section: str) -> Iterator[Finding]:
    """How one update divides over the copies of the policy, and each share into micro batches."""
    key = "policy.train_global_batch_size"
    batch, micro = (
        _number(context.config.get(key)),
        _number(context.config.get("policy.train_micro_batch_size")),
    )
    if not batch:
        return
    what = "answers" if section in _SECTIONS else "examples"
    if batch % sizes.copies:
        message = f"{batch} {what} an update do not divide over {sizes.copies} copies of the policy"
        yield _error("nemo-rl-batch-shards", message, f"make it a multiple of {sizes.copies}", key, _SHARDS)
    elif micro and not _by_tokens(context) and batch // sizes.copies % micro:
        message = (
            f"each copy of the policy gets {batch // sizes.copies} {what} of an update, which do not divide "
            f"into micro batches of {micro}"
        )
        hint = "lower micro_batch_size to a divisor"
        yield _error("nemo-rl-micro-batch", message, hint, "policy.train_micro_batch_size", _MICRO)


def _sampled(context: Context, sizes: Sizes, section: str) -> Iterator[Finding]:
    """How the answers of a step divide, and the GPUs that generate into engines."""
    config = context.config
    prompts, each = (
        _number(config.get(f"{section}.{name}"))
        for name in ("num_prompts_per_step", "num_generations_per_prompt")
    )
    micro = _number(config.get("policy.logprob_batch_size"))
    total = prompts * each
    if (
        total
        and micro
        and not _by_tokens(context)
        and section != "distillation"
        and total % sizes.copies == 0
    ):
        share = total // sizes.copies
        if share % micro:
            message = f"each copy of the policy measures {share} answers a step, no multiple of {micro}"
            hint = "lower log_prob_micro_batch_size to a divisor"
            yield _error("nemo-rl-logprob-batch", message, hint, "policy.logprob_batch_size", _MICRO)
    if config.get("policy.generation.backend") == "vllm" and sizes.generating:
        names = ("tensor_parallel_size", "pipeline_parallel_size")
        across, along = (_number(config.get(f"policy.generation.vllm_cfg.{name}")) for name in names)
        if across and along and sizes.generating % (across * along):
            message = (
                f"{sizes.generating} GPUs generate, which do not divide into engines of {across * along}"
            )
            key = "policy.generation.vllm_cfg.tensor_parallel_size"
            hint = "set rollout_tensor_parallel_size to a divisor"
            yield _error("nemo-rl-rollout-parallel", message, hint, key, _VLLM)


def _validated(context: Context, sizes: Sizes, section: str) -> Iterator[Finding]:
    """How a batch of the validation data divides."""
    config, key = context.config, f"{section}.val_global_batch_size"
    batch = _number(config.get(key))
    period = config.get(f"{section}.val_period")
    on = (isinstance(period, int) and period > 0) or config.get(f"{section}.val_at_start") is True
    data = "data.validation" not in config or config["data.validation"] is not None
    if on and data and batch and batch % sizes.copies:
        message = f"a validation batch of {batch} does not divide over {sizes.copies} copies of the policy"
        yield _error("nemo-rl-val-shards", message, f"make it a multiple of {sizes.copies}", key, _SHARDS)


def _section(context: Context) -> str:
    """The section that the program keeps its own settings in."""
    names = (*_SECTIONS, *_GIVEN)
    return next((name for name in names if f"{name}.seed" in context.config), "")


def _copy(context: Context, role: str) -> int:
    """GPUs that one copy of a model is spread over; 0 where that is not known."""
    config = context.config
    if config.get(f"{role}.megatron_cfg.enabled") is True:
        names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
        parts = [_number(config.get(f"{role}.megatron_cfg.{name}")) for name in names]
    else:
        parts = [
            _number(config.get(f"{role}.dtensor_cfg.{name}"))
            for name in ("tensor_parallel_size", "context_parallel_size")
        ]
    size = 1
    for part in parts:
        size *= part
    return size


def _copy_key(context: Context, role: str) -> str:
    """The parallel size of a model that somebody set, or else the first of them."""
    engine = "megatron_cfg" if context.config.get(f"{role}.megatron_cfg.enabled") is True else "dtensor_cfg"
    first = "tensor_model_parallel_size" if engine == "megatron_cfg" else "tensor_parallel_size"
    names = (first, "pipeline_model_parallel_size", "context_parallel_size")
    keys = [f"{role}.{engine}.{name}" for name in names]
    return next((key for key in keys if key in context.own), keys[0])


def _by_tokens(context: Context) -> bool:
    """Whether micro batches are filled up to a number of tokens."""
    switches = ("policy.dynamic_batching.enabled", "policy.sequence_packing.enabled")
    return any(context.config.get(key) is True for key in switches)


def _takes_more(context: Context) -> bool:
    """Whether a reward model or teachers take GPUs of the cluster too, which is not reckoned here."""
    config = context.config
    environments = {config.get(f"data.{part}.env_name") for part in ("train", "validation", "default")}
    return "reward_model" in environments or any(
        key.startswith("on_policy_distillation.") or (key == "on_policy_distillation" and value)
        for key, value in config.items()
    )


def _number(value: Json) -> int:
    """A whole number above 0; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _error(code: str, message: str, hint: str, key: str, source: str) -> Finding:
    return Finding(code, "error", message, hint, key, source=f"nemo-rl 0.7.0 {source}")
