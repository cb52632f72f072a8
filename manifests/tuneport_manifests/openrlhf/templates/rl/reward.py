"""Scores answers. Called with lists of equal length: whole texts, prompts, and the labels of the data.

`rewards` are what is learned from, `scores` (0 to 1) what dynamic filtering looks at.
"""

import re

import torch


def reward_func(queries, prompts, labels, **kwargs):
    found = [last_number(query) == str(label).replace(",", "") for query, label in zip(queries, labels)]
    rewards = torch.tensor([float(right) for right in found])
    return {"rewards": rewards, "scores": rewards, "extra_logs": {}}


def last_number(text):
    """The last number in a text, which ends with the answer; empty where there is none."""
    numbers = re.findall(r"-?[0-9][0-9,]*(?:\.[0-9]+)?", text)
    return numbers[-1].replace(",", "") if numbers else ""
