"""Turns a verl checkpoint into a Hugging Face folder with verl's own merger. Runs inside the job.
No manifest: it is a program, shipped to the job as it stands.

Reads TUNEPORT_CHECKPOINT (a run's output, a global_step_N folder, or its actor folder), TUNEPORT_BACKEND
(fsdp or megatron) and writes to TUNEPORT_OUTPUT_DIR.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

MARKS = {"fsdp": "fsdp_config.json", "megatron": "transformer_config.json"}


def main() -> int:
    given, backend = Path(os.environ["TUNEPORT_CHECKPOINT"]), os.environ["TUNEPORT_BACKEND"]
    folder = find(given)
    if folder is None:
        sys.exit(f"tuneport: {given} holds no verl checkpoint: neither global_step_N nor its actor folder")
    sys.stdout.write(f"tuneport: merging {folder}\n")
    sys.stdout.flush()
    other = next((name for name, mark in MARKS.items() if name != backend and (folder / mark).exists()), "")
    if other and not (folder / MARKS[backend]).exists():
        sys.exit(f"tuneport: {folder} was written by {other}: give --checkpoint-format verl-{other}")
    if backend == "fsdp" and not (folder / MARKS[backend]).exists():
        sys.exit(
            f"tuneport: {folder} has no {MARKS[backend]}, which the merger needs: an older release wrote it"
        )
    words = ["-m", "verl.model_merger", "merge", "--backend", backend, "--local_dir", str(folder)]
    words += ["--target_dir", os.environ["TUNEPORT_OUTPUT_DIR"]]
    if os.environ.get("TUNEPORT_TRUST_REMOTE_CODE"):
        words.append("--trust-remote-code")
    return subprocess.run([sys.executable, *words]).returncode


def find(given: Path) -> Path | None:
    """The folder with the shards: as given, or the newest one below."""
    for folder in (given, given / "actor"):
        marked = any((folder / mark).exists() for mark in MARKS.values())
        if marked or any(folder.glob("*world_size_*_rank_*.pt")):
            return folder
    steps = {
        int(found[1]): path
        for path in given.glob("global_step_*")
        if (found := re.fullmatch(r"global_step_(\d+)", path.name))
    }
    return find(steps[max(steps)]) if steps else None


if __name__ == "__main__":
    sys.exit(main())
