"""Asks a model each question of the validation data and counts exact answers. Yours to change.

Runs by `tp eval`, on a GPU or on processors. TUNEPORT_MODEL is a model, an adapter or a job's output;
TUNEPORT_VALIDATION_DATA a file of prompt and completion (or chosen, or solution), or of messages that end with
the answer; where rows have a column task, each task is counted for itself. Writes scores.json, and every answer
to answers.jsonl.
"""

import glob
import json
import math
import os
from pathlib import Path

import torch
import tuneport_report as report
from transformers import AutoModelForCausalLM, AutoTokenizer

BATCH = 8  # questions at a time
MARGIN = 8  # tokens an answer may be longer than the longest expected one


def load_rows(name):
    """(task, question, expected answer) of each row; the question is text, or a list of messages."""
    from datasets import load_dataset

    kinds = {".jsonl": "json", ".ndjson": "json", ".tsv": "csv", ".txt": "text"}
    if Path(name).is_file():
        suffix = next(s for s in reversed(Path(name).suffixes) if s not in (".gz", ".bz2", ".xz", ".zst"))
        more = {"sep": "\t"} if suffix == ".tsv" else {}
        kind = kinds.get(suffix, suffix[1:])
        rows = load_dataset(kind, data_files=glob.escape(name), split="train", **more)  # a path, not a pattern
    else:
        splits = load_dataset(name)
        rows = splits[next(split for split in ("test", "validation", "train") if split in splits)]
    rows = [row for row in rows if row.get("label") is not False]  # an answer marked bad is none to expect
    return [(row.get("task") or Path(name).stem, *pair(row)) for row in rows]


def pair(row):
    if row.get("messages"):
        *question, answer = row["messages"]
        return question, answer["content"]
    expected = next((row[name] for name in ("completion", "chosen", "solution") if row.get(name)), None)
    if "prompt" not in row or expected is None:
        raise SystemExit(f"a row needs prompt and completion, or messages; it has {', '.join(row)}")
    return row["prompt"], expected if isinstance(expected, str) else expected[-1]["content"]


def load_model(name):
    """The model and its tokenizer; of a job that was cut short, its last checkpoint."""
    folder = Path(name)
    if folder.is_dir() and not any((folder / file).exists() for file in ("config.json", "adapter_config.json")):
        numbered = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]))
        if not numbered:
            raise SystemExit(f"{folder} holds no model")
        folder = numbered[-1]
        name = str(folder)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(name, dtype="auto")  # adapters bring their base model along
    tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model.to(device).eval(), tokenizer


def answer(model, tokenizer, questions, length):
    """What the model says to each question, greedily, in at most `length` tokens."""
    texts = [
        question
        if isinstance(question, str)
        else tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
        for question in questions
    ]
    batch = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
    with torch.no_grad():
        output = model.generate(
            **batch, do_sample=False, max_new_tokens=length, pad_token_id=tokenizer.pad_token_id
        )
    return tokenizer.batch_decode(output[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)


def plain(text):
    return " ".join(text.split())


def main():
    report.init(model=os.environ["TUNEPORT_MODEL"])
    rows = load_rows(os.environ["TUNEPORT_VALIDATION_DATA"])
    model, tokenizer = load_model(os.environ["TUNEPORT_MODEL"])
    length = MARGIN + max(len(tokenizer(expected)["input_ids"]) for _, _, expected in rows)
    out = Path(os.environ["TUNEPORT_OUTPUT_DIR"])
    hits = {}
    with open(out / "answers.jsonl", "w", encoding="utf-8") as log:
        for start in range(0, len(rows), BATCH):
            part = rows[start : start + BATCH]
            said = answer(model, tokenizer, [question for _, question, _ in part], length)
            for (task, question, expected), text in zip(part, said, strict=True):
                hit = plain(text) == plain(expected)
                hits.setdefault(task, []).append(hit)
                record = {"task": task, "question": question, "expected": expected, "answer": text, "hit": hit}
                log.write(json.dumps(record, ensure_ascii=False) + "\n")
            done, exact = min(start + BATCH, len(rows)), sum(map(sum, hits.values()))
            print(f"{done} of {len(rows)} answered, {exact} exact", flush=True)
    scores = [score(task, found) for task, found in hits.items()]
    report.log({"eval/exact_match": sum(map(sum, hits.values())) / len(rows)}, step=0)
    (out / "scores.json").write_text(json.dumps({"scores": scores, "harness": "eval.py"}))
    report.finish()


def score(task, found):
    rate = sum(found) / len(found)
    spread = math.sqrt(rate * (1 - rate) / len(found))
    return {"task": task, "metric": "exact_match", "value": rate, "stderr": spread, "n": len(found)}


if __name__ == "__main__":
    main()
