"""What `tp fleet check` asks of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuneport.errors import Unavailable
from tuneport.fleets.protocol import Probe
from tuneport.types import Json

from tuneport_fleet_ray.api import JobsApi, Missing

OLDEST = (2, 9)


def nodes(api: JobsApi) -> list[dict[str, float]]:
    """The resources of each living node.

    Raises:
        Unavailable: the cluster cannot be asked.
    """
    try:
        summary = api.ask("/nodes?view=summary")["data"]["summary"]
        raylets: list[dict[str, Any]] = [node.get("raylet") or {} for node in summary]
        return [dict(one.get("resourcesTotal") or {}) for one in raylets if one.get("state") == "ALIVE"]
    except (Missing, KeyError, TypeError, AttributeError):
        raise Unavailable(f"{api.address} does not list its nodes", code="fleet-answer") from None


def probes(api: JobsApi, settings: Mapping[str, Json], root: Path) -> Iterator[Probe]:
    """In the order in which they depend on each other; the first bad one ends it."""
    try:
        said = api.ask("/api/version")
        version = str(said.get("ray_version", ""))
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        good = numbers >= OLDEST
        need = ".".join(map(str, OLDEST))
        yield Probe(
            "version", good, f"Ray {version} at {api.address}", "" if good else f"Ray {need} or newer"
        )
        api.ask("/api/jobs/")
        yield Probe("jobs", True, "the Jobs API answers")
        found = nodes(api)
    except Missing:
        hint = "`address` has to be that of Ray's dashboard, and ray[default] installed on the head"
        yield Probe("jobs", False, f"{api.address} has no Jobs API", hint)
        return
    except Unavailable as error:
        yield Probe("reach", False, error.message, error.hint)
        return
    cards = sum(int(node.get("GPU", 0)) for node in found)
    yield Probe("nodes", bool(found), f"{len(found)} nodes, {cards} cards")
    for series, shape in settings.get("nodes", {}).items():
        if series != "cpu":
            yield _shape(series, shape, found)
    text = f"jobs are kept in {root} on the nodes"
    if "storage" not in settings:
        text += ": set `storage` to a folder that they share, or each node keeps its own"
    yield Probe("storage", True, text)


def _shape(series: str, shape: Mapping[str, Json], found: list[dict[str, float]]) -> Probe:
    need = {"GPU": shape["gpus_per_node"], **shape.get("resources", {})}
    fit = sum(all(node.get(name, 0) >= amount for name, amount in need.items()) for node in found)
    wanted = int(shape.get("count", 1))
    words = ", ".join(f"{amount:g} {name}" for name, amount in need.items())
    known = sorted(
        {name for node in found for name in node if not name.startswith(("node:", "memory", "object"))}
    )
    hint = (
        "" if fit >= wanted else f"`nodes` declares {wanted}; the cluster's resources are {', '.join(known)}"
    )
    return Probe("nodes", fit >= wanted, f"{series}: {fit} nodes with {words}", hint)
