"""Turns GSM8K, grade-school sums in words, into the rows that verl trains on. Yours to change.

    tp dataset prepare THIS --out data/gsm8k                      downloads it from the Hugging Face hub
    tp dataset prepare THIS --out data/gsm8k -- --source FOLDER   takes train and test as .jsonl or .parquet there

Needs pyarrow, and huggingface_hub to download. With VERL_USE_MODELSCOPE=True, in `env:` of job.yaml, it downloads from
ModelScope, for which the package modelscope is needed; --source is then the data set's name there.
"""

import argparse
import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

# The scorer that comes with verl for this source takes the number behind the last ####, so the model is asked for one.
SOURCE = "openai/gsm8k"
REQUEST = 'Think step by step, and write the final answer after "####".'
SPLITS = ("train", "test")


def folder_of(source):
    """The folder with the files: the one that was named, or a copy of the hub's."""
    if Path(source).is_dir():
        return Path(source)
    try:
        if os.environ.get("VERL_USE_MODELSCOPE", "").lower() == "true":
            from modelscope.hub.snapshot_download import dataset_snapshot_download

            return Path(dataset_snapshot_download(source))
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(source, repo_type="dataset"))
    except ImportError as error:
        raise SystemExit(f"to download {source}: pip install {error.name}; or give --source FOLDER") from None


def load(folder, split):
    """The rows of a split: question, and an answer that ends with `#### <number>`."""
    # The hub keeps two sets of answers in folders of their own; main is the plain one.
    patterns = [f"{split}.jsonl", f"{split}.parquet", f"main/{split}-*.parquet", f"{split}-*.parquet"]
    found = next((paths for pattern in patterns if (paths := sorted(folder.glob(pattern)))), [])
    if not found:
        raise SystemExit(f"{folder} holds neither {split}.jsonl nor {split}.parquet")
    if found[0].suffix == ".jsonl":
        return [json.loads(line) for line in found[0].read_text("utf-8").splitlines() if line.strip()]
    return [record for path in found for record in pq.read_table(path).to_pylist()]


def row(index, split, record):
    """What verl reads: a conversation, who scores the answer, and the number that it has to be."""
    found = re.search(r"####\s*(-?[0-9.,]+)", record["answer"])
    if found is None:
        raise SystemExit(f"{split} row {index}: the answer has no number behind ####")
    return {
        "data_source": SOURCE,
        "prompt": [{"role": "user", "content": f"{record['question'].strip()} {REQUEST}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": found[1].replace(",", "").rstrip(".")},
        "extra_info": {"split": split, "index": index, "question": record["question"], "answer": record["answer"]},
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", default=SOURCE, help="a folder with train and test, or a name on the hub")
    parser.add_argument("--limit", type=int, default=0, help="rows of each split, 0 for all")
    args = parser.parse_args()
    folder, out = folder_of(args.source), Path(os.environ["TUNEPORT_OUTPUT_DIR"])
    for split in SPLITS:
        records = load(folder, split)[: args.limit or None]
        rows = [row(index, split, record) for index, record in enumerate(records)]
        pq.write_table(pa.Table.from_pylist(rows), out / f"{split}.parquet")
        print(f"{split}: {len(rows)} rows", flush=True)


if __name__ == "__main__":
    main()
