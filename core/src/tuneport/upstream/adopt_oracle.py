"""Asks the release's own parser, in the release's own runtime, about a drafted release.

How is data: `oracle` of framework.yaml. It is asked where the drafted runtime is installed on this machine:
about the starting command of every method, and what it holds, which is compared with the surface.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuneport.errors import TuneportError, Unavailable
from tuneport.fleets.files import render
from tuneport.fleets.layout import Folder, key_of
from tuneport.fleets.resolve import LATE, at_start, at_submit, resolve_all
from tuneport.registry import catalog, surfaces
from tuneport.runtimes.report import seen_series
from tuneport.runtimes.variants import Variant, choose_variant, variants
from tuneport.runtimes.venvs import Built, find_built
from tuneport.types import Json, LaunchPlan, Ref, Value
from tuneport.upstream import oracle_program

_TIME = 1800  # seconds for all questions about a release; importing it may take a minute
_PORT = 29500  # what a launcher would be told; nothing listens there
_PROFILES = {"cpu": "cpu:1", "*": "h200:8"}
Planned = Callable[[str, str], LaunchPlan]


@dataclass(slots=True)
class Answers:
    """What a release said. `why`: why nothing was asked; `accepted` are methods, `refused` and `unasked` are
    method -> why; `keys` of `entries` were compared with the surface, `unlike` says what differs."""

    runtime: str = ""
    why: str = ""
    accepted: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    unasked: dict[str, str] = field(default_factory=dict)
    entries: int = 0
    keys: int = 0
    unlike: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Json]:
        return {name: getattr(self, name) for name in self.__slots__}


def ask(framework: str, release: str, planned: Planned, *, install: bool = False) -> Answers:
    """Ask the parser of a release that is in the catalog.

    Args:
        planned: makes the plan of a method (the first argument) for a profile (the second); it may raise
            TuneportError.
        install: build the runtime where it is not here.
    """
    how: Mapping[str, str] = catalog.framework_spec(framework).get("oracle", {})
    if not how:
        return Answers(why=f"no manifest says how {framework}'s own parser is asked")
    try:
        variant, built, profile = place(catalog.release_spec(framework, release), framework, install=install)
    except TuneportError as error:
        return Answers(why=f"no oracle here: {error.message}")
    if variant is None:
        return Answers(why=f"no oracle here: no runtime of {framework} {release} fits this machine")
    answers = Answers(f"{variant.runtime_id} ({variant.name})")
    if built is None:
        missing = f"no oracle here: runtime {answers.runtime} is not installed"
        answers.why = f"{missing}; --install builds it and asks the release's own parser"
        return answers
    with tempfile.TemporaryDirectory() as scratch:
        cases = []
        for method_id, _, problem in catalog.methods(framework):
            if not problem:
                try:
                    plan = planned(method_id, profile)
                    entry = catalog.method(method_id, release).spec.get("entry", "")
                    folder = Folder.of(key_of("asked", 1), Path(scratch) / method_id.replace("/", "-"))
                    cases.append(_case(method_id, plan, entry, folder, built))
                except TuneportError as error:
                    answers.unasked[method_id] = error.message
        try:
            said = _asked(built, how, cases, Path(scratch))
        except Unavailable as error:
            answers.why = error.message
            return answers
    for case in cases:
        name, entry = case["id"], case["entry"]
        refused = said["broken"].get(entry) or said["refused"].get(name, "it said nothing")
        if refused:
            answers.refused[name] = refused
        else:
            answers.accepted.append(name)
    for entry, actions in said["held"].items():
        _compare(answers, framework, release, entry, actions)
    return answers


def place(
    spec: Mapping[str, Json], framework: str, *, install: bool = False
) -> tuple[Variant | None, Built | None, str]:
    """(the variant of a release's runtime to ask, where it is installed, the profile of a plan for it). The
    one for this machine's hardware comes first; one for processors can be asked everywhere.

    Raises:
        Invalid: a runtime that cannot be installed safely is declared. Unavailable: it does not install.
    """
    fitting: dict[str, str] = {}
    for series in (seen_series(), "cpu"):
        name = choose_variant(spec, series)
        if name:
            fitting.setdefault(name, _PROFILES[series])
    declared = variants(spec, framework)
    for name, profile in fitting.items():
        built = find_built(declared[name])
        if built is not None:
            return declared[name], built, profile
    for name, profile in fitting.items():
        if install:
            from tuneport.runtimes.install import install as build

            return declared[name], build(declared[name], lambda _: None), profile
        return declared[name], None, profile
    return None, None, ""


def _case(method_id: str, plan: LaunchPlan, entry: str, folder: Folder, built: Built) -> dict[str, Any]:
    """One question: the arguments behind the entry point, with the files of their command in place.

    Raises:
        Unavailable: the command does not start the entry point. Invalid: a file cannot be written.
    """
    late, early = at_start(_PORT), at_submit(folder, "asked", 1, built.interpreter)

    def resolver(ref: Ref) -> Value:
        return late(ref) if ref.ref in LATE else early(ref)

    for command in resolve_all(plan.commands, resolver):
        words = [str(word) for word in command.argv]
        if entry not in words:
            continue
        for name, spec in command.files.items():
            file = folder.work / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(render(spec))
        env = {name: str(value) for name, value in command.env.items()}
        args = words[words.index(entry) + 1 :]
        return {"id": method_id, "entry": entry, "args": args, "env": env, "folder": str(folder.work)}
    raise Unavailable(f"its command does not start {entry or 'an entry point'} by name", code="adopt-oracle")


def _asked(
    built: Built, how: Mapping[str, str], cases: list[dict[str, Any]], scratch: Path
) -> dict[str, dict[str, Any]]:
    """The answers of `oracle_program`.

    Raises:
        Unavailable: the runtime's Python ended without any.
    """
    entries = list(dict.fromkeys(case["entry"] for case in cases))
    question = {"parse": "parse_args", **how, "entries": entries, "cases": cases}
    file = scratch / "answers.json"
    # -I: this folder has modules that are named like those of the standard library.
    words = [str(built.interpreter), "-I", str(Path(oracle_program.__file__)), str(file)]
    said = ""
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        done = subprocess.run(
            words,
            input=json.dumps(question),
            capture_output=True,
            text=True,
            errors="replace",
            cwd=scratch,
            timeout=_TIME,
            check=False,
        )
        said = "".join(done.stderr.splitlines(keepends=True)[-1:]).strip() or f"exit code {done.returncode}"
        answers: dict[str, dict[str, Any]] = json.loads(file.read_text("utf-8"))
        return answers
    message = f"the parser in {built.path.name} could not be asked: {said or 'it did not end in time'}"
    raise Unavailable(message, code="adopt-oracle")


def _compare(answers: Answers, framework: str, release: str, entry: str, actions: list[list[Any]]) -> None:
    """Hold what the parser of an entry holds against the surface."""
    known = surfaces.release(framework, release, entry).keys
    title = catalog.release_spec(framework, release).get("entries", {}).get(entry, entry)
    shipped = surfaces.of(framework, release).get("entries", {}).get(title, {}).get("keys", {})
    if not actions or not shipped:
        return
    answers.entries += 1
    answers.keys += len(shipped)
    answers.unlike += [f"{entry}: {line}" for line in unlike(shipped, actions, set(known))]


def unlike(
    shipped: Mapping[str, Mapping[str, Json]], actions: list[list[Any]], known: Collection[str] = ()
) -> Iterator[str]:
    """How the keys of a surface differ from what a parser holds.

    Args:
        shipped: key -> what surfaces/RELEASE.json says of it.
        actions: as `oracle_program.held` gives them.
        known: keys that the manifest adds to the surface.
    """
    by_name: dict[str, list[Any]] = {}
    for action in actions:
        for name in (action[0], *action[1]):
            by_name.setdefault(name, action)
    met = set(known)
    for key, facts in shipped.items():
        names = (str(facts.get("style", f"--{key}")), str(facts.get("dest", key)))
        there = next((by_name[name] for name in names if name in by_name), None)
        if there is None:
            yield f"the surface has {key}, which its parser does not take"
            continue
        dest, _, default, choices, required = there
        met.add(dest)
        if bool(facts.get("required")) != required:
            yield f"{key} is {'' if required else 'not '}required by its parser"
        ours = facts.get("default")
        compared = "default" in facts and facts.get("action") != "store_false" and not required
        if compared and not _other(default) and json.dumps(ours) != json.dumps(default):
            yield f"the default of {key} is {json.dumps(ours)} and in its parser {json.dumps(default)}"
        listed = facts.get("choices")
        told = choices is not None or "choices_from" not in facts
        if told and sorted(map(str, listed or ())) != sorted(map(str, choices or ())):
            yield f"the choices of {key} are {json.dumps(listed)} and in its parser {json.dumps(choices)}"
    yield from (
        f"its parser takes {name}, which the surface lacks"
        for name in dict.fromkeys(action[0] for action in actions)
        if name not in met
    )


def _other(value: Json) -> bool:
    """Whether a parser's default is nothing that JSON holds."""
    return isinstance(value, Mapping) and set(value) == {"other"}
