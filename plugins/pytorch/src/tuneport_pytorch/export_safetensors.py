"""Runs inside a job: a checkpoint of torch.save becomes model.safetensors and config.json.
No manifest: it is a program, shipped to the job as it stands.

TUNEPORT_CHECKPOINT is a file, or a folder that holds `checkpoint.pt` or a single .pt, .pth or .ckpt file.
It may be a state dict, or a mapping with one under `model`, `state_dict` or `model_state_dict`; a mapping
under `config` is written beside the weights. Nothing of a checkpoint is executed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_SUFFIXES = (".pt", ".pth", ".ckpt")
_WEIGHTS = ("model", "state_dict", "model_state_dict")


def main() -> None:
    """Convert, read the result back and compare.

    Raises:
        SystemExit: with one line that says what is wrong.
    """
    import torch  # type: ignore[import-not-found,unused-ignore]
    from safetensors.torch import (  # type: ignore[import-not-found,unused-ignore]
        load_file,
        save_file,
    )

    source = find(Path(os.environ["TUNEPORT_CHECKPOINT"]))
    output = Path(os.environ["TUNEPORT_OUTPUT_DIR"])
    try:
        checkpoint = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or hostile file provokes
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise problem(f"{source} is no checkpoint of tensors and plain data: {reason[0]}") from None
    weights = weights_of(checkpoint, source)
    # Tensors that share memory would be refused: each gets its own.
    weights = {name: tensor.contiguous().clone() for name, tensor in weights.items()}
    output.mkdir(parents=True, exist_ok=True)
    draft = output / "model.safetensors.draft"
    save_file(weights, draft, metadata={"format": "pt"})
    again = load_file(draft)
    if set(again) != set(weights) or not all(same(again[name], weights[name]) for name in weights):
        raise problem("the file that was written does not read back as the checkpoint")
    draft.replace(output / "model.safetensors")
    config = checkpoint.get("config")
    if isinstance(config, dict):
        (output / "config.json").write_text(json.dumps(config, indent=1, default=str) + "\n", "utf-8")
    count = sum(tensor.numel() for tensor in weights.values())
    print(f"{len(weights)} tensors, {count:,} numbers from {source.name} to model.safetensors")  # noqa: T201


def find(place: Path) -> Path:
    """The checkpoint file at or in `place`."""
    if place.is_file():
        return place
    if not place.is_dir():
        raise problem(f"there is no checkpoint at {place}")
    if (place / "checkpoint.pt").is_file():
        return place / "checkpoint.pt"
    found = sorted(path for path in place.iterdir() if path.suffix in _SUFFIXES and path.is_file())
    if len(found) == 1:
        return found[0]
    names = ", ".join(path.name for path in found[:10])
    several = f"{place} holds several checkpoints, name one: {names}"
    raise problem(several if found else f"there is no .pt, .pth or .ckpt file in {place}")


def weights_of(checkpoint: Any, source: Path) -> dict[str, Any]:
    """The state dict in what torch.load returned."""
    import torch

    candidates = [checkpoint]
    if isinstance(checkpoint, dict):
        candidates = [checkpoint[name] for name in _WEIGHTS if isinstance(checkpoint.get(name), dict)]
        candidates.append(checkpoint)
    for weights in candidates:
        values = list(weights.values()) if isinstance(weights, dict) else []
        if values and all(isinstance(value, torch.Tensor) for value in values):
            return dict(weights)
    raise problem(f"{source} has no weights: neither a state dict nor one under {', '.join(_WEIGHTS)}")


def same(one: Any, other: Any) -> bool:
    """Equal in type, shape and every bit that counts; NaN equals NaN."""
    import torch

    return one.dtype == other.dtype and bool(torch.equal(torch.nan_to_num(one), torch.nan_to_num(other)))


def problem(message: str) -> SystemExit:
    """To be raised: ends the job with one line."""
    return SystemExit(f"export: {message}")


if __name__ == "__main__":
    main()
