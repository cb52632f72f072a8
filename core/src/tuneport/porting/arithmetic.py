"""How much one training step takes: the numbers by which two experiments are compared."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from tuneport.porting.canonical import Said
from tuneport.types import Json


def per_step(said: Mapping[str, Said]) -> dict[str, Json]:
    """Counts of one training step over all devices; None where the experiment leaves one open.

    prompts: taken from the data; answers: sampled for them; updates: optimizer steps; tokens: at most, prompt
    and answer together. Methods that learn from given examples have `examples` in place of the first two.
    """
    group = _of(said, "rollouts_per_prompt")
    if group is None:
        examples = _of(said, "batch_size") or _of(said, "train_batch_size")
        return {"examples": examples, "updates": 1, "tokens": _times(examples, _of(said, "max_length"))}
    prompts, mini = _of(said, "train_batch_size"), _of(said, "mini_batch_size")
    answers = _times(prompts, group)
    updates: Json = None
    if prompts is not None and mini:
        found = Fraction(prompts, mini) * (_of(said, "ppo_epochs") or 1)
        updates = int(found) if found.denominator == 1 else float(found)
    tokens = _times(answers, _of(said, "max_length"))
    return {"prompts": prompts, "answers": answers, "updates": updates, "tokens": tokens}


def _of(said: Mapping[str, Said], name: str) -> int | None:
    value = said[name].value if name in said else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _times(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left * right
