"""The arithmetic of a run: how many optimizer steps the data makes, and whether warm-up ends in time.
No manifest: a rule's sentence has values of keys in it, and none that are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

from tuneport.types import Context, Finding, Json

_WITHOUT_WARMUP = ("constant", "reduce_lr_on_plateau", "greedy")
_SAMPLER = "trl/trainer/utils.py, RepeatSampler; trl/trainer/grpo_trainer.py, GRPOTrainer._get_train_sampler"
_SOURCE = "transformers 5.24.0 transformers/trainer.py, Trainer.set_initial_training_values"


def check(context: Context) -> Iterator[Finding]:
    """Notes about the length of the run, where the rows, the hardware and the settings are known."""
    rows = context.facts.get("data", {}).get("train", {}).get("rows")
    config = context.config
    if not isinstance(rows, int) or not context.topology.pools:
        return
    if config.get("packing") or config.get("datasets"):  # rows are no longer what is counted
        return
    known = [_whole(config, key) for key in ("per_device_train_batch_size", "gradient_accumulation_steps")]
    batch, accumulation = (number or 0 for number in known)
    if not batch or not accumulation:
        return
    pool = context.topology.primary
    processes = pool.nodes * pool.gpus_per_node
    width = f"{batch} x {processes} x {accumulation}" if processes > 1 else f"{batch} x {accumulation}"
    if "num_generations" in context.release.keys:
        group = _whole(config, "num_generations")
        per_epoch = _sampled(config, rows, batch * processes, accumulation, group) if group else None
        if per_epoch is None:
            return
        if not per_epoch:
            message = f"{rows} prompts do not fill one step, and the rest is dropped: nothing is trained"
            hint = "use more prompts, or lower train_batch_size and mini_batch_size"
            yield Finding("trl-prompts-few", "error", message, hint, "dataset_name", source=_SAMPLER)
            return
        said = f"{rows} prompts with {group} answers each at {width} answers per step"
    else:
        per_epoch = max(1, ceil(ceil(rows / batch / processes) / accumulation))
        said = f"{rows} rows at {width} per step"
    total = _total(context, per_epoch)
    if total is None:
        return
    message = f"{said} make {per_epoch} steps an epoch; the run makes {total}"
    yield Finding("trl-steps", "note", message, source=_SOURCE)
    warmup = config.get("warmup_steps")
    warms = config.get("lr_scheduler_type") not in _WITHOUT_WARMUP
    if warms and isinstance(warmup, int | float) and warmup >= 1 and warmup >= total > 0:
        yield Finding(
            "trl-warmup-endless",
            "warning",
            f"warm-up takes {warmup} steps of the run's {total}: the learning rate never reaches its peak",
            "shorten warmup_steps, or set warmup_ratio",
            "warmup_steps",
            source="transformers 5.24.0 transformers/training_args.py, TrainingArguments.get_warmup_steps",
        )


def _whole(config: Mapping[str, Json], key: str) -> int | None:
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None


def _sampled(config: Mapping[str, Json], rows: int, width: int, accumulation: int, group: int) -> int | None:
    """Optimizer steps of an epoch where each prompt gets a group of answers, a round of which is sampled at a
    time and learned from `num_iterations` times; prompts that do not fill a round are dropped. None where the
    sizes do not fit one another, which a rule says."""
    given, steps = _whole(config, "generation_batch_size"), _whole(config, "steps_per_generation")
    steps = steps or (given // width if given else accumulation)
    prompts = width * steps // group
    if not prompts or width * steps % group:
        return None
    passes = _whole(config, "num_iterations") or 1
    return ceil(rows // prompts * passes * steps / accumulation)


def _total(context: Context, per_epoch: int) -> int | None:
    limit, epochs = context.config.get("max_steps"), context.config.get("num_train_epochs")
    if isinstance(limit, int) and limit > 0:
        return limit
    return ceil(epochs * per_epoch) if isinstance(epochs, int | float) and 0 < epochs < 1e9 else None
