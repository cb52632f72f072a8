"""Gathers what can be known before the hooks run: the experiment's files, its scripts, its data and model.

Everything here reads; nothing is imported or executed. What cannot be seen from this machine comes from
`--facts FILE` or stays unknown, and a rule that needs it stays undecided.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from tuneport.errors import Invalid, NotFound, TuneportError
from tuneport.experiment import tables
from tuneport.experiment.yamlread import read_text, read_yaml
from tuneport.registry import store
from tuneport.registry.digest import sha256
from tuneport.types import EMPTY, Finding, Json, Location, Method, Request

IGNORED = {"__pycache__", ".git", ".venv", ".ipynb_checkpoints", ".DS_Store"}
MAX_FILES = 2_000
MAX_SCRIPTS = 200
MAX_BYTES = 256 * 1024 * 1024


def source_files(folder: Path) -> tuple[dict[str, str], list[Finding]]:
    """Relative name -> sha256 of every file that is shipped with the job, sorted; links are refused."""
    found: dict[str, str] = {}
    findings: list[Finding] = []
    total = 0
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in IGNORED)
        for name in sorted(files):
            path = Path(base) / name
            relative = path.relative_to(folder).as_posix()
            if name in IGNORED or name.endswith(".pyc"):
                continue
            if path.is_symlink() or not path.is_file():
                message = f"{relative} is a link or a special file and is not shipped with the job"
                findings.append(
                    Finding("source-link", "error", message, "copy the file here", relative, str(path))
                )
                continue
            if not _utf8(relative):
                message = f"the file name {relative!r} is not UTF-8"
                findings.append(Finding("source-name", "error", message, "rename it", "", str(folder)))
                continue
            total += path.stat().st_size
            if len(found) >= MAX_FILES or total > MAX_BYTES:
                message = f"the experiment folder holds more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB"
                hint = "keep data and checkpoints outside; name data with --train-data or as a dataset"
                findings.append(Finding("source-too-large", "error", message, hint, "", str(folder)))
                return found, findings
            try:
                found[relative] = "sha256:" + sha256(path.read_bytes()).hexdigest()
            except OSError as error:
                message = f"{relative} cannot be read: {error.strerror}"
                findings.append(
                    Finding("source-unreadable", "error", message, "check its mode", relative, str(path))
                )
        for name in folders:
            if (Path(base) / name).is_symlink():
                relative = (Path(base) / name).relative_to(folder).as_posix()
                message = f"{relative} is a link to a folder and is not shipped with the job"
                findings.append(
                    Finding("source-link", "error", message, "copy it here", relative, str(folder))
                )
    return found, findings


def _utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def gather(
    request: Request,
    folder: Path,
    declared: Mapping[str, Json],
    scripts: list[str],
    files: Mapping[str, str] = EMPTY,
) -> tuple[dict[str, Json], list[Finding]]:
    """Facts of a request, and notes about what is not on this machine.

    Args:
        declared: the content of a facts file; it wins over what is seen here.
        scripts: names of experiment files whose command-line flags are wanted.
        files: what `source_files` found in the folder.
    """
    facts: dict[str, Json] = {"data": {}, "model": {}, "env": {}, "scripts": {}}
    facts["topology"] = dict(declared.get("topology", {}))
    facts["functions"] = _functions(folder, files)
    findings: list[Finding] = []
    places: list[tuple[str, Location, Path]] = []
    for split, location in (("train", request.train_data), ("validation", request.validation_data)):
        if location is not None and location.kind == "dataset":
            path, missing = _in_dataset(location)
            if missing:
                hint = "it must be where the job runs: `tp dataset ls` lists what is here"
                findings.append(Finding("dataset-not-here", "note", missing, hint, f"--{split}-dataset"))
        else:
            path = local_path(location, folder)
        # What one of several files holds says little.
        if location is not None and path is not None and not location.others:
            places.append((split, location, path))
    tables.read_ahead(path for _, _, path in places)
    for split, location, path in places:
        flag = f"--{split}-data"
        if not os.path.exists(path):  # also where the name is longer than a name may be
            message = f"{flag} {location.value} is not on this machine"
            findings.append(Finding("data-not-here", "note", message, "it must be where the job runs", flag))
        elif path.is_file() or (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
            table = dict(tables.read(path))
            findings += _unread(flag, location.value, path, table)
            facts["data"][split] = {"path": str(path), **table}
    model = local_path(request.model, folder)
    if model is not None and request.model is not None:
        if not os.path.exists(model):
            message = f"--model {request.model.value} is not on this machine"
            findings.append(
                Finding("model-not-here", "note", message, "it must be where the job runs", "--model")
            )
        elif (model / "config.json").is_file():
            facts["model"] = _model(model / "config.json")
    for name in scripts:
        if (folder / name).is_file():
            facts["scripts"][name] = _script(folder / name, name)
    for group in ("data", "model", "env"):
        facts[group] = {**facts[group], **declared.get(group, {})}
    for short in ("val", "eval"):  # as facts files also call it
        if short in facts["data"]:
            facts["data"].setdefault("validation", facts["data"].pop(short))
    return facts, findings


def _unread(flag: str, name: str, path: Path, table: dict[str, Json]) -> list[Finding]:
    """A warning about data that cannot be read; `broken` is taken out of what is known of it."""
    broken = table.pop("broken", None)
    if broken is not None:
        where = "row" if tables.kind(path) == ".json" else "line"
        message = f"{flag} {name}, {where} {broken[0]}: {broken[1]}"
        return [Finding("data-broken", "warning", message, f"mend the {where}, or drop it", flag)]
    if table.get("rows") == 0:
        message = f"{flag} {name} has no rows"
        return [Finding("data-empty", "warning", message, "look whether it is the right file", flag)]
    if (tables.kind(path) in tables.KINDS or path.is_dir()) and not table:
        kind = "a saved dataset" if path.is_dir() else tables.kind(path).removeprefix(".")
        message = f"{flag} {name} cannot be read as {kind}"
        hint = "look whether the file is whole, UTF-8, and what its name says"
        return [Finding("data-unreadable", "warning", message, hint, flag)]
    return []


def other_models(
    method: Method, params: Mapping[str, Json], config: Json, folder: Path, declared: Mapping[str, Json]
) -> dict[str, Json]:
    """Facts of the models that keys name beside the trained one: what the method calls them -> facts.

    Args:
        config: the content of config.yaml; a parameter of the request wins over it.
    """
    found: dict[str, Json] = {}
    for name, key in method.spec.get("models", {}).items():
        given = next((v for p, v in params.items() if key in method.params[p].keys), None)
        value = given if given is not None else config.get(key) if isinstance(config, dict) else None
        path = folder / value / "config.json" if isinstance(value, str) and "\0" not in value else None
        seen = _model(path) if path is not None and os.path.isfile(path) else {}
        found[name] = {**seen, **declared.get(name, {})}
    return found


def _in_dataset(location: Location) -> tuple[Path | None, str]:
    """Where a dataset's file is on this machine; None and why where its version is not here."""
    from tuneport.datasets import locate

    try:
        return locate(location.owner) / location.value, ""
    except TuneportError as error:
        return None, error.message


def local_path(location: Location | None, folder: Path) -> Path | None:
    """Where this machine would find a location; None where the framework looks it up elsewhere."""
    if location is None or location.kind in ("hub", "dataset", "run"):
        return None
    return folder / location.value if location.kind == "experiment" else Path(location.value)


def read_declared(path: Path) -> dict[str, Json]:
    """A `--facts` file, checked.

    Raises:
        Invalid, NotFound: it breaks its schema or is not there.
    """
    from tuneport.registry import schemas

    document = read_yaml(path)
    findings = document.findings or schemas.check(document, "facts", "facts-schema")
    if findings:
        raise Invalid(f"the facts file {path} is broken", code="facts-broken", findings=findings)
    declared: dict[str, Json] = document.data
    return declared


def _functions(folder: Path, files: Mapping[str, str]) -> dict[str, Json]:
    """The functions at the top of each Python file of the experiment, by file and name; kept as YAML is."""
    key = sorted([name, digest] for name, digest in files.items() if name.endswith(".py"))[:MAX_SCRIPTS]
    place = f"functions-{store.hash_text(str(folder)):x}"
    kept = store.load(place, key) if key else None
    if isinstance(kept, dict):
        return kept
    from tuneport.experiment.functions import read_functions

    found: dict[str, Json] = {name: read_functions(folder / name) for name, _ in key}
    if key:
        store.save(place, key, found)
    return found


def _model(path: Path) -> dict[str, Json]:
    try:
        config = json.loads(read_text(path))
    except (ValueError, RecursionError, Invalid, NotFound):
        return {}
    if not isinstance(config, dict):
        return {}
    kept = {key: value for key, value in config.items() if isinstance(value, str | int | float | bool)}
    return {**kept, **{key: config[key] for key in _ROTARY if _stretches(config.get(key))}}


_ROTARY = ("rope_scaling", "rope_parameters")  # transformers 4 and 5, modeling_rope_utils.py


def _stretches(rotary: Json) -> bool:
    """Whether rotary embeddings, of all layers or some, are made for more positions than the model says."""
    if not isinstance(rotary, dict):
        return False
    return "factor" in rotary or "long_factor" in rotary or any(map(_stretches, rotary.values()))


def _script(path: Path, name: str) -> dict[str, Json]:
    from tuneport.experiment.scripts import read_flags

    try:
        flags: dict[str, Json] = dict(read_flags(read_text(path), name))
    except Invalid as error:
        return {
            "ok": False,
            "complete": False,
            "strict": False,
            "error": error.message,
            "error_line": 0,
            "flags": {},
        }
    return flags
