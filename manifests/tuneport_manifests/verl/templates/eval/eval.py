"""Asks the model each task of the validation data and scores the answers as training did. Yours to change.

Runs by `tp eval`, on GPUs with vLLM and on processors without. TUNEPORT_MODEL is a model, or a job's output, whose newest
checkpoint is merged first; TUNEPORT_VALIDATION_DATA a file of tasks (prompt, data_source, reward_model), or of
conversations that end with the answer (messages). Tasks are scored by the experiment's reward.py where there is one, else
by the release's scorer for their source. Writes scores.json, and every answer to answers.jsonl.
"""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import tuneport_report as report

LENGTH = int(os.environ.get("EVAL_LENGTH", "1024"))  # tokens of an answer at most
BATCH = 8  # questions at a time, without vLLM
OUT = Path(os.environ["TUNEPORT_OUTPUT_DIR"])


def load_rows(name):
    if name.endswith(".parquet"):
        import pyarrow.parquet as pq

        return pq.read_table(name).to_pylist()
    return [json.loads(line) for line in Path(name).read_text("utf-8").splitlines() if line.strip()]


def load_scorer():
    """compute_score of reward.py, or the release's own."""
    if Path("reward.py").is_file():
        from reward import compute_score
    else:
        from verl.utils.reward_score import default_compute_score as compute_score
    return compute_score


def model_folder(name):
    """A model as it is; of a job's output the newest checkpoint, merged into one."""
    folder = Path(name)
    if not folder.is_dir() or (folder / "config.json").exists():
        return name
    steps = [(int(found[1]), path) for path in folder.glob("global_step_*") if (found := re.search(r"(\d+)$", path.name))]
    newest = max(steps, default=(0, folder))[1]
    shards = next((path for path in (newest / "actor", newest) if any(path.glob("*_config.json"))), None)
    if shards is None:
        raise SystemExit(f"{folder} holds neither a model nor a checkpoint")
    backend = "fsdp" if (shards / "fsdp_config.json").exists() else "megatron"
    words = ["--backend", backend, "--local_dir", str(shards), "--target_dir", str(OUT / "model")]
    subprocess.run([sys.executable, "-m", "verl.model_merger", "merge", *words], check=True)
    return str(OUT / "model")


def answers(model, conversations):
    """What the model says to each conversation, greedily."""
    import torch

    if torch.cuda.is_available():
        from vllm import LLM, SamplingParams

        engine = LLM(model=model, tensor_parallel_size=torch.cuda.device_count())
        found = engine.chat(conversations, SamplingParams(temperature=0, max_tokens=LENGTH))
        yield from (answer.outputs[0].text for answer in found)
        return
    from transformers import AutoModelForCausalLM, AutoTokenizer

    network = AutoModelForCausalLM.from_pretrained(model, dtype="auto").eval()
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    tokenizer.pad_token_id = pad
    for start in range(0, len(conversations), BATCH):
        part = conversations[start : start + BATCH]
        texts = [tokenizer.apply_chat_template(one, tokenize=False, add_generation_prompt=True) for one in part]
        batch = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        with torch.no_grad():
            output = network.generate(**batch, do_sample=False, max_new_tokens=LENGTH, pad_token_id=pad)
        yield from tokenizer.batch_decode(output[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)


def judge(row, answer, scorer):
    """(task, metric, points) of one answer."""
    if "messages" in row:
        exact = answer.split() == row["messages"][-1]["content"].split()
        return row.get("task", "validation"), "exact_match", float(exact)
    told = scorer(
        data_source=row["data_source"],
        solution_str=answer,
        ground_truth=row["reward_model"]["ground_truth"],
        extra_info=row.get("extra_info") or {},
    )
    return row["data_source"], "score", float(told["score"] if isinstance(told, dict) else told)


def main():
    report.init(model=os.environ["TUNEPORT_MODEL"])
    rows = load_rows(os.environ["TUNEPORT_VALIDATION_DATA"])
    scorer = None if all("messages" in row for row in rows) else load_scorer()
    conversations = [row["messages"][:-1] if "messages" in row else list(row["prompt"]) for row in rows]
    points = {}
    with open(OUT / "answers.jsonl", "w", encoding="utf-8") as log:
        said = answers(model_folder(os.environ["TUNEPORT_MODEL"]), conversations)
        for number, (row, answer) in enumerate(zip(rows, said, strict=True), 1):
            task, metric, score = judge(row, answer, scorer)
            points.setdefault((task, metric), []).append(score)
            asked = conversations[number - 1][-1]["content"]
            log.write(json.dumps({"task": task, "asked": asked, "answer": answer, metric: score}, ensure_ascii=False) + "\n")
            if number % BATCH == 0 or number == len(rows):
                print(f"{number} of {len(rows)} judged", flush=True)
    scores = [summary(task, metric, found) for (task, metric), found in points.items()]
    for score in scores:
        report.log({f"eval/{score['task']}/{score['metric']}": score["value"]}, step=0)
    (OUT / "scores.json").write_text(json.dumps({"scores": scores, "harness": "eval.py"}))
    report.finish()


def summary(task, metric, points):
    mean = sum(points) / len(points)
    spread = math.sqrt(sum((point - mean) ** 2 for point in points) / len(points) / len(points))
    return {"task": task, "metric": metric, "value": mean, "stderr": spread, "n": len(points)}


if __name__ == "__main__":
    main()
