"""The pods of an object of Kubernetes: their places and numbers, and what their containers ask for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuneport.jobfiles.documents import Object, Place
from tuneport.types import Json

SHARED = "/dev/shm"  # noqa: S108 - a path in a container
_GPU = re.compile(r".*gpu\Z|nvidia\.com/mig-")
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?\Z")
_UNITS = {
    **dict(zip("num", (1e-9, 1e-6, 1e-3), strict=True)),
    **{unit: 1000.0 ** (step + 1) for step, unit in enumerate("kMGTPE")},
    **{f"{unit}i": 1024.0 ** (step + 1) for step, unit in enumerate("KMGTPE")},
}


@dataclass(frozen=True, slots=True)
class Pod:
    """`copies`: how many of it run at once, 0 where that is not known. `grouped`: whether the object's
    controller gives each its number and the address of the first by variables of its own."""

    place: Place
    spec: Mapping[str, Any]
    copies: int
    grouped: bool = False

    def containers(self) -> Iterator[tuple[Place, Mapping[str, Any]]]:
        """(place, container) of each that runs for the pod's whole life."""
        for number, container in enumerate(listed(self.spec, "containers")):
            if isinstance(container, dict):
                yield (*self.place, "containers", number), container


def found(one: Object) -> list[Pod]:
    """Every pod of an object, of whatever kind."""
    kind = one.kind.partition(" ")[2]
    return list(_below(one.data, (), kind, 1 if kind in ("Pod", "Job", "CronJob", "JobSet") else 0))


def _below(value: Json, place: Place, kind: str, copies: int) -> Iterator[Pod]:
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _below(item, (*place, number), kind, copies)
    if not isinstance(value, dict):
        return
    if isinstance(value.get("containers"), list) and place and place[-1] == "spec":
        yield Pod(
            place, value, copies, grouped=kind not in ("Pod", "Job", "CronJob", "Deployment", "StatefulSet")
        )
        return
    for name in ("parallelism", "replicas", "numOfHosts"):
        if name in value and kind != "RayService":
            number = value[name]
            plain = isinstance(number, int) and not isinstance(number, bool) and number > 0
            copies = (copies or 1) * number if plain else 0
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
    return float(match[1]) * (
        10.0 ** int(unit[1:]) if unit[:1] in ("e", "E") and unit[1:] else _UNITS.get(unit, 1.0)
    )


def gpu_fields(amounts: Mapping[str, Json]) -> dict[str, Json]:
    """Those of a container's `limits` or `requests` that name GPUs."""
    return {name: value for name, value in amounts.items() if _GPU.match(name)}


def gpus(container: Mapping[str, Json]) -> int:
    """GPUs of a container: its limit, which a request without one does not replace."""
    limits = gpu_fields(mapped(container, "resources", "limits"))
    return int(sum(quantity(value) or 0 for value in limits.values()))


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
