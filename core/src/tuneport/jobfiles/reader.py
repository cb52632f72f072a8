"""From a job file to the programs that it starts, the machines that each gets, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneport.errors import Invalid
from tuneport.jobfiles import documents, fields, kuberay, kubernetes, pods, refused, skypilot
from tuneport.jobfiles.documents import Object, Place
from tuneport.jobfiles.refused import INDEX
from tuneport.shell.gaps import Gap, Gaps, word
from tuneport.shell.reader import Reading, Start, follow
from tuneport.types import Finding, Json

SUFFIXES = (".yaml", ".yml", ".json")
_FILLED = re.compile(r"\$\(([A-Za-z_]\w*)\)")
# By any of these a command can tell one machine from another.
_TELLS = re.compile(r"\$\{?\w*(RANK|INDEX|HOSTNAME|POD_NAME|WORKER_ID|ORDINAL)|[`(]hostname", re.I)
_OPEN = re.compile(r"\$\{[^}]*\}|\$[A-Za-z_]\w*|\{\{.*?\}\}")
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
    """Whether a command is the name of a job file, and nothing but that."""
    return len(words) == 1 and words[0].lower().endswith(SUFFIXES) and not set(words[0]) & {" ", "=", ";"}


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
    trainers = [one for one in known if _trains(one)]
    together = len(trainers) > 1 and not any(one.kind.startswith("ray.io/") for one in trainers)
    gaps, starts = Gaps(), list[Start]()
    for one in known:
        started = _kubernetes(one, services, together=together) if one.kind else _skypilot(one)
        starts += [_start(one, item, gaps, env) for item in started]
    reading = follow(starts, env, gaps)
    reading.findings += [*problems, *(finding for one in known for finding in one.findings)]
    if any(one.template for one in known):
        message = "values of the file have to be filled in first, so what depends on them is not judged"
        reading.findings.append(Finding("job-file", "note", message, "envsubst, helm template", "", name))
    reading.job_file = name
    return reading


def _trains(one: Object) -> bool:
    """Whether an object asks for GPUs for commands of its own, once."""
    single = pods.pods_kind(one) in ("Pod", "Job", "StatefulSet")
    return single and any(pods.pod_gpus(pod) for pod in pods.found(one))


def _kubernetes(one: Object, services: Mapping[str, Mapping[str, Any]], *, together: bool) -> list[_Started]:
    """What an object starts. `together`: several objects of the file train, perhaps with one another."""
    fields.check(one)
    found = pods.found(one)
    for pod in found:
        fields.check_pod(one, pod.place, pod.spec)
    refused.check(one, found)
    kubernetes.check(one, found, services)
    kuberay.check(one)
    kind = one.kind.partition(" ")[2]
    spec, groups = pods.mapped(one.data, "spec"), kuberay.groups(one)
    if groups:  # its containers start Ray and nothing else
        entry = spec.get("entrypoint") if kind == "RayJob" else None
        if not isinstance(entry, str):
            return []
        named = pods.environment(groups[0].container()[1])
        return [_Started([(entry, ("spec", "entrypoint"))], named, kuberay.hardware(one), text=True)]
    if kind == "TrainJob":
        return list(_train_job(spec))
    machines = 0 if together else _machines(one, found)
    told = dict.fromkeys(_TOLD if one.kind.startswith("kubeflow.org/") else ())
    alike = len(found) == 1 and not told and not together
    started = []
    for pod in found:
        for place, container in pod.containers():
            named = {**told, INDEX: None, **pods.environment(container)}
            each = pods.gpus(container)
            if said := pods.words(container):
                at = [(text, (*place, *where)) for text, where in said]
                copies = pod.copies if alike and each else 1
                started += [_Started(at, named, (machines if each else 0, each), copies)]
    return started


def _machines(one: Object, found: Sequence[pods.Pod]) -> int:
    """How many pods of an object train together; 0 where that cannot be told."""
    kind, spec = pods.pods_kind(one), pods.mapped(one.data, "spec")
    training = [pod for pod in found if pods.pod_gpus(pod)]
    if one.kind.startswith("kubeflow.org/"):
        known = all(pod.copies for pod in training) and "elasticPolicy" not in spec
        return sum(pod.copies for pod in training) if known else 0
    slices = [
        item.get("replicas", 1) for item in pods.listed(spec, "replicatedJobs") if isinstance(item, dict)
    ]
    if len(training) != 1 or kind not in ("Pod", "Job", "StatefulSet", "JobSet") or slices not in ([], [1]):
        return 0
    return training[0].copies


def _train_job(spec: Mapping[str, Json]) -> Iterator[_Started]:
    trainer = pods.mapped(spec, "trainer")
    said = pods.words(trainer)
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

    def unknown(name: str) -> str:
        return gaps.new(Gap("set elsewhere", name, file, one.document.line(item.words[0][1])))

    named = {name: known(name) for name in item.env}
    texts = [text for text, _ in item.words]
    if not item.text:  # Kubernetes fills in what it knows, somebody before it the rest
        texts = [_FILLED.sub(lambda match: named.get(match[1]) or unknown(match[1]), text) for text in texts]
        if not any(map(kubernetes.SHELLS.match, texts)):
            texts = [_OPEN.sub(lambda match: unknown(match[0].strip("${} ")), text) for text in texts]
    same = item.copies > 1 and not any(map(_TELLS.search, [text for text, _ in item.words]))
    spans = [one.document.spans.get(place) or (one.document.line(place),) * 2 for _, place in item.words]
    words = [word(text, file, first) for text, (first, _) in zip(texts, spans, strict=True)]
    if item.text:
        words = [word(text, file, words[0].line) for text in ("bash", "-c")] + words
    last = max(last for _, last in spans)
    return Start(words, {**env, **named}, last, item.machines, item.copies if same else 1)
