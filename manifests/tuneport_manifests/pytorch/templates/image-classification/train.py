"""Trains an image classifier, one process per device. This file is yours: change the model and the data.

What a person may set is a flag in `arguments`; every flag can be set in config.yaml under the same name.
Without --data it learns the 1,797 handwritten digits (8 x 8 pixels) that come with scikit-learn.
Outside a job:  torchrun --standalone --nproc_per_node=2 train.py --epochs=3
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training images")
    parser.add_argument("--max_steps", type=int, help="end after this many optimizer steps")
    parser.add_argument("--batch_size", type=int, default=64, help="images per step, over all processes")
    parser.add_argument("--learning_rate", type=float, default=0.003)
    parser.add_argument("--lr_schedule", choices=["constant", "cosine"], default="constant")
    parser.add_argument("--optimizer", choices=["adamw", "sgd"], default="adamw")
    parser.add_argument("--weight_decay", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.9, help="for sgd")
    parser.add_argument("--grad_clip", type=float, default=0.0, help="largest gradient norm; 0 is off")
    parser.add_argument("--mixed_precision", choices=["none", "bf16"], default="none")
    parser.add_argument("--width", type=int, default=32, help="channels of the first layer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_every", type=int, default=10, help="steps between two points of train/loss")
    parser.add_argument("--data", help=".npz file with `images` (N, H, W) or (N, C, H, W) and `labels` (N)")
    parser.add_argument("--validation_data", help="the same, to measure on; otherwise a quarter is held out")
    args = parser.parse_args()
    for name in ("epochs", "batch_size", "width", "log_every"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return args


class Classifier(nn.Module):
    """Two convolutions and two linear layers; takes images of any size."""

    def __init__(self, channels: int, classes: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(4),
            nn.Flatten(),
            nn.Linear(2 * width * 16, 4 * width),
            nn.ReLU(),
            nn.Linear(4 * width, classes),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


def read_images(path: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Images as float32 (N, C, H, W) and labels as int64 (N)."""
    if path is None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        images, labels = digits.images, digits.target
    else:
        with np.load(path, allow_pickle=False) as file:
            images, labels = file["images"], file["labels"]
    images = np.asarray(images, dtype=np.float32)
    return (images[:, None] if images.ndim == 3 else images), np.asarray(labels, dtype=np.int64)


def read_splits(train: str | None, validation: str | None) -> tuple[tuple, tuple]:
    """(images, labels) to train on and (images, labels) to measure on; the split never depends on a seed."""
    images, labels = read_images(train)
    if validation is not None:
        return (images, labels), read_images(validation)
    from sklearn.model_selection import train_test_split

    split = train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)
    return (split[0], split[2]), (split[1], split[3])


@torch.no_grad()
def evaluate(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    """Loss and accuracy over all images. Each process takes its share, and their sums are added up."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    device = next(model.parameters()).device
    sums = torch.zeros(3, dtype=torch.float64, device=device)
    model.eval()
    mine = torch.arange(rank, len(images), world)
    for chosen in mine.split(512):
        logits, target = model(images[chosen].to(device)), labels[chosen].to(device)
        loss = functional.cross_entropy(logits, target, reduction="sum")
        hits = (logits.argmax(1) == target).sum()
        sums += torch.stack([loss.double(), hits.double(), torch.tensor(float(len(target)), device=device)])
    model.train()
    if world > 1:
        dist.all_reduce(sums)
    loss, hits, count = sums.tolist()
    return {"loss": loss / count, "accuracy": hits / count, "count": count}


def train(args: argparse.Namespace, device: torch.device) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    (images, labels), (held_images, held_labels) = read_splits(args.data, args.validation_data)
    mean, std = float(images.mean()), float(images.std()) or 1.0
    images, held_images = (torch.from_numpy((part - mean) / std) for part in (images, held_images))
    labels, held_labels = torch.from_numpy(labels), torch.from_numpy(held_labels)
    shape = {"channels": images.shape[1], "classes": int(labels.max()) + 1, "width": args.width}

    torch.manual_seed(args.seed)
    model = Classifier(**shape).to(device)
    parallel = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    if args.optimizer == "sgd":
        optimizer = torch.optim.SGD(
            model.parameters(), args.learning_rate, momentum=args.momentum, weight_decay=args.weight_decay
        )
    else:
        optimizer = torch.optim.AdamW(model.parameters(), args.learning_rate, weight_decay=args.weight_decay)
    steps = args.epochs * -(-len(images) // args.batch_size)
    steps = min(steps, args.max_steps or steps)
    scheduler = None
    if args.lr_schedule == "cosine":
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    mixed = args.mixed_precision == "bf16"
    precision = torch.autocast(device.type, torch.bfloat16) if mixed else nullcontext()

    # Only the first process writes; the others pass every line that all of them must reach together.
    first = rank == 0
    output = Path(os.environ.get("TUNEPORT_OUTPUT_DIR", "output"))
    writer = None
    if first:
        from torch.utils.tensorboard import SummaryWriter

        output.mkdir(parents=True, exist_ok=True)
        writer = SummaryWriter(os.environ.get("TUNEPORT_LOG_DIR", str(output / "tensorboard")))
        counts = f"{len(images)} images to train on, {len(held_images)} to measure on"
        print(f"{counts}, {world} processes on {device.type}", flush=True)

    step, since, started = 0, torch.zeros(2, dtype=torch.float64, device=device), time.monotonic()
    for epoch in range(args.epochs):
        shuffle = torch.Generator().manual_seed(args.seed * 10_000 + epoch)  # the same in every process
        for batch in torch.randperm(len(images), generator=shuffle).split(args.batch_size):
            if step >= steps:
                break
            mine = batch[rank::world]
            with precision:
                logits = parallel(images[mine].to(device))
                total = functional.cross_entropy(logits.float(), labels[mine].to(device), reduction="sum")
            # Gradients are averaged over the processes: so this is the mean over the batch, however shared.
            (total * world / len(batch)).backward()
            if args.grad_clip:
                nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
            rate = optimizer.param_groups[0]["lr"]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if scheduler is not None:
                scheduler.step()
            step += 1
            since += torch.stack([total.detach().double(), torch.tensor(float(len(mine)), device=device)])
            if step % args.log_every == 0 or step == steps:
                dist.all_reduce(since)
                loss = (since[0] / since[1]).item()
                since.zero_()
                if writer is not None:
                    writer.add_scalar("train/loss", loss, step)
                    writer.add_scalar("train/learning_rate", rate, step)
                if loss != loss:
                    if writer is not None:
                        writer.close()
                    raise SystemExit(f"the loss is not a number at step {step}: try a smaller learning_rate")
        scores = evaluate(model, held_images, held_labels)
        if writer is not None:
            writer.add_scalar("validation/loss", scores["loss"], step)
            writer.add_scalar("validation/accuracy", scores["accuracy"], step)
            writer.flush()
            config = {**shape, "mean": mean, "std": std}
            source = {"train": args.data, "validation": args.validation_data}
            save(output / "checkpoint.pt", model, config=config, data=source, epoch=epoch + 1, scores=scores)
            print(
                f"epoch {epoch + 1}/{args.epochs}  step {step}  validation loss {scores['loss']:.4f}"
                f"  accuracy {scores['accuracy']:.2%}  {time.monotonic() - started:.1f} s",
                flush=True,
            )
        if step >= steps:
            break
    if writer is not None:
        writer.close()
    dist.barrier()


def save(path: Path, model: nn.Module, **more: object) -> None:
    """Write the checkpoint whole or not at all."""
    draft = path.with_suffix(".draft")
    torch.save({"model": {name: tensor.cpu() for name, tensor in model.state_dict().items()}, **more}, draft)
    draft.replace(path)


def load(path: Path) -> tuple[Classifier, dict]:
    """The classifier of a checkpoint, and what `save` wrote beside it."""
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    config = checkpoint["config"]
    model = Classifier(config["channels"], config["classes"], config["width"])
    model.load_state_dict(checkpoint.pop("model"))
    return model, checkpoint


def main() -> None:
    args = arguments()
    accelerated = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if accelerated else torch.device("cpu")
    if accelerated:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if accelerated else "gloo")
    try:
        train(args, device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
