"""Runs an evaluation harness inside a job and writes what it found as scores.json. Standard library only.
No manifest: it is a program, shipped to the job as it stands.

    python tuneport-evalkit.py MODEL -- [launcher words] -m lm_eval run FLAGS…
    python tuneport-evalkit.py MODEL -- -m evalscope.cli.cli eval FLAGS…

MODEL is a name on a hub, a folder, or what a training job wrote: an adapter brings its base model along,
and of a
run that was cut short the last checkpoint is taken. Where a judge is described beside this file, written
answers
are scored by it as well.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

OUT = Path(os.environ.get("TUNEPORT_OUTPUT_DIR", "."))
HARNESS = OUT / "harness"
BY_NAME = ("completions", "anthropic", "litellm", "textsynth", "watsonx")  # parts of engines that take a name
Row = dict[str, Any]


def main(argv: list[str]) -> int:
    named, words = argv[0], argv[argv.index("--") + 1 :]
    harness = "lm-eval" if "lm_eval" in words else "evalscope"
    model = located(named)
    told = model_words(harness, model, words)
    say(f"running {' '.join([*words, *told])}")
    code = subprocess.run([sys.executable, *words, *told]).returncode
    if code:
        say(f"{harness} ended with exit code {code}")
        return code
    rows = list(lm_eval_rows() if harness == "lm-eval" else evalscope_rows())
    if not rows:
        say(f"{harness} wrote no score")
        return 1
    about = {
        "harness": harness,
        "harness_version": version(harness.replace("-", "_")),
        "model": model.get("adapter") or model["name"],
    }
    write({**about, "scores": rows})
    judged = judge_rows(lm_eval_answers() if harness == "lm-eval" else evalscope_answers())
    if judged:
        rubric = {"rubric": judged[0]["rubric"]}
        write({**about, **rubric, "scores": [*rows, *judged]})
    report([*rows, *judged], about)
    return 0


def say(text: str) -> None:
    sys.stdout.write(f"tuneport: {text}\n")
    sys.stdout.flush()


def write(document: Row) -> None:
    path = OUT / "scores.json"
    draft = path.with_name(".scores.json")
    draft.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", "utf-8")
    draft.replace(path)


# The model


def located(name: str) -> dict[str, str]:
    """`name` of the model, and `adapter` where that is one."""
    folder = Path(name)
    if not name or not folder.is_dir():
        return {"name": name}
    if not any((folder / file).exists() for file in ("config.json", "adapter_config.json")):
        numbered = [path for path in folder.glob("checkpoint-*") if path.name.partition("-")[2].isdigit()]
        if not numbered:
            raise SystemExit(
                f"{folder} holds no model in the Hugging Face layout; tp export may make one of it"
            )
        folder = max(numbered, key=lambda path: int(path.name.partition("-")[2]))
        say(f"taking {folder.name} of {name}")
    described = folder / "adapter_config.json"
    if described.exists() and not (folder / "config.json").exists():
        base = json.loads(described.read_bytes()).get("base_model_name_or_path")
        if not base:
            raise SystemExit(f"{described} does not say which model it adapts")
        say(f"{folder} is an adapter of {base}")
        return {"name": str(base), "adapter": str(folder)}
    return {"name": str(folder)}


def model_words(harness: str, model: dict[str, str], words: list[str]) -> list[str]:
    """The flags that name the model. lm-eval adds what a second --model_args says to the first."""
    if harness == "evalscope":
        # Transformers loads an adapter together with its base model; the tokenizer lies beside it.
        return ["--model", model.get("adapter") or model["name"]]
    if not model["name"]:
        return []
    engine = next((word.partition("=")[2] for word in words if word.startswith("--model=")), "hf")
    if any(part in engine for part in BY_NAME):
        return ["--model_args", json.dumps({"model": model["name"]})]
    found = {"pretrained": model["name"]}
    if "adapter" in model:
        if engine in ("vllm", "sglang"):
            found["lora_local_path"] = model["adapter"]
        else:
            found["peft"] = model["adapter"]
            if (Path(model["adapter"]) / "tokenizer_config.json").exists():
                found["tokenizer"] = model["adapter"]
    return ["--model_args", json.dumps(found)]


# What lm-eval wrote


def newest(pattern: str) -> list[Path]:
    return sorted(HARNESS.rglob(pattern), key=lambda path: path.stat().st_mtime)


def lm_eval_rows() -> Iterator[Row]:
    """Each task and metric of the newest results file. Keys are `metric,filter`."""
    files = newest("results_*.json")
    document = json.loads(files[-1].read_bytes()) if files else {}
    for task, found in document.get("results", {}).items():
        count = document.get("n-samples", {}).get(task, {}).get("effective", found.get("sample_len"))
        about: Row = {}
        if isinstance(document.get("n-shot", {}).get(task), int):
            about["fewshot"] = document["n-shot"][task]
        if document.get("versions", {}).get(task) is not None:
            about["task_version"] = str(document["versions"][task])
        for key, value in found.items():
            metric, comma, way = key.partition(",")
            if not comma or metric.endswith("_stderr"):
                continue
            if not is_number(value):
                say(f"{task} {metric}: {value!r} is no score")
                continue
            spread = found.get(f"{metric}_stderr,{way}")
            row = {
                "task": task,
                "metric": metric,
                "value": value,
                "n": count if isinstance(count, int) else None,
            }
            row["stderr"] = spread if is_number(spread) else None
            yield {**row, **about, **({"filter": way} if way != "none" else {})}


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def lm_eval_answers() -> Iterator[tuple[str, str, str, str]]:
    """(task, question, answer, reference) of everything that was written, once per question."""
    for path in newest("samples_*.jsonl"):
        task = path.name.removeprefix("samples_").rpartition("_")[0]
        seen = set()
        for line in path.read_text("utf-8").splitlines():
            sample = json.loads(line)
            asked = sample.get("arguments", {}).get("gen_args_0", {})
            # A generation has its settings beside the question; a comparison of given answers has not.
            if not isinstance(asked.get("arg_1"), dict) or sample["doc_id"] in seen:
                continue
            seen.add(sample["doc_id"])
            answer = sample["resps"][0][0]
            yield task, str(asked["arg_0"]), str(answer), str(sample.get("target", ""))


# What evalscope wrote


def evalscope_rows() -> Iterator[Row]:
    """Each task and metric of the reports. A metric that could not be calculated counts 0 there; it is
    left out."""
    for path in newest("reports/*/*.json"):
        document = json.loads(path.read_bytes())
        task = document["dataset_name"]
        reviews = list(reviewed(task))
        broken = {name.lower() for review in reviews for name in review["metadata"].get("metric_errors", {})}
        single = [review["value"] for review in reviews if len(review["value"]) == 1]
        for metric in document.get("metrics", []):
            identity = metric["identity"]
            name = ".".join(
                [identity["name"], *(str(item) for item in identity.get("dimensions", {}).values())]
            )
            if identity["name"].lower() in broken:
                say(f"{task} {name} could not be calculated and is left out: see {HARNESS}/reviews")
            elif is_number(metric["score"]):
                scores = [next(iter(value.values())) for value in single]
                row = {"task": task, "metric": name, "value": metric["score"], "n": metric["num"]}
                exact = len(document["metrics"]) == 1 and len(scores) == metric["num"] > 1
                yield {**row, "stderr": spread_of(scores) if exact else None}


def spread_of(scores: list[Any]) -> float | None:
    numbers = [float(score) for score in scores]
    return statistics.stdev(numbers) / math.sqrt(len(numbers))


def reviewed(task: str) -> Iterator[Row]:
    """The score of each question of a task: `value` and `metadata`, with its messages and target."""
    for path in newest("reviews/*/*.jsonl"):
        if path.stem == task or path.stem.startswith(f"{task}_"):
            for line in path.read_text("utf-8").splitlines():
                review = json.loads(line)
                score = review["sample_score"]["score"]
                yield {**review, "value": score.get("value") or {}, "metadata": score.get("metadata") or {}}


def evalscope_answers() -> Iterator[tuple[str, str, str, str]]:
    for path in newest("reports/*/*.json"):
        task = json.loads(path.read_bytes())["dataset_name"]
        for review in reviewed(task):
            messages = review.get("messages") or []
            asked = "\n".join(plain(m["content"]) for m in messages if m["role"] in ("system", "user"))
            said = [plain(m["content"]) for m in messages if m["role"] == "assistant"]
            target = review.get("target") or ""
            if said:
                yield (
                    task,
                    asked,
                    said[-1],
                    target if isinstance(target, str) else ", ".join(map(str, target)),
                )


def plain(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
    return str(content)


# The judge, and the curves


def judge_rows(answers: Iterator[tuple[str, str, str, str]]) -> list[Row]:
    if not Path("tuneport-judge.json").exists():
        return []
    from tuneport_judge import Judge

    judge = Judge.open()
    by_task: dict[str, list[tuple[str, str, str]]] = {}
    for task, question, answer, reference in answers:
        by_task.setdefault(task, []).append((question, answer, reference))
    if not by_task:
        say("nothing was written that a judge could score: these tasks compare given answers")
    rows: list[Row] = []
    with open(OUT / "judged.jsonl", "w", encoding="utf-8") as log:
        for task, items in by_task.items():
            questions, given, references = (list(column) for column in zip(*items, strict=True))
            results = judge.score(questions, given, references if judge.rubric.reference else None)
            for (question, answer, _), result in zip(items, results, strict=True):
                record: Row = {"task": task, "question": question, "answer": answer, "value": result.value}
                record |= {"points": dict(result.points), "reason": result.reason}
                log.write(json.dumps(record, ensure_ascii=False) + "\n")
            refused = sum(result.value is None for result in results)
            say(f"judge: {task}: {len(results) - refused} of {len(results)} replies could be taken")
            rows += judge.rows(task, results)
    return rows


def report(rows: list[Row], about: Row) -> None:
    try:
        reporter = import_module("tuneport_report")
    except ImportError:
        return
    reporter.init(about)
    for row in rows:
        way = f"/{row['filter']}" if "filter" in row else ""
        reporter.log({f"eval/{row['task']}/{row['metric']}{way}": row["value"]}, step=0)
    reporter.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
