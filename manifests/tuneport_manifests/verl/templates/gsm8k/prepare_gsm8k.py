"""Turns GSM8K, grade-school sums in words, into the rows that verl trains on. Yours to change.

    tp dataset prepare THIS --out data/gsm8k                      downloads it from the Hugging Face hub
    tp dataset prepare THIS --out data/gsm8k -- --source FOLDER   takes train and test as .jsonl or .parquet there

Needs pyarrow, and huggingface_hub to download. With VERL_USE_MODELSCOPE=True, in `env:` of job.yaml, it downloads from
ModelScope, for which the package modelscope is needed; --source is then the data set's name there.
"""

import argparse
import itertools
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
    """(place, row) of each row of a split: question, and an answer that ends with `#### <number>`."""
    # The hub keeps two sets of answers in folders of their own; main is the plain one.
    patterns = [f"{split}.jsonl", f"{split}.parquet", f"main/{split}-*.parquet", f"{split}-*.parquet"]
    found = next((paths for pattern in patterns if (paths := sorted(folder.glob(pattern)))), [])
    if not found:
        raise SystemExit(f"{folder} holds neither {split}.jsonl nor {split}.parquet")
    for path in found:
        yield from (lines if path.suffix == ".jsonl" else records)(path)


def lines(path):
    # Not splitlines(): it also breaks at U+2028 and the like, which JSON text may hold.
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if line.strip():
            try:
                yield f"{path}:{number}", json.loads(line)
            except ValueError as error:
                raise SystemExit(f"{path}:{number}: no JSON: {error}") from None


def records(path):
    for number, record in enumerate(pq.read_table(path).to_pylist(), 1):
        yield f"{path}, row {number}", record


def row(index, split, place, record):
    """What verl reads: a conversation, who scores the answer, and the number that it has to be."""
    texts = [record.get(name) for name in ("question", "answer")] if isinstance(record, dict) else [None]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise SystemExit(f"{place}: a row needs a question and an answer, both text")
    question, answer = texts
    # Of several marks the last one counts, as for the scorer; it is compared without currency and separators.
    _, mark, behind = answer.rpartition("####")
    found = re.match(r"\s*(-?)\s*\$?\s*(-?)(\d[\d,]*(?:\.\d+)?|\.\d+)", behind)
    if not mark or found is None:
        raise SystemExit(f"{place}: the answer has no number behind ####")
    return {
        "data_source": SOURCE,
        "prompt": [{"role": "user", "content": f"{question.strip()} {REQUEST}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": (found[1] or found[2]) + found[3].replace(",", "")},
        "extra_info": {"split": split, "index": index, "question": question, "answer": answer},
    }


def count(text):
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("give 0 or more")
    return number


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", default=SOURCE, help="a folder with train and test, or a name on the hub")
    parser.add_argument("--limit", type=count, default=0, help="rows of each split, 0 for all")
    args = parser.parse_args()
    folder, out = folder_of(args.source), Path(os.environ["TUNEPORT_OUTPUT_DIR"])
    for split in SPLITS:
        found = itertools.islice(load(folder, split), args.limit or None)
        rows = [row(index, split, place, record) for index, (place, record) in enumerate(found)]
        if not rows:
            raise SystemExit(f"{folder} holds no rows for {split}")
        pq.write_table(pa.Table.from_pylist(rows), out / f"{split}.parquet")
        print(f"{split}: {len(rows)} rows", flush=True)


if __name__ == "__main__":
    main()
