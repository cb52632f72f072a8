"""`python -m tuneport.upstream.adopt_proof FRAMEWORK RELEASE BASE OPTIONS`: the conformance of a draft.

Every method of the framework is held to the release that the draft started from: the surface has the keys
that it binds; what the templates write, and every parameter at its defaults, its bounds and each of its
choices, brings no error that the base does not bring; and its plan is the base's but for what the release
changes. Then the release's own parser is asked, where its runtime is installed, and commands that people
have are checked at both. The catalog is read as it is found, so the draft has to be in
TUNEPORT_MANIFEST_PATH. OPTIONS is JSON: `commands`, folders, and `install`. Prints JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuneport import api
from tuneport.compiler.plan import plan_to_json
from tuneport.errors import TuneportError
from tuneport.experiment.create import new_project
from tuneport.experiment.findings import findings_text
from tuneport.registry import catalog, surfaces
from tuneport.types import Finding, Json, LaunchPlan, Method, Param
from tuneport.upstream import adopt_commands, adopt_oracle

_DATA = ("/data/train.jsonl", "/data/train.parquet", "org/data")


def digests(framework: str, leave: str = "") -> dict[str, str]:
    """The recipe digest of every method at every release but one: what a lock holds on to."""
    found = {}
    for release in catalog.releases(framework):
        for method_id, _, problem in catalog.methods(framework):
            if release != leave and not problem:
                found[f"{method_id} {release}"] = catalog.recipe_digest(method_id, release)
    return found


def prove(
    framework: str, release: str, base: str, *, commands: Sequence[str] = (), install: bool = False
) -> dict[str, Json]:
    """What was found: `digests` of the other releases, `problems` of the manifests, rows of `methods` with
    `params`, `values`, `keys` (how many were tried), `errors` and `plan` (what differs from the base's), and
    what `adopt_commands` says of the `commands` and `adopt_oracle` of the release's own parser.

    Args:
        commands: folders of scripts.
        install: build the drafted runtime where it is not here.
    """
    rows = []
    compared = adopt_commands.compare(framework, release, base, commands)
    with tempfile.TemporaryDirectory() as scratch:
        root = new_project(Path(scratch) / "proof")
        os.chdir(root)
        project = api.open_project(root)
        for method_id, _, problem in catalog.methods(framework):
            if not problem:
                rows.append(_method(project, method_id, release, base))

        def planned(method_id: str, profile: str) -> LaunchPlan:
            name = method_id.replace("/", "-")
            places = (str(project.folder.experiments / f"{name}-{kind}") for kind in ("new", "base"))
            new, old = map(api.Experiment, places)
            return new.plan(**{**_request(old, catalog.method(method_id, release)), "profile": profile})

        answers = adopt_oracle.ask(framework, release, planned, install=install)
    problems = findings_text(catalog.problems(framework))
    return {
        "digests": digests(framework, release),
        "problems": problems,
        "methods": rows,
        "commands": compared.document(),
        "oracle": answers.document(),
    }


def _method(project: api.Project, method_id: str, release: str, base: str) -> dict[str, Json]:
    row: dict[str, Json] = {
        "method": method_id,
        "params": 0,
        "values": 0,
        "keys": 0,
        "errors": [],
        "plan": [],
    }
    name = method_id.replace("/", "-")
    try:
        method = catalog.method(method_id, release)
        new, old = (
            project.new(f"{name}-{kind}", method_id, v) for kind, v in (("new", release), ("base", base))
        )
        surface = surfaces.release(method.framework, release, method.spec.get("entry", ""))
        before = surfaces.release(method.framework, base, method.spec.get("entry", ""))
    except TuneportError as error:
        row["errors"] = [error.message]
        return row
    bound = {key: param.name for param in method.params.values() for key in param.keys}
    row["keys"] = len(bound)
    row["errors"] += [
        f"{param} writes {key}, which the surface does not have"
        for key, param in bound.items()
        if surface.keys and key not in surface.keys and key in before.keys
    ]
    given = _request(old, method)
    row["params"] = len(method.params)
    said: set[Finding] = set()  # what the defaults bring, every value brings as well: it is said once
    for label, params in _cases(method):
        row["values"] += 1
        worse = _worse(new, old, given, params)
        row["errors"] += [
            f"{label}: {one.code} {one.key}: {one.message}" for one in worse if _kind(one) not in said
        ]
        said |= {_kind(one) for one in worse} if not params else set()
    row["plan"] = _plans(new, old, given)
    return row


def _request(experiment: api.Experiment, method: Method) -> dict[str, Any]:
    """A request that the base has nothing to say against, if one of the plain ones is."""
    bind: Mapping[str, Mapping[str, Json]] = method.spec.get("bind", {})
    shared: dict[str, Any] = {"profile": "h200:8"}
    if "model" in bind:
        shared["model"] = "org/model"
    tried = []
    for place in _DATA:
        wanted = [name for name in ("train_data", "validation_data") if name in bind]
        data = {name: place for name in wanted if name == "train_data" or bind[name].get("required")}
        given = {**shared, **data}
        errors = [one for one in experiment.validate(**given).findings if one.severity == "error"]
        tried.append((len(errors), given))
        if not errors:
            break
    return min(tried, key=lambda item: item[0])[1]


def _cases(method: Method) -> Iterator[tuple[str, dict[str, Json]]]:
    yield "defaults", {}
    for param in method.params.values():
        for value in _values(param):
            yield f"{param.name}={json.dumps(value)}", {param.name: value}


def _values(param: Param) -> list[Json]:
    schema = param.schema
    found = [*schema.get("enum", ()), *schema.get("examples", ())]
    found += [schema[name] for name in ("const", "minimum", "maximum") if name in schema]
    if schema.get("type") == "boolean":
        found += [True, False]
    if param.has_default:
        found.append(param.default)
    unique: dict[str, Json] = {json.dumps(value): value for value in found}
    return list(unique.values())


def _worse(
    new: api.Experiment, old: api.Experiment, given: Mapping[str, Any], params: Mapping[str, Json]
) -> list[Finding]:
    """Errors that the new release brings and the base does not."""
    request = {**given, "set": dict(params)} if params else dict(given)
    said = [one for one in new.validate(**request).findings if one.severity == "error"]
    if not said:
        return []
    known = {_kind(one) for one in old.validate(**request).findings if one.severity == "error"}
    return [one for one in said if _kind(one) not in known]


def _kind(finding: Finding) -> Finding:
    return replace(finding, message="", hint="", source="", file="", line=0)


def _plans(new: api.Experiment, old: api.Experiment, given: Mapping[str, Any]) -> list[str]:
    """How the plans of the same request differ: keys of the configuration, and whether the commands do."""
    try:
        before, after = (plan_to_json(one.plan(**given)) for one in (old, new))
    except TuneportError as error:
        return [f"no plan: {error.message}"]
    was, now = before["config"], after["config"]
    names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    found = [f"{name}: {json.dumps(was.get(name))} -> {json.dumps(now.get(name))}" for name in sorted(names)]
    if before["commands"] != after["commands"] and not found:
        found.append("the commands differ")
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(prove(*sys.argv[1:4], **json.loads(sys.argv[4]))))
