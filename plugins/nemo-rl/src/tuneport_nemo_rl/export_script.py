"""Turns a checkpoint of NeMo-RL into a folder that transformers loads, with upstream's own converters.
No manifest: it is a program, shipped to the job as it stands.

TUNEPORT_CHECKPOINT: a `step_N` folder, or one that holds several, of which the newest is taken.
TUNEPORT_BACKEND: what trained it, `dtensor` or `megatron`; what the folder itself shows wins.
The result goes to TUNEPORT_OUTPUT_DIR.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys


def main() -> None:
    step = newest(os.environ["TUNEPORT_CHECKPOINT"])
    config, weights = os.path.join(step, "config.yaml"), os.path.join(step, "policy", "weights")
    for path in (config, weights):
        if not os.path.exists(path):
            sys.exit(f"tuneport: {path} is not there, so {step} is no checkpoint of NeMo-RL")
    iterations = sorted(name for name in os.listdir(weights) if name.startswith("iter_"))
    backend = "megatron" if iterations else os.environ.get("TUNEPORT_BACKEND", "dtensor")
    output = os.path.join(os.environ["TUNEPORT_OUTPUT_DIR"], "huggingface")
    if backend == "megatron":
        if not iterations:
            sys.exit(f"tuneport: {weights} has no iter_* folder, which Megatron writes")
        trained = os.path.join(weights, iterations[-1])
        words = adapters(trained, config)
        words = words or ["convert_megatron_to_hf.py", "--config", config, "--megatron-ckpt-path", trained]
    else:
        words = ["convert_dcp_to_hf.py", "--config", config, "--dcp-ckpt-path", weights]
    root = source_tree()
    converter = os.path.join(root, "examples", "converters", words[0])
    command = [sys.executable, converter, *words[1:], "--hf-ckpt-path", output]
    code = subprocess.run(command, cwd=root).returncode
    if code:
        sys.exit(code)
    if not os.path.isfile(os.path.join(output, "config.json")):
        sys.exit(f"tuneport: {words[0]} ended well and wrote no config.json to {output}")
    sys.stdout.write(f"{step} is in {output}\n")


def adapters(trained: str, config: str) -> list[str]:
    """How adapters of Megatron become a whole model: merged into the base that the release converted before
    training, as the checkpoint itself says; nothing where all weights were trained."""
    import yaml  # NeMo-RL brings it

    settings = os.path.join(trained, "run_config.yaml")
    if not os.path.isfile(settings):
        return []
    with open(settings, encoding="utf-8") as stream:
        said = yaml.safe_load(stream) or {}
    if not said.get("peft"):
        return []
    base = os.environ.get("TUNEPORT_BASE_CHECKPOINT") or (said.get("checkpoint") or {}).get(
        "pretrained_checkpoint"
    )
    base = base or ""
    if os.path.isdir(os.path.join(base, "iter_0000000")):
        base = os.path.join(base, "iter_0000000")
    if not os.path.isdir(base):
        sys.exit(
            f"tuneport: adapters go into the base as Megatron holds it, and {base or 'its place'} is not "
            "here: set TUNEPORT_BASE_CHECKPOINT to that folder (iter_0000000)"
        )
    with open(config, encoding="utf-8") as stream:
        name = yaml.safe_load(stream)["policy"]["model_name"]
    return ["convert_lora_to_hf.py", "--base-ckpt", base, "--adapter-ckpt", trained, "--hf-model-name", name]


def newest(folder: str) -> str:
    """The newest `step_N` below a folder, or the folder itself."""
    steps = [(int(m[1]), name) for name in os.listdir(folder) if (m := re.fullmatch(r"step_(\d+)", name))]
    return os.path.join(folder, max(steps)[1]) if steps else folder


def source_tree() -> str:
    named = os.environ.get("NEMO_RL_ROOT")
    if named:
        return named
    found = importlib.util.find_spec("nemo_rl")
    if found is None or not found.submodule_search_locations:
        sys.exit("tuneport: nemo_rl is not installed here; run in NeMo-RL's image, or set NEMO_RL_ROOT")
    return os.path.dirname(os.path.abspath(next(iter(found.submodule_search_locations))))


if __name__ == "__main__":
    main()
