"""What is wrong with the pods of an object: resources, volumes, shared memory, and where machines meet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuneport.jobfiles.documents import Object, Place
from tuneport.jobfiles.pods import (
    Pod,
    environment,
    gpu_fields,
    gpus,
    listed,
    mapped,
    quantity,
    shared_memory,
)
from tuneport.types import Json

API = "Kubernetes pkg/apis/core/validation/validation.go"
BATCH = "Kubernetes pkg/apis/batch/validation/validation.go, validateJobSpec"
DNS = "Kubernetes documentation, DNS for Services and Pods"
EXPAND = "Kubernetes third_party/forked/golang/expansion/expand.go, MappingFuncFor"
INDEX = "JOB_COMPLETION_INDEX"
_LOCAL = re.compile(r"(localhost|127\.[0-9.]+|0\.0\.0\.0|::1)(:\d+)?\Z")
_EXPANDED = re.compile(r"\$\(([A-Za-z_]\w*)\)")
_UNREAD = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_STABLE = re.compile(r"([a-z0-9-]+-\d+)\.([a-z0-9-]+)(\.|:|\Z)")
"""A pod's own name below a headless service."""
_SHELLS = re.compile(r"(.*/)?(ba|da|z|k|a)?sh\Z")
_FIRST = ("MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT")
_RANKS = ("RANK", "NODE_RANK", "PET_NODE_RANK", "GROUP_RANK")


def check(one: Object, pods: Sequence[Pod], services: Mapping[str, Mapping[str, Any]]) -> None:
    """Say what is wrong with the pods of one object.

    Args:
        services: the Services of the file, by name.
    """
    for pod in pods:
        _job(one, pod)
        _volumes(one, pod)
        for place, container in pod.containers():
            _resources(one, place, container)
            _ranks(one, pod, place, container)
            _words(one, pod, place, container)
            for address, at in _addresses(place, container):
                _address(one, pod, address, at, services)
    if "ray.io" not in one.kind:
        _shared(one, pods)


def shell(words: Sequence[str]) -> bool:
    """Whether a shell reads the words of a container."""
    return bool(words) and bool(_SHELLS.match(words[0]))


def words(container: Mapping[str, Json]) -> list[tuple[str, Place]]:
    """(word, its place in the container) of `command` and `args`."""
    return [
        (str(word), (name, number))
        for name in ("command", "args")
        for number, word in enumerate(listed(container, name))
        if isinstance(word, str | int | float)
    ]


def _job(one: Object, pod: Pod) -> None:
    """What a Job asks of its pods."""
    if one.kind != "batch/v1 Job" or pod.place != ("spec", "template", "spec"):
        return
    policy = pod.spec.get("restartPolicy")
    if policy not in ("Never", "OnFailure"):
        said = (
            f"restartPolicy {policy} is refused for a Job"
            if policy
            else "a Job without restartPolicy is refused"
        )
        one.say(
            "kube-refused", "error", (*pod.place, "restartPolicy"), said, "write Never or OnFailure", BATCH
        )
    spec = mapped(one.data, "spec")
    indexed = spec.get("completionMode") == "Indexed"
    # Where neither is written, both are 1.
    if indexed and spec.get("completions") is None and spec.get("parallelism") is not None:
        message = "an Indexed Job without completions is refused"
        one.say(
            "kube-refused", "error", ("spec", "completions"), message, "write how many pods it has", BATCH
        )
    if indexed:
        return
    for place, container in pod.containers():
        for word, at in words(container):
            if INDEX in word and INDEX not in environment(container):
                message = f"{INDEX} is not set: only an Indexed Job numbers its pods"
                hint = "write completionMode: Indexed, with completions"
                one.say("kube-index", "warning", (*place, *at), message, hint, BATCH)
                return


def _volumes(one: Object, pod: Pod) -> None:
    volumes = [item.get("name") for item in listed(pod.spec, "volumes") if isinstance(item, dict)]
    claims = listed(one.data.get("spec"), "volumeClaimTemplates")
    names = {*volumes, *(mapped(claim, "metadata").get("name") for claim in claims)}
    if pod.grouped or "$patch" in pod.spec:
        return  # its controller may bring volumes of its own
    for place, container in pod.containers():
        for number, mount in enumerate(listed(container, "volumeMounts")):
            name = mount.get("name") if isinstance(mount, dict) else None
            if isinstance(name, str) and name not in names:
                message = f"no volume of the pod is called {name}, and the API refuses the object"
                at = (*place, "volumeMounts", number, "name")
                source = f"{API}, ValidateVolumeMounts"
                one.say("kube-refused", "error", at, message, "add it under volumes:", source)


def _resources(one: Object, place: Place, container: Mapping[str, Json]) -> None:
    """Amounts that the API refuses."""
    source = f"{API}, validateContainerResourceRequirements"
    limits, requests = (mapped(container, "resources", part) for part in ("limits", "requests"))
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, value in gpu_fields(amounts).items():
            number = quantity(value)
            if number is not None and (number != int(number) or number < 0):
                at = (*place, "resources", part, name)
                one.say("kube-refused", "error", at, f"{value} of {name} is no whole number", "", source)
    for name, value in requests.items():
        asked, most, at = quantity(value), quantity(limits.get(name)), (*place, "resources", "requests", name)
        if asked is None:
            continue
        if name in gpu_fields(requests) and most is None:
            message = f"{name} is requested and not limited: the API refuses the object"
            one.say(
                "kube-refused", "error", at, message, f"write the same under limits: {name}: {value}", source
            )
        elif name in gpu_fields(requests) and most != asked:
            message = (
                f"{value} of {name} are requested and the limit is {limits[name]}: the API refuses the object"
            )
            one.say("kube-refused", "error", at, message, "write the same number in both", source)
        elif most is not None and asked > most:
            message = (
                f"{name} requests {value}, more than its limit of {limits[name]}: the API refuses the object"
            )
            one.say("kube-refused", "error", at, message, "request at most the limit", source)


def _shared(one: Object, pods: Iterable[Pod]) -> None:
    """Shared memory of 64 MiB, for processes that exchange batches and gradients through it."""
    for pod in pods:
        for place, container in pod.containers():
            if gpus(container) < 2 or pod.spec.get("hostIPC") or shared_memory(pod, container) is not None:
                continue
            if pod.grouped and not words(container):
                continue  # another object completes it
            message = (
                f"{gpus(container)} GPUs share a /dev/shm of 64 MiB: data loaders and NCCL run out of it"
            )
            hint = "mount an emptyDir with medium: Memory at /dev/shm"
            source = "PyTorch documentation, torch.utils.data; containerd's default mounts"
            one.say("kube-shm", "warning", (*place, "volumeMounts"), message, hint, source)


def _ranks(one: Object, pod: Pod, place: Place, container: Mapping[str, Json]) -> None:
    """Numbers of machines that are written out and so are the same in every pod."""
    named = environment(container)
    if pod.copies < 2:
        return
    for name in _RANKS:
        if (named.get(name) or "").isdigit():
            message = f"each of {pod.copies} pods is told that it is number {named[name]}"
            hint = f"take {name} from {INDEX}, or from the pod's name"
            one.say("kube-rank", "warning", _of(place, container, name), message, hint)
    world, each = named.get("WORLD_SIZE") or "", gpus(container) or 1
    if world.isdigit() and int(world) not in (pod.copies, pod.copies * each):
        message = f"WORLD_SIZE is {world}, and {pod.copies} pods have {each} GPUs each"
        hint = f"write {pod.copies * each}, the processes of all pods"
        one.say("kube-rank", "warning", _of(place, container, "WORLD_SIZE"), message, hint)


def _of(place: Place, container: Mapping[str, Json], name: str) -> Place:
    """The place of a variable's value."""
    numbers = (
        n for n, item in enumerate(listed(container, "env")) if mapped({"": item}, "").get("name") == name
    )
    return (*place, "env", next(numbers, 0), "value")


def _words(one: Object, pod: Pod, place: Place, container: Mapping[str, Json]) -> None:
    """Variables in words that no shell reads."""
    said = words(container)
    texts = [word for word, _ in said]
    if pod.grouped or listed(container, "envFrom") or shell(texts) or not texts:
        return
    named = {*environment(container), INDEX}
    for word, at in said:
        lost = [name for name in _EXPANDED.findall(word) if name not in named]
        plain = [name for name in _UNREAD.findall(word) if name in named and f"$({name})" not in word]
        if lost and "command" in container:
            message = f"$({lost[0]}) is no variable of the container, so the program gets it as it is written"
            one.say("kube-variable", "warning", (*place, *at), message, f"set {lost[0]} under env:", EXPAND)
        elif plain and "command" in container:
            message = f"no shell reads {word!r}: the program gets the dollar sign"
            hint = f'write "$({plain[0]})", which Kubernetes fills in, or start a shell'
            one.say("kube-variable", "warning", (*place, *at), message, hint, EXPAND)


def _addresses(place: Place, container: Mapping[str, Json]) -> Iterable[tuple[str, Place]]:
    """(where machines meet, its place) as a container says it."""
    named = environment(container)
    for name in _FIRST:
        if named.get(name):
            yield str(named[name]), _of(place, container, name)
    flags = "|".join(("--master_addr", "--master-addr", "--rdzv_endpoint", "--rdzv-endpoint"))
    for word, at in words(container):
        for match in re.finditer(rf"(?:{flags})[= ]([\w.:-]+)", word):
            yield match[1], (*place, *at)


def _address(
    one: Object, pod: Pod, address: str, at: Place, services: Mapping[str, Mapping[str, Any]]
) -> None:
    if _LOCAL.match(address):
        if pod.copies < 2 or at[-1] != "value":  # flags are judged as the launcher's own
            return
        message = f"{address} is each pod itself, and there are {pod.copies}: they never meet"
        one.say(
            "kube-address", "warning", at, message, "write the name of the first pod, the same in all of them"
        )
        return
    host = address.partition(":")[0]
    if re.match(r"[0-9.]+\Z", host):
        return
    stable = _STABLE.match(address)
    if stable and one.kind in ("batch/v1 Job", "v1 Pod") and not pod.spec.get("subdomain"):
        message = f"{host} has no address: pods of this object are in no subdomain"
        hint = f"write subdomain: {stable[2]} in the pod, and a Service of that name with clusterIP: None"
        one.say("kube-address", "warning", at, message, hint, DNS)
    elif (
        stable and one.kind == "batch/v1 Job" and mapped(one.data, "spec").get("completionMode") != "Indexed"
    ):
        message = f"{host} has no address: only pods of an Indexed Job are called {stable[1]}"
        one.say("kube-address", "warning", at, message, "write completionMode: Indexed", DNS)
    service = services.get(stable[2] if stable else host.partition(".")[0])
    if stable and service is not None and mapped(service, "spec").get("clusterIP") != "None":
        message = f"the Service {stable[2]} is not headless, so {host} has no address"
        one.say("kube-address", "warning", at, message, "write clusterIP: None in the Service", DNS)
    outside = pod.spec.get("hostNetwork") is True and pod.spec.get("dnsPolicy") != "ClusterFirstWithHostNet"
    if outside and (stable or service is not None or ".svc" in host):
        message = f"a pod on the host's network asks the host's DNS, which does not know {host}"
        one.say("kube-address", "warning", at, message, "write dnsPolicy: ClusterFirstWithHostNet", DNS)
