"""Scores answers by a rubric, through any endpoint that speaks OpenAI's chat completions.
No manifest: it is a library of the job's own process; where methods use it, manifests say so.

    from tuneport_judge import Judge

    judge = Judge.open()                       # what the platform wrote for this job
    results = judge.score(questions, answers)  # each with a value from 0 to 1, or None and the reason

`tuneport_judge.reward` is a reward function for trainers that call one with prompts and completions. All
but `compiled` runs inside jobs, so it is standard library only and works in any runtime.
"""

from __future__ import annotations

from tuneport_judge.endpoint import JudgeError
from tuneport_judge.judge import Judge, Result
from tuneport_judge.rewards import reward
from tuneport_judge.rubric import Rubric

__all__ = ["Judge", "JudgeError", "Result", "Rubric", "reward"]
