"""Turns the GGUF file of SmolLM2-135M-Instruct into an ordinary checkpoint. Runs in the runtime of trl.

The file holds 4-bit weights; what is written is what they stand for, in 32 bits, so it is not the same as
the model that its makers published.
"""

# ruff: noqa: T201 - it talks to a person

import os
import shutil
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

source, target = Path(sys.argv[1]), Path(sys.argv[2])
partial = target.with_name(f"{target.name}.{os.getpid()}")
print("reading the tokenizer", flush=True)
tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
print("reading the weights (half a minute on an idle machine)", flush=True)
model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
# What marks the model as quantised would make save_pretrained refuse; the weights are plain by now.
del model.config.quantization_config, model.hf_quantizer
model.save_pretrained(partial)
tokenizer.save_pretrained(partial)
if target.exists():  # made by another demo meanwhile
    shutil.rmtree(partial)
else:
    partial.rename(target)
print(f"written {sum(p.numel() for p in model.parameters()):,} weights to {target}", flush=True)
