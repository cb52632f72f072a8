"""From a job file to the programs that it starts, the machines that each gets, and what is wrong with it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneport.errors import Invalid
from tuneport.jobfiles import documents, fields, kuberay, kubernetes, pods, skypilot
from tuneport.jobfiles.documents import Object, Place
from tuneport.shell.gaps import Gap, Gaps, word
from tuneport.shell.reader import Reading, Start, follow
from tuneport.types import Json

SUFFIXES = (".yaml", ".yml")
_FILLED = re.compile(r"\$\(([A-Za-z_]\w*)\)")
# By any of these a command can tell one machine from another.
_TELLS = re.compile(r"RANK|_INDEX|HOSTNAME|hostname|POD_NAME|NODE_IPS|WORKER_ID|ORDINAL", re.I)
# What a controller of the Kubeflow project tells the pods of a training job.
_TOLD = (
    *(
        "MASTER_ADDR",
        "MASTER_PORT",
        "WORLD_SIZE",
        "RANK",
        "PET_NNODES",
        "PET_NPROC_PER_NODE",
        "PET_NODE_RANK",
    ),
    *("PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT"),
)


@dataclass(frozen=True, slots=True)
class _Started:
    """A command of a document: its words, or one `text` that a shell reads. `env` has None for what is not
    known."""

    words: Sequence[tuple[str, Place]]
    env: Mapping[str, str | None]
    machines: tuple[int, int]
    copies: int = 1
    text: bool = False


def is_job_file(words: Sequence[str]) -> bool:
    """Whether a command is the name of a YAML file that is there."""
    return len(words) == 1 and words[0].endswith(SUFFIXES) and os.path.isfile(words[0])


def read(name: str, env: Mapping[str, str]) -> Reading:
    """What a job file starts, and everything that is wrong with the file itself.

    Args:
        env: variables that are known beside the file.

    Raises:
        Invalid, NotFound: the file cannot be read, or holds no object of Kubernetes and no task of SkyPilot.
    """
    objects, problems = documents.read(Path(name))
    known = [one for one in objects if one.kind or skypilot.is_task(one.data)]
    if not known and not problems:
        raise Invalid(
            f"{name} holds no object of Kubernetes and no task of SkyPilot",
            code="job-file",
            hint="tp check reads commands, shell scripts, and the YAML that these engines take",
        )
    services = {
        str(pods.mapped(one.data, "metadata").get("name")): one.data
        for one in known
        if one.kind == "v1 Service"
    }
    gaps, starts = Gaps(), list[Start]()
    for one in known:
        started = _kubernetes(one, services) if one.kind else _skypilot(one)
        starts += [_start(one, item, gaps, env) for item in started]
    reading = follow(starts, env, gaps)
    reading.findings += [*problems, *(finding for one in known for finding in one.findings)]
    reading.job_file = name
    return reading


def _kubernetes(one: Object, services: Mapping[str, Mapping[str, Any]]) -> list[_Started]:
    fields.check(one)
    found = pods.found(one)
    for pod in found:
        fields.check_pod(one, pod.place, pod.spec)
    kubernetes.check(one, found, services)
    kuberay.check(one)
    kind = one.kind.partition(" ")[2]
    spec = pods.mapped(one.data, "spec")
    if kind == "RayJob" and isinstance(spec.get("entrypoint"), str):
        named = pods.environment(kuberay.groups(one)[0].container()[1])
        return [
            _Started([(spec["entrypoint"], ("spec", "entrypoint"))], named, kuberay.hardware(one), text=True)
        ]
    if kind == "TrainJob":
        return list(_train_job(spec))
    if kuberay.groups(one):
        return []  # its containers start Ray and nothing else
    training = "Job" in kind and one.kind.startswith("kubeflow.org/")
    machines = sum(pod.copies for pod in found) if training and all(pod.copies for pod in found) else 0
    started = []
    for pod in found:
        count = machines if training else pod.copies
        for place, container in pod.containers():
            named = {**(dict.fromkeys(_TOLD) if training else {}), **pods.environment(container)}
            each = pods.gpus(container)
            if said := kubernetes.words(container):
                at = [(text, (*place, *where)) for text, where in said]
                started += [_Started(at, named, (count if each else 0, each), 1 if training else count)]
    return started


def _train_job(spec: Mapping[str, Json]) -> Iterator[_Started]:
    trainer = pods.mapped(spec, "trainer")
    said = kubernetes.words(trainer)
    nodes, each = trainer.get("numNodes"), pods.gpus({"resources": pods.mapped(trainer, "resourcesPerNode")})
    if said:
        count = nodes if isinstance(nodes, int) and not isinstance(nodes, bool) and each else 0
        named = {**dict.fromkeys(_TOLD), **pods.environment(trainer)}
        yield _Started([(text, ("spec", "trainer", *at)) for text, at in said], named, (count, each))


def _skypilot(one: Object) -> list[_Started]:
    skypilot.check(one)
    run = one.data.get("run")
    if not isinstance(run, str):
        return []
    nodes, each = skypilot.hardware(one.data)
    given = {
        **{
            name: None if value is None else str(value)
            for name, value in pods.mapped(one.data, "envs").items()
        },
        **dict.fromkeys(pods.mapped(one.data, "secrets")),
    }
    known = {"SKYPILOT_NUM_NODES": nodes, "SKYPILOT_NUM_GPUS_PER_NODE": each}
    named = {**given, **{name: str(number) for name, number in known.items() if number}}
    return [_Started([(run, ("run",))], named, (nodes if each else 0, each), nodes, text=True)]


def _start(one: Object, item: _Started, gaps: Gaps, env: Mapping[str, str]) -> Start:
    """A command as a shell's reader follows it: variables filled in, every word with its line."""
    file = one.document.file

    def known(name: str) -> str:
        line = one.document.line(item.words[0][1])
        value = env.get(name, item.env.get(name))
        return gaps.new(Gap("set elsewhere", name, file, line)) if value is None else value

    named = {name: known(name) for name in item.env}
    texts = [text for text, _ in item.words]
    if not item.text:  # Kubernetes fills in what it knows
        texts = [
            _FILLED.sub(
                lambda match: named.get(match[1]) or gaps.new(Gap("set elsewhere", match[1], file, 0)), text
            )
            for text in texts
        ]
    lines = [_line(one, text, place) for text, place in item.words]
    same = item.copies > 1 and not any(map(_TELLS.search, [*texts, *item.env]))
    words = [word(text, file, line) for text, line in zip(texts, lines, strict=True)]
    if item.text:
        words = [word(text, file, words[0].line) for text in ("bash", "-c")] + words
    return Start(words, {**env, **named}, item.machines, item.copies if same else 1)


def _line(one: Object, text: str, place: Place) -> int:
    """The line that a text begins on: below its key, where it is a block."""
    line = one.document.line(place)
    return line + 1 if "\n" in text else line
