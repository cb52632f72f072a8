"""What is wrong with the groups of a Ray cluster on Kubernetes: what Ray is told against what its pods have.

Source: KubeRay 1.7 ray-operator/controllers/ray.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuneport.jobfiles.documents import FILLED, Object, Place
from tuneport.jobfiles.pods import Pod, environment, gpus, listed, mapped, quantity, shared_memory
from tuneport.text import closest
from tuneport.types import Json

POD = "KubeRay 1.7 ray-operator/controllers/ray/common/pod.go, generateRayStartCommand"
CLUSTER = "KubeRay 1.7 ray-operator/controllers/ray/utils/validation.go, ValidateRayClusterSpec"
JOB = "KubeRay 1.7 ray-operator/controllers/ray/utils/validation.go, ValidateRayJobSpec"
NAMES = "KubeRay 1.7 ray-operator/controllers/ray/utils/validation.go, ValidateRayJobMetadata"
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,45}[a-z0-9])?\Z")
_PLACES: dict[str, Place] = {
    "RayCluster": ("spec",),
    "RayJob": ("spec", "rayClusterSpec"),
    "RayService": ("spec", "rayClusterConfig"),
}
_IMAGE = re.compile(r"rayproject/ray(?:-ml|-llm)?:(\d+\.\d+\.\d+)(?![\w.]*(rc|dev|nightly))")
_ON_GPU = re.compile(r"gpu|nvidia|accelerator|[ahlvt]\d{2,3}\b", re.I)


@dataclass(frozen=True, slots=True)
class Group:
    """The head, or one kind of workers; `count` pods of it, 0 where that is not known."""

    name: str
    place: Place
    data: Mapping[str, Any]
    count: int

    @property
    def head(self) -> bool:
        return self.place[-1] == "headGroupSpec"

    def pod(self) -> Pod:
        return Pod((*self.place, "template", "spec"), mapped(self.data, "template", "spec"), self.count)

    def container(self) -> tuple[Place, Mapping[str, Any]]:
        """The container that runs Ray, which is the first."""
        return next(iter(self.pod().containers()), (self.place, {}))


def groups(one: Object) -> list[Group]:
    """The groups of an object's cluster, the head first; none where it is no object of KubeRay."""
    version, _, kind = one.kind.partition(" ")
    if not version.startswith("ray.io/") or kind not in _PLACES:
        return []
    place = _PLACES[kind]
    cluster = mapped(one.data, *map(str, place))
    found = [Group("the head", (*place, "headGroupSpec"), mapped(cluster, "headGroupSpec"), 1)]
    for number, group in enumerate(listed(cluster, "workerGroupSpecs")):
        if isinstance(group, dict):
            name = f"the group {group.get('groupName', number)}"
            found.append(Group(name, (*place, "workerGroupSpecs", number), group, _count(group)))
    return found


def _count(group: Mapping[str, Json]) -> int:
    """Pods of a worker group; 0 where it is not written, or grows and shrinks."""
    number, hosts = group.get("replicas"), group.get("numOfHosts", 1)
    plain = all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in (number, hosts))
    return number * hosts if plain else 0


def hardware(one: Object) -> tuple[int, int]:
    """(machines with GPUs, GPUs of each) of an object's cluster; zeros where they differ or may change."""
    cluster = mapped(one.data, *map(str, _PLACES[one.kind.partition(" ")[2]]))
    if cluster.get("enableInTreeAutoscaling"):
        return 0, 0
    counted = [(group.count, _believed(group)) for group in groups(one)]
    counted = [(count, each) for count, each in counted if each]
    if not counted or any(count == 0 for count, _ in counted) or len({each for _, each in counted}) > 1:
        return 0, 0
    return sum(count for count, _ in counted), counted[0][1]


def _believed(group: Group) -> int:
    """The GPUs that Ray takes a group's pods to have."""
    said = quantity(mapped(group.data, "rayStartParams").get("num-gpus"))
    return gpus(group.container()[1]) if said is None else int(said)


def check(one: Object) -> None:
    """Say what is wrong with an object of KubeRay; nothing where it is none."""
    found = groups(one)
    for group in found:
        _gpus(one, group, any(gpus(other.container()[1]) for other in found))
        _memory(one, group)
        _replicas(one, group)
        if group.data.get("resources") and mapped(group.data, "rayStartParams").keys() & {
            "num-cpus", "num-gpus", "memory", "resources",
        }:  # fmt: skip
            message = (
                f"{group.name} says its resources in rayStartParams and in resources: KubeRay refuses it"
            )
            one.say("ray-refused", "error", (*group.place, "resources"), message, "keep one of them", CLUSTER)
    for group in found:
        for name in mapped(group.data, "rayStartParams"):
            if "_" in name:
                message = f"ray start has no --{name}, and the pod ends at once"
                hint = f"write {name.replace('_', '-')}"
                source = "ray python/ray/scripts/scripts.py, start"
                one.say("ray-refused", "error", (*group.place, "rayStartParams", name), message, hint, source)
    if found:
        _version(one, found)
        if one.kind.endswith(" RayJob"):
            _job(one)


def _gpus(one: Object, group: Group, others: bool) -> None:
    at, (_, container) = (*group.place, "rayStartParams", "num-gpus"), group.container()
    params = mapped(group.data, "rayStartParams")
    said, has = quantity(params.get("num-gpus")), gpus(container)
    if said is not None and said > has and not _sees_more(group, container):
        message = (
            f"Ray is told that {group.name} has {said:g} GPUs, and its container is given {has or 'none'}"
        )
        hint = f"write nvidia.com/gpu: {said:g} under its limits, or leave num-gpus away"
        # Published examples let the head of a cluster without GPUs count some that nothing uses.
        one.say("ray-gpus", "error" if others or not group.head else "warning", at, message, hint, POD)
    elif group.head and said is None and not has and others and _on_gpu_machine(group.pod().spec):
        message = "the head has no GPU of its own and may run on a machine with GPUs, which Ray then counts"
        one.say("ray-gpus", "warning", at, message, 'write num-gpus: "0" in its rayStartParams', POD)


def _sees_more(group: Group, container: Mapping[str, Json]) -> bool:
    """Whether a container may see GPUs that it does not ask for."""
    spec, rights = group.pod().spec, mapped(container, "securityContext")
    named = environment(container)
    claims = listed(mapped(container, "resources"), "claims")
    return bool(
        rights.get("privileged")
        or spec.get("runtimeClassName")
        or "NVIDIA_VISIBLE_DEVICES" in named
        or claims
    )


def _on_gpu_machine(spec: Mapping[str, Json]) -> bool:
    chosen = [f"{name} {value}" for name, value in mapped(spec, "nodeSelector").items()]
    borne = [str(item.get("key", "")) for item in listed(spec, "tolerations") if isinstance(item, dict)]
    return any(map(_ON_GPU.search, [*chosen, *borne]))


def _memory(one: Object, group: Group) -> None:
    """An object store that does not fit into the container, or into its shared memory."""
    at, (_, container) = (*group.place, "rayStartParams", "object-store-memory"), group.container()
    params = mapped(group.data, "rayStartParams")
    store = quantity(params.get("object-store-memory"))
    most = quantity(mapped(container, "resources", "limits").get("memory"))
    if store is None or "plasma-directory" in params:
        return
    volume = shared_memory(group.pod(), container)
    size = quantity(mapped(volume, "emptyDir").get("sizeLimit")) if volume else None
    if most is not None and store > most:
        message = f"the object store of {_size(store)} is larger than the container's {_size(most)}"
        hint = "raise limits: memory above it, or leave object-store-memory away"
        source = "KubeRay 1.7 ray-operator/controllers/ray/common/pod.go, makeEmptyDirVolume"
        one.say("ray-memory", "error", at, message, hint, source)
    elif size is not None and store > size:
        message = f"the object store of {_size(store)} does not fit into /dev/shm of {_size(size)}"
        hint = "raise sizeLimit above it: Ray falls back to the disk otherwise"
        one.say(
            "ray-memory",
            "warning",
            at,
            message,
            hint,
            "ray/_private/services.py, determine_plasma_store_config",
        )


def _size(amount: float) -> str:
    return f"{amount / 2**30:.1f} GiB"


def _replicas(one: Object, group: Group) -> None:
    number, least, most = (group.data.get(name) for name in ("replicas", "minReplicas", "maxReplicas"))
    whole = {name: n for name, n in (("n", number), ("least", least), ("most", most)) if isinstance(n, int)}
    if "least" in whole and "most" in whole and whole["least"] > whole["most"]:
        message = f"minReplicas {least} is more than maxReplicas {most}: KubeRay refuses it"
        one.say("ray-refused", "error", (*group.place, "minReplicas"), message, "", CLUSTER)
    elif "n" in whole and not whole.get("least", 0) <= whole["n"] <= whole.get("most", whole["n"]):
        message = f"replicas {number} is not between minReplicas and maxReplicas, and KubeRay moves it there"
        source = "KubeRay 1.7 ray-operator/controllers/ray/utils/util.go, GetWorkerGroupDesiredReplicas"
        one.say("ray-replicas", "warning", (*group.place, "replicas"), message, "", source)


def _version(one: Object, found: list[Group]) -> None:
    place = _PLACES[one.kind.partition(" ")[2]]
    said = mapped(one.data, *map(str, place)).get("rayVersion")
    images: Iterator[tuple[Place, str]] = (
        (where, str(container.get("image", "")))
        for where, container in (group.container() for group in found)
    )
    for where, image in images:
        match = _IMAGE.search(image)
        if match is None:
            continue
        if isinstance(said, str) and said and said != match[1]:
            message = f"rayVersion is {said}, and the image has Ray {match[1]}"
            hint = "write the image's version: KubeRay decides by it how to start Ray"
            one.say("ray-version", "warning", (*where, "image"), message, hint, CLUSTER)
            return
        said = match[1]  # of the head, which the workers join


def _job(one: Object) -> None:
    spec, name = mapped(one.data, "spec"), mapped(one.data, "metadata").get("name")
    if isinstance(name, str) and not FILLED.search(name) and not _NAME.match(name):
        message = f"{name!r} is no name of a RayJob: KubeRay refuses it"
        hint = "write at most 47 small letters, digits and dashes, a letter first"
        one.say("ray-refused", "error", ("metadata", "name"), message, hint, NAMES)
    deadline = quantity(spec.get("activeDeadlineSeconds"))
    if deadline is not None and deadline <= 0:
        _refused(one, "activeDeadlineSeconds", "a RayJob has at least a second")
    modes = ("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode")
    mode = spec.get("submissionMode")
    if isinstance(mode, str) and mode not in ("", *modes) and not FILLED.search(mode):
        close = closest(mode, modes)
        hint = f"did you mean {close}?" if close else ""
        _refused(one, "submissionMode", f"{mode!r} is none of {', '.join(modes)}", hint)
    selector, ends = mapped(spec, "clusterSelector"), spec.get("shutdownAfterJobFinishes") is True
    if not selector and not spec.get("rayClusterSpec"):
        _refused(one, "rayClusterSpec", "a RayJob needs rayClusterSpec or clusterSelector")
    if spec.get("suspend") is True and not ends:
        _refused(one, "suspend", "a RayJob that keeps its cluster cannot be suspended")
    if (quantity(spec.get("ttlSecondsAfterFinished")) or 0) > 0 and not ends:
        hint = "write shutdownAfterJobFinishes: true"
        _refused(
            one, "ttlSecondsAfterFinished", "a RayJob that keeps its cluster has no time to end it", hint
        )
    retries = (quantity(spec.get("backoffLimit")) or 0) > 0
    if retries and (selector or spec.get("submissionMode") == "InteractiveMode"):
        mode = "clusterSelector" if selector else "InteractiveMode"
        _refused(one, "backoffLimit", f"a RayJob with {mode} is not tried again")


def _refused(one: Object, name: str, message: str, hint: str = "") -> None:
    one.say("ray-refused", "error", ("spec", name), f"{message}: KubeRay refuses it", hint, JOB)
