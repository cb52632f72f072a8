"""Measures a checkpoint on images it was not trained on; Tuneport reads scores.json.

TUNEPORT_MODEL is a checkpoint or its folder. The images are those that training held out, or those of
TUNEPORT_VALIDATION_DATA (an .npz file with `images` and `labels`).
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import torch

import train


def main() -> None:
    place = Path(os.environ.get("TUNEPORT_MODEL", "output"))
    model, saved = train.load(place / "checkpoint.pt" if place.is_dir() else place)
    config, data = saved["config"], saved["data"]
    task, path = "held-out", os.environ.get("TUNEPORT_VALIDATION_DATA") or data["validation"]
    if path:
        task, (images, labels) = Path(path).stem, train.read_images(path)
    else:
        images, labels = train.read_splits(os.environ.get("TUNEPORT_TRAIN_DATA") or data["train"], None)[1]
    scaled = torch.from_numpy((images - config["mean"]) / config["std"])
    scores = train.evaluate(model, scaled, torch.from_numpy(labels))

    count, accuracy = int(scores["count"]), scores["accuracy"]
    error = math.sqrt(accuracy * (1 - accuracy) / count)
    rows = [
        {"task": task, "metric": "accuracy", "value": accuracy, "stderr": error, "n": count},
        {"task": task, "metric": "loss", "value": scores["loss"], "n": count},
    ]
    output = Path(os.environ.get("TUNEPORT_OUTPUT_DIR", "output"))
    output.mkdir(parents=True, exist_ok=True)
    (output / "scores.json").write_text(json.dumps({"scores": rows, "harness": "eval.py"}, indent=1))
    print(f"accuracy {accuracy:.2%} on {count} images")


if __name__ == "__main__":
    main()
