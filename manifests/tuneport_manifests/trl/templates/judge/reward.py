"""Asks the judge for each sampled answer. Yours to change: mix in rules of your own, or scale what it says.

Rewards of the judge go from 0 to 1; one is None where its reply could not be taken, and such an answer is
left out of its group.
"""

from tuneport_judge import reward as judged


def reward(prompts, completions, **columns):
    return judged(prompts, completions, **columns)
