"""On-policy self-distillation on NeMo-RL 0.7.0: upstream's distillation, with a teacher that is shown a solution.

The reference solution of each task (its `output`) is put before what the teacher reads, as a turn of its own. So
the teacher's probabilities stand at the student's places, moved by the length of that turn. After
Self-Distilled Reasoner, arXiv 2601.18734.
"""

import runpy

import torch
from nemo_rl.algorithms import distillation
from nemo_rl.algorithms.utils import masked_mean
from nemo_rl.distributed.batched_data_dict import BatchedDataDict

HINT = "Here is a solution of the task that follows. Understand it, then solve the task in your own words.\n\n{}"
REPLY = "I have understood it."


class InformedTeacher:
    """The teacher as `distillation_train` uses it. `policy` is whose weights it has."""

    def __init__(self, policy, tokenizer, rollouts, config, *, shared):
        self.policy, self.tokenizer, self.rollouts, self.config = policy, tokenizer, rollouts, config
        self.shared = shared

    def prepare_for_lp_inference(self):
        self.policy.prepare_for_lp_inference()

    def offload_after_refit(self):
        if not self.shared:  # the student goes on to train with these very weights
            self.policy.offload_after_refit()

    def get_topk_logits(self, data, k, timer=None):
        """The likeliest `k` tokens at each of the student's places: (answers, tokens, k)."""
        hints = [self.hint(info) for info in self.rollouts[-1]["extra_env_info"]]
        room = self.config["max_total_sequence_length"]
        lengths = data["input_lengths"].tolist()
        hints = [hint[: max(room - length, 0)] for hint, length in zip(hints, lengths)]
        informed = with_hints(data, hints, self.tokenizer.pad_token_id, self.config["make_sequence_length_divisible_by"])
        found = self.policy.get_topk_logits(informed, k=k, timer=timer)
        width = data["input_ids"].shape[1]
        for name in ("topk_logits", "topk_indices"):
            found[name] = back(found[name], [len(hint) for hint in hints], width)
        return found

    def hint(self, info):
        turns = [
            {"role": "user", "content": HINT.format(info["ground_truth"])},
            {"role": "assistant", "content": REPLY},
        ]
        text = self.tokenizer.apply_chat_template(turns, tokenize=False)
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]


def with_hints(data, hints, pad, multiple):
    """The student's sequences, each behind its hint, padded on the right to a multiple."""
    lengths = [len(hint) + length for hint, length in zip(hints, data["input_lengths"].tolist())]
    width = -(-max(lengths) // multiple) * multiple
    ids = torch.full((len(hints), width), pad, dtype=data["input_ids"].dtype)
    for row, (hint, length) in enumerate(zip(hints, data["input_lengths"].tolist())):
        ids[row, : len(hint)] = torch.tensor(hint, dtype=ids.dtype)
        ids[row, len(hint) : len(hint) + length] = data["input_ids"][row, :length]
    return BatchedDataDict({"input_ids": ids, "input_lengths": torch.tensor(lengths)})


def back(values, shifts, width):
    """Rows of (answers, tokens, k) moved to the left by each answer's shift, `width` tokens of them."""
    moved = values.new_zeros((values.shape[0], width, values.shape[2]))
    for row, shift in enumerate(shifts):
        part = values[row, shift : shift + width]
        moved[row, : part.shape[0]] = part
    return moved


class ClippedLoss(distillation.DistillationLossFn):
    """Upstream's distances, with each token's cut at `clip`."""

    def __init__(self, config, clip):
        super().__init__(config)
        if self.zero_outside_topk:
            raise ValueError("loss_fn.zero_outside_topk is not part of this loss")
        self.clip = clip

    def __call__(
        self, student_topk_logprobs, teacher_topk_logprobs, H_all, data, global_valid_seqs, global_valid_toks
    ):
        forward = (teacher_topk_logprobs.exp() * (teacher_topk_logprobs - student_topk_logprobs)).sum(-1)
        reverse = (student_topk_logprobs.exp() * (student_topk_logprobs - teacher_topk_logprobs)).sum(-1)
        share = {"forward": 1.0, "reverse": 0.0}.get(self.kl_type, self.mixed_kl_weight)
        distance = share * forward + (1.0 - share) * reverse
        cut = distance.clamp(max=self.clip)
        mask = data["token_mask"][:, 1:][:, : cut.shape[1]] * data["sample_mask"].unsqueeze(-1)
        loss = masked_mean(cut, mask, global_normalization_factor=global_valid_toks)
        beyond = masked_mean((distance > self.clip).float(), mask, global_normalization_factor=global_valid_toks)
        sizes = {"num_valid_samples": data["input_ids"].shape[0]}
        return loss, {"loss": float(loss.item()), "opsd_kl_clip_frac": float(beyond.item()), **sizes}


ROLLOUTS = []  # the last batch of answers, from which the solutions are taken


def remembered(function):
    def run(*arguments, **named):
        found = function(*arguments, **named)
        ROLLOUTS[:] = [found[0]]
        return found

    return run


upstream = distillation.distillation_train


def train(student, teacher, generation, dataloader, val_dataloader, tokenizer, loss_fn, *rest):
    master_config = rest[-1]
    settings = master_config.opsd
    shared = settings["teacher_mode"] == "self"
    informed = InformedTeacher(
        student if shared else teacher, tokenizer, ROLLOUTS, master_config.policy, shared=shared
    )
    loss_fn = ClippedLoss(master_config.loss_fn, settings["per_token_kl_clip"])
    return upstream(student, informed, generation, dataloader, val_dataloader, tokenizer, loss_fn, *rest)


if __name__ == "__main__":
    distillation.distillation_train = train
    for name in ("run_multi_turn_rollout", "run_async_multi_turn_rollout"):
        setattr(distillation, name, remembered(getattr(distillation, name)))
    runpy.run_path("examples/run_distillation.py", run_name="__main__")
