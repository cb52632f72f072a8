"""Writes a checkpoint of a tiny model as the release shards it, or compares a merged one with that model.

usage: verl_checkpoint.py write FOLDER SHARDS | verl_checkpoint.py compare FOLDER
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM


def tiny():
    torch.manual_seed(0)
    sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "tie_word_embeddings": False}
    return Qwen2ForCausalLM(Qwen2Config(**sizes, **heads, architectures=["Qwen2ForCausalLM"]))


def write(folder, shards):
    actor = folder / "actor"
    model = tiny()
    model.config.save_pretrained(actor / "huggingface")
    model.generation_config.save_pretrained(actor / "huggingface")
    tokenizer = Tokenizer(models.WordLevel({"<eos>": 0, "<unk>": 1, "a": 2}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"eos_token": "<eos>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(actor / "huggingface")
    parts = {name: torch.chunk(weight, shards) for name, weight in model.state_dict().items()}
    for rank in range(shards):
        shard = {name: part[rank].clone() for name, part in parts.items()}
        torch.save(shard, actor / f"model_world_size_{shards}_rank_{rank}.pt")
    (actor / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 1, "world_size": shards}))


def compare(folder):
    merged = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).state_dict()
    for name, weight in tiny().state_dict().items():
        assert torch.equal(merged[name], weight.to(torch.bfloat16)), name


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        compare(Path(sys.argv[2]))
