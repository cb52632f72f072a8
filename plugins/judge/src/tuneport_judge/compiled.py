"""The judge while a request is judged and compiled: what framework plugins call. Never shipped with a job.
No manifest: a rubric becomes files, a digest and variables of the job, by what is written in it.

    findings:  yield from compiled.check(context)
    launch:    plan = compiled.attached(context, plan)

The method's manifest has `sections: {judge: {schema: judge, required: true}}` and
`documents: {judge.rubric: rubric}`; see the README beside this package.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files as package_files
from typing import Any

from tuneport.checks import sections
from tuneport.types import Context, FileSpec, Finding, LaunchPlan

from tuneport_judge.judge import FILE
from tuneport_judge.rubric import PLACEHOLDERS, Rubric

SECTION = "judge"
DOCUMENT = "judge.rubric"
LABEL = "rubric"
"""The label of a plan that holds the digest of its rubric."""
_RUNTIME = ("__init__", "cache", "endpoint", "judge", "rewards", "rubric")
_SECRET = re.compile(r"(sk|hf|gsk|xai|pk|key|AIza|ghp)[-_][A-Za-z0-9_-]{8,}\Z|[A-Za-z0-9+/=_-]{32,}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_IN_ADDRESS = re.compile(r"://[^/]*@|[?&](api[-_]?key|key|token)=", re.I)


def rubric(context: Context) -> Rubric | None:
    """The rubric that a request names; None where it names none that can be read."""
    document = context.facts.get("documents", {}).get(DOCUMENT)
    return Rubric.of(document) if isinstance(document, Mapping) else None


def check(context: Context) -> Iterator[Finding]:
    """What the schemas of section and rubric cannot say."""
    section = sections.content(context, SECTION)
    yield from _secrets(context, section)
    named = context.facts.get("documents", {}).get(DOCUMENT)
    if isinstance(named, Mapping):
        file = str(section.get("rubric", ""))
        said = [*_sense(named), *_column(context, named)]
        yield from (replace(finding, key=DOCUMENT, file=file) for finding in said)


def _column(context: Context, document: Mapping[str, Any]) -> Iterator[Finding]:
    """An error where the training data is known not to have the column that the rubric refers to."""
    name, columns = document.get("reference"), context.facts.get("data", {}).get("train", {}).get("columns")
    if name and columns and name not in columns:
        message = f"the rubric's reference is the column {name}; the data has {', '.join(columns[:8])}"
        hint = "name one of these, or take {reference} out of the template"
        yield Finding("rubric-reference", "error", message, hint)


def _secrets(context: Context, section: Mapping[str, Any]) -> Iterator[Finding]:
    """Keys in files. What they are is not repeated."""
    name = section.get("api_key_env")
    if isinstance(name, str) and name and (_SECRET.match(name) or not _VARIABLE.match(name)):
        message = "`judge.api_key_env` is to be the name of a variable, and looks like the key itself"
        hint = "write the variable's name, set it where the job runs, and withdraw the key if it is one"
        yield Finding("judge-key-literal", "error", message, hint, *_at(context, "judge.api_key_env"))
    address = section.get("base_url")
    if not isinstance(address, str):
        return
    if _IN_ADDRESS.search(address):
        message = "`judge.base_url` holds a password or key"
        hint = "take it out, and name the variable that holds the key in judge.api_key_env"
        yield Finding("judge-key-literal", "error", message, hint, *_at(context, "judge.base_url"))
    elif address.rstrip("/").endswith("/chat/completions"):
        message = "`judge.base_url` ends in /chat/completions, which is added to it"
        hint = f"write {address.rstrip('/').removesuffix('/chat/completions')}"
        yield Finding("judge-address", "error", message, hint, *_at(context, "judge.base_url"))


def _at(context: Context, key: str) -> tuple[str, str, int]:
    """A key with its file and line, for a finding."""
    origin = context.origins.get(key) or context.origins.get(SECTION)
    return (key, origin.file, origin.line) if origin else (key, "", 0)


def _sense(document: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with a rubric that fits its schema."""
    scale, names = document["scale"], [item["name"] for item in document["criteria"]]
    template = document["template"]
    if scale["min"] >= scale["max"]:
        message = f"the scale goes from {scale['min']} to {scale['max']}: there is nothing between"
        yield Finding("rubric-scale", "error", message, "make scale.max larger than scale.min")
    elif "step" in scale and scale["step"] > scale["max"] - scale["min"]:
        message = f"one step of {scale['step']} is more than the whole scale"
        yield Finding("rubric-scale", "error", message, "make scale.step smaller, or leave it out")
    elif "step" in scale and not Rubric(document, "").on_scale(scale["max"]):
        message = (
            f"steps of {scale['step']} from {scale['min']} never come to {scale['max']}: no answer can get it"
        )
        yield Finding("rubric-scale", "warning", message, "choose a step that divides the scale")
    for name, count in Counter(names).items():
        if count > 1:
            yield Finding("rubric-criteria", "error", f"two criteria are called {name}", "rename one of them")
    if "{answer}" not in template:
        message = "the template has no {answer}, so the judge would never see what it scores"
        yield Finding("rubric-template", "error", message, "put {answer} where the answer belongs")
    if "{question}" not in template:
        message = "the template has no {question}, so the judge scores answers without knowing to what"
        yield Finding("rubric-unused", "warning", message, "put {question} where the question belongs")
    if "{reference}" in template and not document.get("reference"):
        message = "the template has {reference}, and nothing says which column that is"
        yield Finding("rubric-template", "error", message, "write reference: COLUMN")
    elif document.get("reference") and "{reference}" not in template:
        message = f"the template does not use the reference {document['reference']}"
        yield Finding("rubric-unused", "warning", message, "put {reference} into the template")
    if "{criteria}" not in template:
        message = "the template does not list the criteria, so the judge sees their names alone"
        yield Finding("rubric-unused", "warning", message, "put {criteria} into the template")
    for word in dict.fromkeys(re.findall(r"\{([a-z_]+)\}", template)):
        if word not in PLACEHOLDERS:
            known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            message = f"{{{word}}} in the template stands for nothing and is sent as it is"
            yield Finding("rubric-placeholder", "warning", message, f"there are {known}")
    yield from _examples(document, names)


def _examples(document: Mapping[str, Any], names: list[str]) -> Iterator[Finding]:
    taught = Rubric(document, "")
    for number, example in enumerate(document.get("examples", ()), 1):
        scores = example["scores"]
        if set(scores) != set(names):
            wrong = ", ".join(sorted(set(scores) ^ set(names)))
            message = f"example {number} does not score the rubric's own criteria: {wrong}"
            yield Finding("rubric-example", "error", message, "score each criterion, and no other")
        elif document["scale"]["min"] < document["scale"]["max"] and not all(
            map(taught.on_scale, scores.values())
        ):
            message = f"example {number} has points off the scale"
            yield Finding("rubric-example", "error", message, "use points of the scale")


def attached(context: Context, plan: LaunchPlan) -> LaunchPlan:
    """The plan with the judge in each command's folder, and the rubric's digest as a label; unchanged where
    the request has no judge."""
    found = rubric(context)
    if found is None:
        return plan
    extra = files(context, found)
    commands = tuple(replace(command, files={**command.files, **extra}) for command in plan.commands)
    return replace(plan, commands=commands, labels={**plan.labels, LABEL: found.digest})


def files(context: Context, found: Rubric) -> dict[str, FileSpec]:
    """What a job imports and reads: the package itself, and the judge's settings with the whole rubric."""
    settings = {**sections.content(context, SECTION), "rubric": found.document}
    return {**_package(), FILE: FileSpec("json", settings)}


@cache
def _package() -> dict[str, FileSpec]:
    folder = package_files("tuneport_judge")
    return {
        f"tuneport_judge/{name}.py": FileSpec("text", folder.joinpath(f"{name}.py").read_text("utf-8"))
        for name in _RUNTIME
    }
