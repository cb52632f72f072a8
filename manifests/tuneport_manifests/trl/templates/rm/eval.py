"""Counts the pairs of the validation data whose better answer gets the higher score. Yours to change.

Runs by `tp eval`, on a GPU or on processors. TUNEPORT_MODEL is a reward model, an adapter or a job's output;
TUNEPORT_VALIDATION_DATA a file of chosen and rejected, with a prompt or without; where rows have a column
task, each task is counted for itself. Writes scores.json, and both scores of each pair to pairs.jsonl.
"""

import glob
import json
import math
import os
from pathlib import Path

import torch
import tuneport_report as report
from transformers import AutoModelForSequenceClassification, AutoTokenizer

BATCH = 8  # answers at a time
MAX_LENGTH = 4096  # tokens; longer answers are cut


def load_rows(name):
    from datasets import load_dataset

    kinds = {".jsonl": "json", ".ndjson": "json", ".tsv": "csv", ".txt": "text"}
    if Path(name).is_file():
        suffix = next(s for s in reversed(Path(name).suffixes) if s not in (".gz", ".bz2", ".xz", ".zst"))
        more = {"sep": "\t"} if suffix == ".tsv" else {}
        kind = kinds.get(suffix, suffix[1:])
        return list(load_dataset(kind, data_files=glob.escape(name), split="train", **more))
    splits = load_dataset(name)
    return list(splits[next(split for split in ("test", "validation", "train") if split in splits)])


def load_model(name):
    """The model and its tokenizer; of a job that was cut short, its last checkpoint."""
    folder = Path(name)
    if folder.is_dir() and not any((folder / file).exists() for file in ("config.json", "adapter_config.json")):
        numbered = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]))
        if not numbered:
            raise SystemExit(f"{folder} holds no model")
        name = str(numbered[-1])
    tokenizer = AutoTokenizer.from_pretrained(name)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    adapter = Path(name) / "adapter_config.json"
    if adapter.exists():
        from peft import PeftModel

        base = json.loads(adapter.read_text())["base_model_name_or_path"]
        model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, dtype="auto")
        model = PeftModel.from_pretrained(model, name)
    else:
        model = AutoModelForSequenceClassification.from_pretrained(name, num_labels=1, dtype="auto")
    model.config.pad_token_id = tokenizer.pad_token_id
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.to(device).eval(), tokenizer


def tokens(tokenizer, row, side):
    """One answer of a pair with its prompt, as training shows it: it ends with the end token."""
    whole = row[side] if row.get("prompt") is None else row["prompt"] + row[side]
    if isinstance(whole, str):
        end = tokenizer.eos_token
        return tokenizer(whole if whole.endswith(end) else whole + end)["input_ids"]
    return tokenizer.apply_chat_template(whole, tokenize=True, return_dict=True)["input_ids"]


def score(model, tokenizer, answers):
    """One number for each answer."""
    found = []
    for start in range(0, len(answers), BATCH):
        part = [answer[:MAX_LENGTH] for answer in answers[start : start + BATCH]]
        batch = tokenizer.pad({"input_ids": part}, return_tensors="pt", padding_side="right").to(model.device)
        with torch.no_grad():
            found += model(**batch).logits.squeeze(-1).float().tolist()
        print(f"{len(found)} of {len(answers)} answers scored", flush=True)
    return found


def main():
    report.init(model=os.environ["TUNEPORT_MODEL"])
    name = os.environ["TUNEPORT_VALIDATION_DATA"]
    rows = load_rows(name)
    if not rows or "chosen" not in rows[0] or "rejected" not in rows[0]:
        raise SystemExit("a row needs chosen and rejected")
    model, tokenizer = load_model(os.environ["TUNEPORT_MODEL"])
    answers = [tokens(tokenizer, row, side) for row in rows for side in ("chosen", "rejected")]
    values = score(model, tokenizer, answers)
    hits = {}
    out = Path(os.environ["TUNEPORT_OUTPUT_DIR"])
    with open(out / "pairs.jsonl", "w", encoding="utf-8") as log:
        for row, chosen, rejected in zip(rows, values[::2], values[1::2], strict=True):
            task = row.get("task") or Path(name).stem
            hits.setdefault(task, []).append(chosen > rejected)
            log.write(json.dumps({"task": task, "chosen": chosen, "rejected": rejected}) + "\n")
    report.log({"eval/pairwise_accuracy": sum(map(sum, hits.values())) / len(rows)}, step=0)
    scores = [rate(task, found) for task, found in hits.items()]
    (out / "scores.json").write_text(json.dumps({"scores": scores, "harness": "eval.py"}))
    report.finish()


def rate(task, found):
    share = sum(found) / len(found)
    spread = math.sqrt(share * (1 - share) / len(found))
    return {"task": task, "metric": "pairwise_accuracy", "value": share, "stderr": spread, "n": len(found)}


if __name__ == "__main__":
    main()
