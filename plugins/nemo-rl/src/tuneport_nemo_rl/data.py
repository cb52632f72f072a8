"""How training and validation data reach the release's datasets.
No manifest: a location binds one key; here it chooses a class as well, and what gives way to it.

A file, a folder or a dataset of the hub is loaded by a class that the configuration names. What the release's
files say of their own datasets (another validation set, splits) has to give way with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from tuneport.compiler.adapter import location_value
from tuneport.types import Context, Finding, Json, Location

_FILES = (".arrow", ".csv", ".json", ".jsonl", ".parquet", ".txt")
SPLIT = 0.05
"""Share of the training rows that is set aside where no validation data is given; upstream's own share."""


def values(context: Context) -> dict[str, Json]:
    """Native keys for the request's data; what the user set stays."""
    train, validation = context.request.train_data, context.request.validation_data
    found: dict[str, Json] = {}
    if train is not None:
        found |= _source(context, "data.train", train)
    if validation is not None:
        found |= _source(context, "data.validation", validation)
        if not _placed(context, "data.train"):
            found["data.train.split_validation_size"] = 0
    elif train is not None:
        found |= _aside(context)
    if _pairs(context):
        found.pop("data.train.split_validation_size", None)
    mine = {key for key, origin in context.origins.items() if origin.layer not in ("method defaults",)}
    owned = ("data.train.data_path", "data.validation.data_path")
    return {key: value for key, value in found.items() if key in owned or key not in mine}


def check(context: Context) -> Iterator[Finding]:
    """Findings about data that cannot be read as asked."""
    if context.linted:
        return
    for flag, location in (
        ("--train-data", context.request.train_data),
        ("--validation-data", context.request.validation_data),
    ):
        if location is not None and location.others:
            message = f"{flag} names {len(location.others) + 1} files, and the release reads one"
            yield Finding("nemo-rl-several-files", "error", message, "give one file or folder", flag)


def _source(context: Context, section: str, location: Location) -> dict[str, Json]:
    """The class, the place and the split of one dataset. A file of the release that has a place there, too,
    names a class that reads such a file."""
    if _placed(context, section):
        return {f"{section}.data_path": location_value(location)}
    found: dict[str, Json] = {
        f"{section}.dataset_name": "BinaryPreferenceDataset" if _pairs(context) else "ResponseDataset",
        f"{section}.data_path": location_value(location),
    }
    if section == "data.train" or _is_file(location):
        found[f"{section}.split"] = "train"  # the one split that a file has
    return found


def _aside(context: Context) -> dict[str, Json]:
    """Training data alone: some of its rows are set aside, where the release can do that, and otherwise
    nothing is validated."""
    said = any(key.startswith("data.validation.") for key in context.own)
    if said or _placed(context, "data.train") or _placed(context, "data.validation"):
        return {}
    section = str(context.method.spec["entry"]).rpartition("run_")[2]
    if not _pairs(context):
        return {"data.validation": None, "data.train.split_validation_size": SPLIT}
    return {
        "data.validation": None,
        f"{section}.val_period": 0,
        f"{section}.val_at_start": False,
        "checkpointing.metric_name": None,
    }


def _placed(context: Context, section: str) -> bool:
    """Whether the release's own file says where this data lies."""
    key = context.release.keys.get(f"{section}.data_path")
    return key is not None and not key.add


def _is_file(location: Location) -> bool:
    return location.kind != "hub" and PurePosixPath(location.value).suffix.lower() in _FILES


def _pairs(context: Context) -> bool:
    """Whether the method learns from pairs of answers."""
    return "chosen_column" in context.method.params
