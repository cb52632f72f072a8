"""A request that a method compiles with, found without a person: what the conformance kit compiles.

Model and data are named where the method takes them, and the first hardware that it fits on is used. Where a
method needs more, `requests.yaml` beside its `framework.yaml` says it: method id -> request flags, where
`resources` may hold what such a file holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tuneport import api
from tuneport.errors import TuneportError
from tuneport.experiment.findings import findings_text
from tuneport.experiment.yamlread import read_yaml
from tuneport.registry import catalog
from tuneport.registry.sources import framework_folders
from tuneport.types import Json
from tuneport.workflow import Report

HARDWARE = ("h200:8", "h200:1", "cpu:1", "h200:16", "h200:32")
GIVEN = {"model": "org/model", "train_data": "/data/train.jsonl", "validation_data": "/data/validation.jsonl"}


def find(experiment: api.Experiment, method_id: str, release: str) -> tuple[dict[str, Any], Report]:
    """(request keywords, its report without an error).

    Raises:
        AssertionError: no request compiles; the findings of the first are in the message.
    """
    method = catalog.method(method_id, release)
    bind = method.spec.get("bind", {})
    base: dict[str, Any] = {name: value for name, value in GIVEN.items() if name in bind}
    base |= declared(method.framework).get(method_id, {})
    if isinstance(base.get("resources"), dict):
        file = experiment.path.parent.parent / f"resources-{experiment.name}.yaml"
        file.write_text(json.dumps(base["resources"]), "utf-8")
        base["resources"] = str(file)
    said = ""
    for hardware in (base.get("profile"),) if {"profile", "resources"} & base.keys() else HARDWARE:
        request = {**base, "profile": hardware} if hardware else base
        report = experiment.validate(**request)
        if report.ok and report.compiled is not None and report.compiled.plan is not None:
            return request, report
        said = said or f"{request}: {findings_text(report.findings).strip()}"
    raise AssertionError(f"no request compiles; the first, {said}")


@cache
def declared(framework: str) -> Mapping[str, Mapping[str, Json]]:
    """What the sources of a framework say their methods need."""
    found: dict[str, Mapping[str, Json]] = {}
    for source in framework_folders().get(framework, ()):
        path = Path(source.folder) / framework / "requests.yaml"
        if path.is_file():
            document = read_yaml(path)
            if document.findings or not isinstance(document.data, dict):
                raise TuneportError(f"{path}: {findings_text(document.findings)}", code="requests-broken")
            found |= document.data
    return found
