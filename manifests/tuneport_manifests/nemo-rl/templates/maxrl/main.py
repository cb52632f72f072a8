"""GRPO of NeMo-RL 0.7.0 with MaxRL's advantages. Upstream chooses its estimator by name from a fixed list; this
adds one name, `maxrl`, and runs upstream's own program.

A prompt's advantages are divided by its mean reward instead of the deviation: with rewards of 0 and 1 that is the
gradient of the log of the success rate (Maximum Likelihood Reinforcement Learning, arXiv 2602.02710).
"""

import runpy

import torch
from nemo_rl.algorithms import grpo
from nemo_rl.algorithms.utils import calculate_baseline_and_std_per_prompt


class MaxRLAdvantageEstimator:
    def __init__(self, estimator_config, loss_config):
        self.epsilon = float(estimator_config.get("epsilon", 1e-6))

    def compute_advantage(self, prompt_ids, rewards, mask, **kwargs):
        """Advantages of the shape of `mask` (answers, tokens); rewards must not be negative."""
        mean, _ = calculate_baseline_and_std_per_prompt(
            prompt_ids, rewards, torch.ones_like(rewards), leave_one_out_baseline=False
        )
        return ((rewards - mean) / (mean + self.epsilon)).unsqueeze(-1).expand(mask.shape)


upstream = grpo._create_advantage_estimator


def create(master_config):
    estimator = master_config.grpo["adv_estimator"]
    if estimator["name"] == "maxrl":
        return MaxRLAdvantageEstimator(estimator, master_config.loss_fn)
    return upstream(master_config)


if __name__ == "__main__":
    grpo._create_advantage_estimator = create
    runpy.run_path("examples/run_grpo.py", run_name="__main__")
