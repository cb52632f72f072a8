"""No false alarm: what TRL publishes of supervised fine-tuning gets no error from us.

The invocations are upstream's and lie beside the repository (CI has them); elsewhere these tests say that
they were skipped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tuneport import api
from tuneport.experiment.create import new_project
from tuneport.registry import catalog

CORPUS = Path(__file__).parents[2] / "shared" / "corpus" / "accept" / "trl"
# The launcher's and the configuration file's flags: not keys of the training script.
LAUNCHER = {"num_processes", "accelerate_config", "config_file", "config"}
# Published, and refused by the release that publishes it: the flag was removed from the script.
REFUSED = {"docs-source-distributing_training-b7": "max_seq_length"}


def records() -> list[Path]:
    found = []
    for path in sorted(CORPUS.glob("*.json")):
        entry = json.loads(path.read_text("utf-8"))["entry"]
        if entry == "trl sft" or entry.endswith("trl/scripts/sft.py"):
            found.append(path)
    return found


def settings(args: list[str], keys: dict[str, Any]) -> dict[str, Any]:
    """What a list of flags sets, typed as the surface says the parser types it."""
    found: dict[str, Any] = {}
    words = list(args)
    while words:
        name, equals, value = words.pop(0).removeprefix("--").partition("=")
        values = [value] if equals else []
        while not equals and words and not words[0].startswith("--"):
            values.append(words.pop(0))
        types = keys[name].types if name in keys else ("any",)
        typed = [typed_as(text, types) for text in values]
        found[name] = True if not values else (values if "list" in types else typed[0])
    return found


def typed_as(text: str, types: tuple[str, ...]) -> Any:
    if "bool" in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind, convert in (("int", int), ("float", float)):
        if kind in types:
            try:
                return convert(text)
            except ValueError:
                continue
    return json.loads(text) if "dict" in types and text.startswith("{") else text


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of upstream invocations is not here")
@pytest.mark.parametrize("release", ["1.10.0", "1.16.0"])
def test_published_invocations_get_no_error(tmp_path: Path, release: str) -> None:
    project = api.open_project(new_project(tmp_path / "project"))
    keys = catalog.release("trl", release, "trl.scripts.sft").keys
    experiment = project.new("published", "trl/sft", release)
    judged = 0
    for path in records():
        given = settings(json.loads(path.read_text("utf-8"))["args"], dict(keys))
        if "config" in given:
            continue  # the rest is in a file that the corpus does not have
        model, data = given.pop("model_name_or_path", "org/model"), given.pop("dataset_name", "org/data")
        config = {name: value for name, value in given.items() if name not in {*LAUNCHER, "output_dir"}}
        (experiment.path / "config.yaml").write_text(json.dumps(config), "utf-8")
        report = experiment.validate(model=model, train_data=data, profile="h200:8")
        errors = {finding.key for finding in report.findings if finding.severity == "error"}
        refused = REFUSED.get(path.stem.partition("~")[0])
        assert errors == ({refused} if refused else set()), f"{path.name}: {report.findings}"
        judged += 1
    assert judged >= 8
