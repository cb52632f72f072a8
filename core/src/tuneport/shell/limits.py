"""What one reading may cost, so that no script makes it slow or large."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tuneport.errors import Invalid

MAX_BYTES = 128 * 1024
MAX_DEPTH = 40
MAX_STEPS = 20_000
MAX_TEXT = 2_000_000
MAX_WORDS = 50_000
MAX_SECONDS = 0.5  # of CPU; an ordinary script takes a hundredth of it
CODE = "script-limit"


def too_much(what: str, hint: str = "") -> Invalid:
    """The refusal of a script that is out of bounds."""
    return Invalid(
        what,
        code=CODE,
        hint=hint or "give the command that it starts: tp check -- python -m package.module …",
    )


@dataclass(slots=True)
class Budget:
    """Counts what a reading has used."""

    steps: int = 0
    text: int = 0
    words: int = 0
    depth: int = 0
    began: float = field(default_factory=time.process_time)

    def step(self, cost: int = 1) -> None:
        self.steps += cost
        if self.steps > MAX_STEPS or time.process_time() - self.began > MAX_SECONDS:
            raise too_much("the script takes too many steps to be followed: it may never end")

    def spend(self, text: str) -> str:
        self.text += len(text)
        if self.text > MAX_TEXT:
            raise too_much("the script's values grow beyond all measure")
        return text

    def count(self, words: int) -> None:
        self.words += words
        if self.words > MAX_WORDS:
            raise too_much(f"the script makes more than {MAX_WORDS} words")

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise too_much(f"the script is nested more than {MAX_DEPTH} deep")

    def leave(self) -> None:
        self.depth -= 1
