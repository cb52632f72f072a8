"""How training and validation data reach TRL's scripts.
No manifest: it may bind a location to a key, and has no words for a file made from the request's.

A script loads one thing by name: a dataset of the hub, or a local folder, and takes its splits. Loose
files therefore get a folder with nothing in it but the list of splits and files that the `datasets`
library reads (`.huggingface.yaml`), which holds for any format, and for a file per split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from glob import escape
from pathlib import PurePosixPath

from tuneport.compiler.adapter import location_value
from tuneport.types import Context, FileSpec, Finding, Json, Location, Ref

FOLDER = "tuneport-data"
_SPLIT = re.compile(r"\w+(\.\w+)*\Z")
_FORMATS = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".txt": "text",
}
_SOURCE = "datasets 5.2.0 datasets/load.py, LocalDatasetModuleFactory.get_module"
_SCRIPT = "trl/scripts/sft.py, main"


def file_format(location: Location) -> str:
    """The format of a single data file; empty for a folder, a hub dataset or a kind that is not known."""
    if location.kind == "hub":
        return ""
    suffixes = PurePosixPath(location.value).suffixes
    if suffixes and suffixes[-1] in (".gz", ".bz2", ".xz", ".zst"):
        suffixes = suffixes[:-1]
    return _FORMATS.get(suffixes[-1].lower(), "") if suffixes else ""


def dataset_name(context: Context) -> Json:
    """What `dataset_name` must be for the request's data; None where the request has none."""
    train = context.request.train_data
    if train is None:
        return None
    return Ref("work_dir", f"/{FOLDER}") if file_format(train) else location_value(train)


def files(context: Context) -> dict[str, FileSpec]:
    """The folder that lists loose data files by split; nothing where the data needs none."""
    train, validation = context.request.train_data, context.request.validation_data
    if train is None or not file_format(train):
        return {}
    splits = [(_split(context, "dataset_train_split"), train)]
    if validation is not None:
        splits.append((_split(context, "dataset_test_split"), validation))
    listed = [{"split": split, "path": _pattern(location)} for split, location in splits]
    content = {"configs": [{"config_name": "default", "data_files": listed}]}
    return {f"{FOLDER}/.huggingface.yaml": FileSpec("yaml", content)}


def check(context: Context) -> Iterator[Finding]:
    """Findings about data that the script could not be given, or would not read."""
    train, validation = context.request.train_data, context.request.validation_data
    if context.linted and not context.config.get("datasets"):
        yield from _file_named(context.config.get("dataset_name"))
    if train is None or context.config.get("datasets"):  # rules say that no data, or a mixture, is read
        return
    if validation is not None:
        yield from _pair(context, train, validation)
    elif file_format(train) and _evaluates(context):
        yield _error(
            "trl-validation-missing",
            "evaluation is on, and a single training file has no rows to evaluate on",
            "give --validation-data, or set eval_every to 0",
            "eval_strategy",
            _SCRIPT,
        )
    if file_format(train):
        yield from _names(context)


def _file_named(name: Json) -> Iterator[Finding]:
    """A file where the scripts take the name of a dataset: one of the hub, or a folder."""
    if not isinstance(name, str) or name.startswith("hf://") or not file_format(Location("path", name)):
        return
    # What is neither absolute nor has two parts might still be the name of somebody's dataset.
    path = name.startswith(("/", "./", "../", "~")) or "://" in name or name.count("/") > 1
    yield Finding(
        "trl-data-file",
        "error" if path else "warning",
        f"{name} is one file, and what is loaded by name is a dataset of the hub or a folder",
        "name its folder, or list files in a configuration file under `datasets`, by data_files",
        "dataset_name",
        source="datasets 5.2.0 datasets/load.py, dataset_module_factory",
    )


def _pair(context: Context, train: Location, validation: Location) -> Iterator[Finding]:
    kinds = file_format(train), file_format(validation)
    key = "--validation-data"
    if not kinds[0] and train != validation:
        yield _error(
            "trl-validation-elsewhere",
            "training data that is a folder or a hub dataset brings its own validation split",
            "give two files, or a folder with a file per split, and name the split in dataset_test_split",
            key,
            _SCRIPT,
        )
    elif kinds[0] and not kinds[1]:
        message = f"{validation.value} is not one file of a format that can be read beside {train.value}"
        yield _error("trl-validation-format", message, f"give one {kinds[0]} file", key, _SOURCE)
    elif kinds[0] != kinds[1]:
        message = f"training data is {kinds[0]} and validation data is {kinds[1]}"
        yield _error("trl-validation-format", message, "write both in one format", key, _SOURCE)
    if not _evaluates(context):
        message = "the validation data is not read while training, because evaluation is off"
        yield Finding("trl-validation-unread", "note", message, "set eval_every, or use it with tp eval", key)


def _names(context: Context) -> Iterator[Finding]:
    train, test = context.config.get("dataset_train_split"), context.config.get("dataset_test_split")
    if context.request.validation_data is not None and train == test:
        message = f"training and validation data would both be the split {train!r}"
        yield _error("trl-split-twice", message, "give dataset_test_split another name", "dataset_test_split")
    if context.own.get("dataset_config") is not None:
        message = "a file has no dataset configurations to choose from"
        yield _error("trl-file-config", message, "delete the line", "dataset_config", _SOURCE)


def _evaluates(context: Context) -> bool:
    return bool(context.config.get("eval_strategy", "no") != "no")


def _split(context: Context, key: str) -> str:
    name = context.config.get(key)
    fallback = "train" if key == "dataset_train_split" else "test"
    return name if isinstance(name, str) and _SPLIT.match(name) else fallback


def _pattern(location: Location) -> Json:
    """A path as the library reads it: a pattern, in which the signs of patterns must be quoted."""
    value = location_value(location)
    if isinstance(value, Ref):
        return Ref(value.ref, escape(value.suffix), value.name)
    return escape(value)


def _error(code: str, message: str, hint: str, key: str, source: str = "") -> Finding:
    return Finding(code, "error", message, hint, key, source=source)
