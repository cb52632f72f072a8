"""The arithmetic of a run, said as notes: answers per step, updates per step, steps per epoch.
No manifest: a rule's sentence has values of keys in it, and none that are computed.
"""

from __future__ import annotations

from collections.abc import Iterator

from tuneport.types import Context, Finding, Json

_RL = "actor_rollout_ref"
_SOURCE = "verl/trainer/ppo/v1/trainer_base.py, PPOTrainer._init_dataloader"
_SFT_SOURCE = "verl/trainer/sft_trainer.py, SFTTrainer._init_engine"


def check(context: Context) -> Iterator[Finding]:
    """Notes, and a warning where warm-up outlasts the run."""
    batch = _whole(context.config.get("data.train_batch_size"))
    if not batch:
        return
    sft = context.method.spec["entry"] == "verl.trainer.sft_trainer"
    if not sft:
        yield from _answers(context, batch)
    rows, limit = _whole(_train(context).get("rows")), _whole(context.config.get("data.train_max_samples"))
    rows = min(rows, limit) if limit else rows
    per_epoch = rows // batch
    epochs = _whole(context.config.get("trainer.total_epochs"))
    total = _whole(context.config.get("trainer.total_training_steps")) or per_epoch * epochs
    if per_epoch and epochs:
        message = f"{rows} rows at {batch} a step make {per_epoch} steps an epoch; the run makes {total}"
        yield Finding("verl-steps", "note", message, source=_SFT_SOURCE if sft else _SOURCE)
    yield from _warmup(context, total, "optim." if sft else f"{_RL}.actor.optim.")


def _answers(context: Context, batch: int) -> Iterator[Finding]:
    samples = _whole(context.config.get(f"{_RL}.rollout.n"))
    mini = _whole(context.config.get(f"{_RL}.actor.ppo_mini_batch_size"))
    if not samples or not mini:
        return
    passes = _whole(context.config.get(f"{_RL}.actor.ppo_epochs")) or 1
    updates = -(-batch // mini) * passes
    answers = f"{samples} answer" + "s" * (samples != 1)
    message = (
        f"a step takes {batch} prompts x {answers} = {batch * samples} sequences and makes "
        f"{updates} update{'s' * (updates != 1)} of {mini * samples} sequences"
    )
    source = "verl/trainer/ppo/v1/trainer_base.py, PPOTrainer._update_actor"
    yield Finding("verl-sequences", "note", message, source=source)


def _warmup(context: Context, total: int, prefix: str) -> Iterator[Finding]:
    key = f"{prefix}lr_warmup_steps"
    warmup = _whole(context.config.get(key))
    if warmup and total and warmup >= total:
        origin = context.origins.get(key)
        place = (origin.file, origin.line) if origin else ("", 0)
        message = f"warm-up takes {warmup} steps of the run's {total}: the rate never reaches its peak"
        yield Finding("verl-warmup-endless", "warning", message, "shorten warmup_steps", key, *place)


def _train(context: Context) -> dict[str, Json]:
    found: dict[str, Json] = context.facts.get("data", {}).get("train", {})
    return found


def _whole(value: Json) -> int:
    """A positive whole number; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
