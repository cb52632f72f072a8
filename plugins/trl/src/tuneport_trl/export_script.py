"""Turns a checkpoint into a Hugging Face folder: adapters merged, safetensors, the tokenizer beside them.
No manifest: it is a program, shipped to the job as it stands.

Runs inside the release's runtime. TUNEPORT_CHECKPOINT is the folder to convert, TUNEPORT_MODEL the model that
training started from (used where an adapter's own note of it leads nowhere), TUNEPORT_OUTPUT_DIR the result.
The result is loaded again and must answer with the same numbers before the job counts as done.
"""

# ruff: noqa: T201 - what it prints is the job's log

from __future__ import annotations

import json
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

TRUST = os.environ.get("TUNEPORT_TRUST_REMOTE_CODE") == "1"


def main() -> int:
    source = newest(Path(os.environ["TUNEPORT_CHECKPOINT"]))
    target = Path(os.environ["TUNEPORT_OUTPUT_DIR"])
    target.mkdir(parents=True, exist_ok=True)
    processor, model, what = load(source)
    expected = probe(model, processor)
    count = sum(tensor.numel() for tensor in model.parameters())
    model.save_pretrained(target, safe_serialization=True)
    processor.save_pretrained(target)
    kept = str(model.dtype).removeprefix("torch.")
    del model
    print(f"written {what} with {count:,} weights in {kept}; loading it again", flush=True)
    difference = prove(target, expected)
    print(f"{target} loads and answers alike (largest difference {difference:.1e})", flush=True)
    return 0


def newest(folder: Path) -> Path:
    """The folder itself, or its last numbered checkpoint where training ended before the final save."""
    if (folder / "adapter_config.json").is_file() or (folder / "config.json").is_file():
        return folder
    numbered = {
        int(match[1]): path
        for path in (folder.iterdir() if folder.is_dir() else [])
        if (match := re.fullmatch(r"checkpoint-([0-9]+)", path.name))
    }
    if not numbered:
        sys.exit(f"{folder} holds neither a model, nor an adapter, nor a checkpoint-N folder")
    last = numbered[max(numbered)]
    print(f"{folder} holds no finished model; taking {last.name}", flush=True)
    return last


def load(source: Path) -> tuple[Any, Any, str]:
    """(processor, model with adapters merged, what it is in words)."""
    adapter = source / "adapter_config.json"
    if not adapter.is_file():
        return processor_of(source), model_of(str(source)), "a model"
    noted = json.loads(adapter.read_text("utf-8"))
    base = base_of(noted)
    processor = processor_of(source, base)
    model = scorer_of(base, processor) if noted.get("task_type") == "SEQ_CLS" else model_of(base)
    tokens = len(getattr(processor, "tokenizer", processor))
    if tokens > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(tokens)
    merged = import_module("peft").PeftModel.from_pretrained(model, str(source)).merge_and_unload()
    return processor, merged, f"an adapter merged into {base}"


def base_of(adapter: dict[str, Any]) -> str:
    """The model under an adapter: where the adapter says, if that is here, else what the request names."""
    noted = adapter.get("base_model_name_or_path") or ""
    if noted and Path(noted).is_dir():
        return str(noted)
    base = os.environ.get("TUNEPORT_MODEL") or noted
    if not base:
        sys.exit("the adapter does not say which model it belongs to; give --model")
    return str(base)


def model_of(name: str) -> Any:
    transformers = import_module("transformers")
    config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=TRUST)
    kind = getattr(transformers, (config.architectures or [""])[0], transformers.AutoModelForCausalLM)
    return kind.from_pretrained(name, dtype="auto", trust_remote_code=TRUST).eval()


def scorer_of(name: str, processor: Any) -> Any:
    """The model with the head of a reward model, whose weights the adapter brings along."""
    kind = import_module("transformers").AutoModelForSequenceClassification
    model = kind.from_pretrained(name, num_labels=1, dtype="auto", trust_remote_code=TRUST).eval()
    tokenizer = getattr(processor, "tokenizer", processor)
    model.config.pad_token_id = tokenizer.pad_token_id
    return model


def processor_of(*places: Path | str) -> Any:
    """The tokenizer, or processor, of the first place that has one."""
    auto = import_module("transformers").AutoProcessor
    failure: Exception | None = None
    for place in places:
        try:
            return auto.from_pretrained(str(place), trust_remote_code=TRUST)
        except (OSError, ValueError) as error:
            failure = failure or error
    sys.exit(f"no tokenizer in {' or '.join(map(str, places))}: {failure}")


def probe(model: Any, processor: Any) -> Any:
    """The model's scores for a fixed text: what the written copy must reproduce."""
    tokenizer = getattr(processor, "tokenizer", processor)
    batch = tokenizer("The quick brown fox jumps over the lazy dog.", return_tensors="pt")
    with import_module("torch").no_grad():
        return model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.float()


def prove(target: Path, expected: Any) -> float:
    again = model_of(str(target))
    found = probe(again, processor_of(target))
    if found.shape != expected.shape:
        shapes = f"{tuple(found.shape)}, not {tuple(expected.shape)}"
        sys.exit(f"the written model answers in another shape: {shapes}")
    difference = float((found - expected).abs().max())
    # Same weights, same kernels: anything beyond rounding means that something was not written.
    if not difference <= 1e-3 * max(1.0, float(expected.abs().max())):
        sys.exit(f"the written model answers differently (largest difference {difference:.3g})")
    return difference


if __name__ == "__main__":
    sys.exit(main())
