"""What `tp fleet check` asks of a Slurm cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tuneport.errors import Unavailable
from tuneport.fleets.procs import user_name
from tuneport.fleets.protocol import Probe
from tuneport.types import Json

from tuneport_fleet_slurm.engine import Engine

OLDEST = 20
_USABLE = ("idle", "mixed", "allocated", "completing", "reserved", "planned")


def nodes(engine: Engine, settings: Mapping[str, Json]) -> list[tuple[str, int]]:
    """(state, cards) of each node of the fleet's partitions."""
    named = sorted(partitions(settings))
    only = [f"--partition={','.join(named)}"] if named else []
    said = engine.run("sinfo", "--noheader", "--Node", *only, "--format=%N|%T|%G")
    found = {}
    for line in said.splitlines():
        name, state, gres = (*line.split("|", 2), "", "")[:3]
        found[name] = (state.rstrip("*~#!%$@^-").lower(), cards(gres))
    return list(found.values())


def cards(gres: str) -> int:
    """The cards in a list such as `gpu:h200:8(S:0-1),shard:16`."""
    counts = re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:([0-9]+)(?=[,(]|$)", gres)
    return sum(map(int, counts))


def partitions(settings: Mapping[str, Json]) -> set[str]:
    shapes = settings.get("nodes", {}).values()
    return {name for name in (settings.get("partition"), *(s.get("partition") for s in shapes)) if name}


def runtimes(engine: Engine, settings: Mapping[str, Json]) -> tuple[str, ...]:
    found = ["venv"]
    if settings.get("images") == "none":
        return tuple(found)
    if engine.has("apptainer"):
        found += ["sif", "oci"]
    if has_pyxis(engine):
        found += [form for form in ("sqsh", "oci") if form not in found]
    return tuple(found)


def has_pyxis(engine: Engine) -> bool:
    try:
        return "--container-image" in engine.run("srun", "--help")
    except Unavailable:
        return False


def probes(engine: Engine, settings: Mapping[str, Json], storage: Path) -> Iterator[Probe]:
    """In the order in which they depend on each other; the first bad one of the engine ends it."""
    for ask in (_version, _controller, _partitions):
        try:
            probe = ask(engine, settings)
        except Unavailable as error:
            yield Probe(ask.__name__.strip("_"), False, error.message, error.hint)
            return
        yield probe
        if not probe.ok:
            return
    for more in (_shapes, _account, _containers):
        try:
            yield from more(engine, settings)
        except Unavailable as error:
            yield Probe(more.__name__.strip("_"), False, error.message, error.hint)
    yield _storage(storage)


def _version(engine: Engine, _settings: Mapping[str, Json]) -> Probe:
    said = engine.run("sbatch", "--version").strip()
    number = re.search(r"\b([0-9]{2})\.[0-9]+", said)
    old = number is not None and int(number[1]) < OLDEST
    return Probe("version", not old, said, f"versions from {OLDEST} on are supported" if old else "")


def _controller(engine: Engine, _settings: Mapping[str, Json]) -> Probe:
    said = " ".join(engine.run("scontrol", "ping").split())
    up = " UP" in said
    return Probe("controller", up, said, "" if up else "slurmctld is down; its administrator can say why")


def _partitions(engine: Engine, settings: Mapping[str, Json]) -> Probe:
    found = nodes(engine, settings)
    named = ", ".join(sorted(partitions(settings))) or "all partitions"
    if not found:
        known = " ".join(engine.run("sinfo", "--noheader", "--format=%R").split())
        return Probe("partition", False, f"{named} has no nodes", f"the partitions are {known}")
    usable = sum(state.startswith(_USABLE) for state, _ in found)
    total = sum(count for _, count in found)
    text = f"{named}: {usable} of {len(found)} nodes usable, {total} cards"
    return Probe("partition", usable > 0, text, "" if usable else "sinfo -R says why its nodes are down")


def _shapes(engine: Engine, settings: Mapping[str, Json]) -> Iterator[Probe]:
    for series, shape in settings.get("nodes", {}).items():
        if series == "cpu":
            continue
        here = {"partition": shape.get("partition") or settings.get("partition")}
        sizes = [count for _, count in nodes(engine, {k: v for k, v in here.items() if v})]
        fit = sum(size >= shape["gpus_per_node"] for size in sizes)
        wanted = shape.get("count", 1)
        text = f"{series}: {fit} nodes with {shape['gpus_per_node']} cards or more"
        hint = (
            ""
            if fit >= wanted
            else f"`nodes` declares {wanted} of them; the cards of nodes are {sorted(sizes)}"
        )
        yield Probe("nodes", fit >= wanted, text, hint)


def _account(engine: Engine, settings: Mapping[str, Json]) -> Iterator[Probe]:
    kept = re.search(r"AccountingStorageType\s*=\s*(\S+)", engine.run("scontrol", "show", "config"))
    if kept is None or "slurmdbd" not in kept[1] or not engine.has("sacctmgr"):
        yield Probe("accounting", True, "none: how a job ended is told by its own record")
        return
    said = engine.run(
        "sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={user_name()}",
        "format=account,qos",
    )  # fmt: skip
    rows = [line.split("|", 1) for line in said.splitlines() if "|" in line]
    accounts = sorted({row[0] for row in rows})
    wanted = settings.get("account")
    good = not wanted or not accounts or wanted in accounts
    text = f"accounts of this user: {', '.join(accounts) or 'none recorded'}"
    yield Probe("account", good, text, "" if good else f"{wanted!r} is none of them: correct `account`")


def _containers(engine: Engine, settings: Mapping[str, Json]) -> Iterator[Probe]:
    tool = settings.get("containers")
    if tool is None:
        return
    there = has_pyxis(engine) if tool == "pyxis" else engine.has(tool)
    hint = (
        "srun has no --container-image: pyxis is not installed"
        if tool == "pyxis"
        else ("apptainer is not on PATH here; if a module brings it, add `module load …` to `setup`")
    )
    good = there or bool(settings.get("setup"))
    yield Probe("containers", good, f"{tool} is {'here' if there else 'not here'}", "" if good else hint)


def _storage(root: Path) -> Probe:
    from tuneport.jobs.mounts import network_file_system

    place = root
    while not place.exists() and place != place.parent:
        place = place.parent
    if not os.access(place, os.W_OK):
        return Probe("storage", False, f"{root} cannot be written", "set `storage` to a folder you can write")
    kind = network_file_system(place)
    text = f"{root} is on {kind}" if kind else f"{root} is on a disk of this machine"
    return Probe("storage", True, text + ("" if kind else ": the nodes must see it under that name"))
