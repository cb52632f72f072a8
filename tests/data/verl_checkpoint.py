"""Has the release write a checkpoint of a tiny model as its actors do, or compares a merged one with it.

usage: torchrun … verl_checkpoint.py write FOLDER | verl_checkpoint.py compare FOLDER
"""

import sys
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)


def tiny():
    torch.manual_seed(0)
    sizes = {"vocab_size": 9, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "tie_word_embeddings": False}
    return Qwen2ForCausalLM(Qwen2Config(**sizes, **heads, architectures=["Qwen2ForCausalLM"]))


def words():
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: number for number, word in enumerate(["<eos>", "<unk>", *"abcdefg"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", unk_token="<unk>")
    made.chat_template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    return made


def write(folder):
    """One process a shard; sizes that two do not divide make uneven ones."""
    import torch.distributed as dist
    from omegaconf import OmegaConf
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

    dist.init_process_group("gloo")
    model = tiny()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    # Without `extra`: release 0.9.0 would ask a GPU for its random state.
    contents = OmegaConf.create({"save_contents": ["model"], "load_contents": ["model"]})
    manager = FSDPCheckpointManager(model, processing_class=words(), checkpoint_config=contents)
    manager.save_checkpoint(str(folder / "actor"), global_step=2)
    dist.destroy_process_group()


def compare(folder):
    merged = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).state_dict()
    expected = tiny().state_dict()
    assert set(merged) == set(expected)
    for name, weight in expected.items():
        assert torch.equal(merged[name], weight.to(torch.bfloat16)), name
    assert AutoTokenizer.from_pretrained(folder)("a").input_ids == [2]


if __name__ == "__main__":
    {"write": write, "compare": compare}[sys.argv[1]](Path(sys.argv[2]))
