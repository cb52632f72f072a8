"""The pods of an object of Kubernetes: their places and numbers, and what their containers ask for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuneport.jobfiles.documents import Object, Place
from tuneport.types import Json

SHARED = "/dev/shm"  # noqa: S108 - a path in a container
_GPU = re.compile(r".*/gpu\Z")
_DEVICE = re.compile(r"(?!([a-z]+\.)*kubernetes\.io/)[\w.-]+/[\w.-]+\Z|hugepages-")
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?\Z")
_UNITS = {
    **dict(zip("num", (1e-9, 1e-6, 1e-3), strict=True)),
    **{unit: 1000.0 ** (step + 1) for step, unit in enumerate("kMGTPE")},
    **{f"{unit}i": 1024.0 ** (step + 1) for step, unit in enumerate("KMGTPE")},
}


ALONE = ("Pod", "Job", "CronJob", "JobSet")
"""Kinds of which there is one pod, or one of each template, where nothing says how many."""
PLAIN = ("Pod", "Job", "CronJob", "Deployment", "StatefulSet", "DaemonSet")
"""Kinds whose pods get nothing that is not written in them."""
_COUNTS = {
    **dict.fromkeys(("Pod", "DaemonSet", "RayService"), ()),
    **dict.fromkeys(("Job", "CronJob"), ("parallelism",)),
    "JobSet": ("replicas", "parallelism"),
    "LeaderWorkerSet": ("size",),
}


@dataclass(frozen=True, slots=True)
class Pod:
    """`copies`: how many of it run at once, 0 where that is not known. `grouped`: whether the object's
    controller gives each its number and the address of the first by variables of its own."""

    place: Place
    spec: Mapping[str, Any]
    copies: int
    grouped: bool = False

    def containers(self, *parts: str) -> Iterator[tuple[Place, Mapping[str, Any]]]:
        """(place, container) of each that runs for the pod's whole life, or of other parts of the pod."""
        for part in parts or ("containers",):
            for number, container in enumerate(listed(self.spec, part)):
                if isinstance(container, dict):
                    yield (*self.place, part, number), container

    def every(self) -> Iterator[tuple[Place, Mapping[str, Any]]]:
        """(place, container) of each, those that run before the others included."""
        return self.containers("initContainers", "containers")


def pods_kind(one: Object) -> str:
    """An object's kind without its version; empty where another group calls its own as Kubernetes does."""
    version, _, kind = one.kind.partition(" ")
    own = kind not in PLAIN or version.partition("/")[0] in ("v1", "batch", "apps", "extensions")
    return kind if own else ""


def found(one: Object) -> list[Pod]:
    """Every pod of an object, of whatever kind."""
    kind = pods_kind(one)
    return list(_below(one.data, (), kind, 1 if kind in ALONE else None))


def _below(value: Json, place: Place, kind: str, copies: int | None) -> Iterator[Pod]:
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _below(item, (*place, number), kind, copies)
    if not isinstance(value, dict):
        return
    if isinstance(value.get("containers"), list) and place and place[-1] == "spec":
        yield Pod(place, value, copies or 0, grouped=kind not in PLAIN)
        return
    for name in _COUNTS.get(kind, ("replicas",)):
        if name in value:
            number = value[name]
            plain = isinstance(number, int) and not isinstance(number, bool) and number > 0
            copies = (1 if copies is None else copies) * (number if plain else 0)
    for name, item in value.items():
        yield from _below(item, (*place, name), kind, copies)


def listed(value: Json, name: str) -> list[Any]:
    """A field that holds a list; empty where it does not."""
    found_ = value.get(name) if isinstance(value, dict) else None
    return found_ if isinstance(found_, list) else []


def mapped(value: Json, *names: str) -> Mapping[str, Any]:
    """A field, by its path, that holds a mapping; empty where it does not."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def quantity(value: Json) -> float | None:
    """The number that a quantity means, None where it is none."""
    match = _QUANTITY.match(str(value).strip()) if isinstance(value, str | int | float) else None
    if match is None or isinstance(value, bool):
        return None
    unit = match[2] or ""
    exponent = unit[:1] in ("e", "E") and unit[1:]
    number = float(f"{match[1]}e{exponent}") if exponent else float(match[1]) * _UNITS.get(unit, 1.0)
    return number if math.isfinite(number) else None


def whole(amounts: Mapping[str, Json]) -> dict[str, Json]:
    """Those of a container's `limits` or `requests` that are counted, not shared: GPUs and other devices."""
    return {name: value for name, value in amounts.items() if _DEVICE.match(name)}


def gpus(container: Mapping[str, Json]) -> int:
    """GPUs of a container: its limit, which a request without one does not replace."""
    limits = mapped(container, "resources", "limits")
    return int(sum(quantity(value) or 0 for name, value in limits.items() if _GPU.match(name)))


def pod_gpus(pod: Pod) -> int:
    """GPUs of all containers of a pod."""
    return sum(gpus(container) for _, container in pod.containers())


def environment(container: Mapping[str, Json]) -> dict[str, str | None]:
    """Variables of a container; None for what comes from elsewhere."""
    named: dict[str, str | None] = {}
    for item in listed(container, "env"):
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            value = item.get("value")
            named[item["name"]] = None if "valueFrom" in item else "" if value is None else str(value)
    return named


def shared_memory(pod: Pod, container: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """The volume that is mounted as shared memory, empty where nothing says what it is; None without one."""
    for mount in listed(container, "volumeMounts"):
        if isinstance(mount, dict) and str(mount.get("mountPath", "")).rstrip("/") == SHARED:
            volumes = listed(pod.spec, "volumes")
            return next(
                (v for v in volumes if isinstance(v, dict) and v.get("name") == mount.get("name")), {}
            )
    return None


def words(container: Mapping[str, Json]) -> list[tuple[str, Place]]:
    """(word, its place in the container) of `command` and `args`."""
    return [
        (str(word), (name, number))
        for name in ("command", "args")
        for number, word in enumerate(listed(container, name))
        if isinstance(word, str | int | float)
    ]
