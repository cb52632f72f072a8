"""The arithmetic of a run: how many optimizer steps the data makes, and whether warm-up ends in time."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from tuneport.types import Context, Finding

_WITHOUT_WARMUP = ("constant", "reduce_lr_on_plateau", "greedy")
_SOURCE = "transformers 5.24.0 transformers/trainer.py, Trainer.set_initial_training_values"


def check(context: Context) -> Iterator[Finding]:
    """Notes about the length of the run, where the rows, the hardware and the settings are known."""
    rows = context.facts.get("data", {}).get("train", {}).get("rows")
    config = context.config
    numbers = [config.get(key) for key in ("per_device_train_batch_size", "gradient_accumulation_steps")]
    if not isinstance(rows, int) or not context.topology.pools:
        return
    if config.get("packing") or config.get("datasets"):  # rows are no longer what is counted
        return
    if not all(isinstance(number, int) and number >= 1 for number in numbers):
        return
    batch, accumulation = (int(number) for number in numbers if number is not None)
    pool = context.topology.primary
    processes = pool.nodes * pool.gpus_per_node
    per_epoch = max(1, ceil(ceil(rows / batch / processes) / accumulation))
    total = _total(context, per_epoch)
    if total is None:
        return
    width = f"{batch} x {processes} x {accumulation}" if processes > 1 else f"{batch} x {accumulation}"
    message = f"{rows} rows at {width} per step make {per_epoch} steps an epoch; the run makes {total}"
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


def _total(context: Context, per_epoch: int) -> int | None:
    limit, epochs = context.config.get("max_steps"), context.config.get("num_train_epochs")
    if isinstance(limit, int) and limit > 0:
        return limit
    return ceil(epochs * per_epoch) if isinstance(epochs, int | float) and 0 < epochs < 1e9 else None
