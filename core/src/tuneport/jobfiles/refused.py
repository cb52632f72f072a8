"""What the API of Kubernetes, or a controller behind it, refuses in an object and in its pods."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tuneport.jobfiles.documents import FILLED, Object, Place
from tuneport.jobfiles.pods import ALONE, Pod, environment, listed, mapped, pods_kind, quantity, whole, words
from tuneport.text import closest
from tuneport.types import Json

API = "Kubernetes pkg/apis/core/validation/validation.go"
BATCH = "Kubernetes pkg/apis/batch/validation/validation.go, validateJobSpec"
KUBEFLOW = "Kubeflow training-operator 1.9 pkg/webhooks/pytorch/pytorchjob_webhook.go, validateSpec"
INDEX = "JOB_COMPLETION_INDEX"
_CORE = ("Pod", "Job", "CronJob", "Deployment", "DaemonSet")
"""Kinds whose pods the API judges with them; pods of others are judged when they are made."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?\Z")


def check(one: Object, pods: Sequence[Pod]) -> None:
    """Say what of one object is refused."""
    _names(one, pods)
    for pod in pods:
        _job(one, pod)
        _volumes(one, pod)
        for place, container in pod.every():
            _resources(one, place, container)
    if one.kind.startswith("kubeflow.org/") and one.kind.endswith(" PyTorchJob"):
        _pytorch_job(one)


def _say(one: Object, place: Place, message: str, hint: str, source: str) -> None:
    one.say("kube-refused", "error", place, message, hint, source)


def _who(one: Object) -> str:
    return "the API refuses the object" if pods_kind(one) in _CORE else "the API refuses its pods"


def _names(one: Object, pods: Sequence[Pod]) -> None:
    given = mapped(one.data, "metadata").get("name")
    if pods and isinstance(given, str) and not FILLED.search(given) and not _SUBDOMAIN.match(given):
        message = f"{given!r} is no name of an object: the API refuses it"
        _say(one, ("metadata", "name"), message, "write small letters, digits and dashes", API)
    for pod in pods:
        for place, container in pod.every():
            name = container.get("name")
            if isinstance(name, str) and not FILLED.search(name) and not _LABEL.match(name):
                message = f"{name!r} is no name of a container: {_who(one)}"
                _say(one, (*place, "name"), message, "write small letters, digits and dashes", API)


def _job(one: Object, pod: Pod) -> None:
    """What a Job asks of its pods."""
    kind = pods_kind(one)
    if kind not in ALONE or kind == "Pod" or not any("image" in item for _, item in pod.containers()):
        return  # without an image it is a patch of another file
    policy = pod.spec.get("restartPolicy")
    if policy == "Always" or (policy is None and kind != "JobSet"):
        said = "restartPolicy Always is refused" if policy else "a Job without restartPolicy is refused"
        hint = "a Job's pods end: write Never or OnFailure"
        _say(one, (*pod.place, "restartPolicy"), said, hint, BATCH)
    spec = mapped(one.data, "spec")
    indexed = spec.get("completionMode") == "Indexed"
    # Where neither is written, both are 1.
    if indexed and spec.get("completions") is None and spec.get("parallelism") is not None:
        message = "an Indexed Job without completions is refused"
        _say(one, ("spec", "completions"), message, "write how many pods it has", BATCH)
    if kind == "Job" and not indexed:
        _index(one, pod)


def _index(one: Object, pod: Pod) -> None:
    for place, container in pod.containers():
        for word, at in words(container):
            if INDEX in word and INDEX not in environment(container):
                message = f"{INDEX} is not set: only an Indexed Job numbers its pods"
                hint = "write completionMode: Indexed, with completions"
                one.say("kube-index", "warning", (*place, *at), message, hint, BATCH)
                return


def _volumes(one: Object, pod: Pod) -> None:
    volumes = [item.get("name") for item in listed(pod.spec, "volumes") if isinstance(item, dict)]
    claims = listed(mapped(one.data, "spec"), "volumeClaimTemplates")
    names = [*volumes, *(mapped(claim, "metadata").get("name") for claim in claims)]
    if pod.grouped or "$patch" in pod.spec:
        return  # its controller may bring volumes of its own
    for place, container in pod.every():
        for number, mount in enumerate(listed(container, "volumeMounts")):
            name = mount.get("name") if isinstance(mount, dict) else None
            if isinstance(name, str) and name not in names and not FILLED.search(name):
                message = f"no volume of the pod is called {name}: {_who(one)}"
                at = (*place, "volumeMounts", number, "name")
                _say(one, at, message, "add it under volumes:", f"{API}, ValidateVolumeMounts")


def _resources(one: Object, place: Place, container: Mapping[str, Json]) -> None:
    """Amounts that the API refuses."""
    source = f"{API}, validateContainerResourceRequirements"
    limits, requests = (mapped(container, "resources", part) for part in ("limits", "requests"))
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, value in whole(amounts).items():
            number = quantity(value)
            if number is not None and (number % 1 or number < 0) and not name.startswith("hugepages"):
                message = f"{value} of {name} is no whole number: {_who(one)}"
                _say(one, (*place, "resources", part, name), message, "", source)
    for name, value in requests.items():
        asked, most = quantity(value), quantity(limits.get(name))
        if asked is None or (name in limits and most is None):
            continue
        counted, hint = name in whole(requests), "request at most the limit"
        if counted and most is None:
            said, hint = "is requested and not limited", f"write the same under limits: {name}: {value}"
        elif counted and most != asked:
            said, hint = f"requests {value}, and its limit is {limits[name]}", "write the same in both"
        elif most is not None and asked > most:
            said = f"requests {value}, more than its limit of {limits[name]}"
        else:
            continue
        _say(one, (*place, "resources", "requests", name), f"{name} {said}: {_who(one)}", hint, source)


def _pytorch_job(one: Object) -> None:
    replicas = mapped(one.data, "spec", "pytorchReplicaSpecs")
    for name, group in replicas.items():
        place: Place = ("spec", "pytorchReplicaSpecs", name)
        if name not in ("Master", "Worker"):
            close = closest(name, ("Master", "Worker"))
            hint = f"did you mean {close}?" if close else ""
            _say(one, place, f"a PyTorchJob has no {name}, and its webhook refuses it", hint, KUBEFLOW)
            continue
        containers = listed(mapped(group, "template", "spec"), "containers")
        called = [item.get("name") for item in containers if isinstance(item, dict)]
        if called and "pytorch" not in called and not any(FILLED.search(str(item)) for item in called):
            message = "no container is called pytorch, and the webhook refuses the PyTorchJob"
            at = (*place, "template", "spec", "containers", 0, "name")
            _say(one, at, message, "call the one that trains so", KUBEFLOW)
        number = group.get("replicas") if isinstance(group, dict) else None
        if name == "Master" and isinstance(number, int) and number != 1:
            message = f"a PyTorchJob has one Master, not {number}, and its webhook refuses it"
            _say(one, (*place, "replicas"), message, "make the others Worker", KUBEFLOW)
