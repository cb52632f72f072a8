"""Scores sampled answers. Yours to change; TRL calls it with everything by name.

`completions` holds one answer for each sampled completion: a list with one message where the prompts are
messages, else text. Every other column of the data comes along, repeated to match, such as `solution`.
A reward is any number; None leaves an answer out.
"""

import re

NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")


def reward(completions, solution, **columns):
    """1 where the last number of an answer is the solution, else 0."""
    return [float(number(text(answer)) == number(str(right))) for answer, right in zip(completions, solution)]


def text(answer):
    return answer if isinstance(answer, str) else answer[-1]["content"]


def number(written):
    found = NUMBER.findall(written)
    return float(found[-1].replace(",", "")) if found else None
