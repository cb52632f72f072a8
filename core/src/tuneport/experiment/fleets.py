"""The places that run plans, as the site file and the project's `fleets.yaml` declare them.

An entry of `fleets.yaml` is laid over the site's entry of the same name, key by key; one of another kind
replaces it. A kind of fleet that is installed is a place under its own name without any entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tuneport.errors import Invalid, Unavailable
from tuneport.experiment.hardware import NODE_GPUS
from tuneport.experiment.yamlread import Document
from tuneport.text import closest
from tuneport.types import EMPTY, Finding, Json, Pool

if TYPE_CHECKING:
    from tuneport.experiment.project import Folder
    from tuneport.fleets.protocol import Fleet

FILE = "fleets.yaml"


class Place(NamedTuple):
    """One fleet. `settings` are what its plugin is made with; `documents` are the files that declare it, the
    stronger first: none where only its kind is known."""

    name: str
    kind: str
    settings: Mapping[str, Json] = EMPTY
    documents: tuple[Document, ...] = ()

    @property
    def nodes(self) -> Mapping[str, Mapping[str, Json]]:
        """Series -> its node's shape; empty where the fleet declares none."""
        found: Mapping[str, Mapping[str, Json]] = self.settings.get("nodes", {})
        return found

    @property
    def images(self) -> str:
        """Which images its jobs may run in: `any`, those named by `digest`, or `none`."""
        return str(self.settings.get("images", "none" if self.kind == "local" else "any"))

    def node_gpus(self, series: str) -> int:
        """Accelerators of a node of a series; of `cpu`, processes, 0 where that is not declared."""
        declared = self.nodes.get(series, {}).get("gpus_per_node")
        if declared is None and series == "cpu":
            return 0
        return int(declared or self.settings.get("gpus_per_node", NODE_GPUS))

    def takes_pools(self, pools: Sequence[Pool]) -> bool:
        """Whether several pools can be told apart there. A Ray cluster knows its nodes by their resources."""
        if self.kind == "ray":
            return all(self.nodes.get(pool.series, {}).get("resources") for pool in pools)
        return self.kind != "local"

    def where(self, *path: str) -> tuple[str, int]:
        """The file and line that decide a setting; ("", 0) where nothing declares the fleet."""
        for document in self.documents:
            if ("fleets", self.name, *path) in document.lines:
                return document.file, document.lines["fleets", self.name, *path]
        if path:
            return self.where(*path[:-1])
        return ("", 0)


def places(project: Folder | None = None) -> tuple[dict[str, Place], list[Finding]]:
    """Every declared fleet by name, and what is wrong with the project's file, which is then left out.

    Raises:
        Invalid: the site file is broken.
    """
    from tuneport.experiment.site import site_document

    documents = [site_document()]
    findings: list[Finding] = []
    path = project.root / FILE if project else None
    if path is not None and (path.exists() or path.is_symlink()):
        own, findings = _read(path)
        documents += [own] if own else []
    found: dict[str, Place] = {}
    for document in documents:
        for name, entry in (document.data or {}).get("fleets", {}).items():
            found[name] = _over(found.get(name), name, dict(entry), document)
    return found, findings


def find(name: str, project: Folder | None = None) -> Place:
    """The fleet called `name`; one that nothing declares is that of the kind of that name.

    Raises:
        Invalid: the site file is broken, or the project's and it may be about this fleet.
    """
    declared, findings = places(project)
    if findings and name not in ("local", *declared):
        raise Invalid(f"{FILE} is broken", code="fleets-broken", findings=findings)
    return declared.get(name) or undeclared(name)


def undeclared(name: str) -> Place:
    """A fleet that is known by its kind alone."""
    return Place(name, "kubernetes" if name == "kuberay" else name)


def _over(below: Place | None, name: str, entry: dict[str, Json], document: Document) -> Place:
    kind = str(entry.pop("kind"))
    if below is None or below.kind != kind:
        return Place(name, kind, entry, (document,))
    return below._replace(settings={**below.settings, **entry}, documents=(document, *below.documents))


def _read(path: Path) -> tuple[Document | None, list[Finding]]:
    from tuneport.errors import TuneportError
    from tuneport.experiment.twin import read_kept

    try:
        document = read_kept(path)
    except TuneportError as error:
        return None, [Finding(error.code, "error", error.message, error.hint, FILE, str(path))]
    findings = document.findings or problems(document)
    return (None, findings) if findings else (document, [])


def problems(document: Document) -> list[Finding]:
    """What is wrong with a parsed file that holds `fleets:` and nothing else."""
    from tuneport.registry import schemas

    return schemas.check(document, "fleets", "fleets-schema")


def unfit(place: Place, pools: Sequence[Pool]) -> Iterator[Finding]:
    """Why pools do not fit a fleet as it is declared (errors, warnings), or waste part of it (notes)."""
    if len(pools) > 1 and not place.takes_pools(pools):
        message = f"{len(pools)} pools need a fleet that can place them; {place.name} is of kind {place.kind}"
        hint = "name one of kind kubernetes or slurm, or one of kind ray whose `nodes` name the `resources`"
        yield Finding("pools-fleet", "error", message, f"{hint} of each series", "--fleet")
        return
    for series in dict.fromkeys(pool.series for pool in pools):
        wanted = [pool for pool in pools if pool.series == series]
        shape = place.nodes.get(series)
        if shape is not None:
            yield from _unfit_series(place, series, shape, wanted)
        elif place.nodes and series != "cpu":
            file, line = place.where("nodes")
            known = ", ".join(f"{name} ({place.node_gpus(name)} a node)" for name in place.nodes)
            near = closest(series, place.nodes)
            hint = f"did you mean {near!r}? " if near else ""
            message = f"fleet {place.name} declares no {series} nodes"
            yield Finding(
                "fleet-series", "warning", message, f"{hint}it has {known}", "--profile", file, line
            )


def _unfit_series(
    place: Place, series: str, shape: Mapping[str, Json], pools: Sequence[Pool]
) -> Iterator[Finding]:
    size, count = place.node_gpus(series), shape.get("count")
    file, line = place.where("nodes", series)
    what = "process" if series == "cpu" else "card"
    nodes = sum(pool.nodes for pool in pools)
    for pool in pools:
        total = pool.nodes * pool.gpus_per_node
        if pool.gpus_per_node > size:
            message = (
                f"pool {pool.name} wants {pool.gpus_per_node} {what}{'e' * (what == 'process')}s on a node; "
                f"{series} nodes of {place.name} have {size}"
            )
            hint = f"--profile {series}:{total} makes nodes of {size}" if total % size == 0 else ""
            yield Finding("fleet-node-size", "warning", message, hint, "--profile", file, line)
        elif pool.gpus_per_node < size and series != "cpu":
            message = (
                f"pool {pool.name} takes {pool.gpus_per_node} of the {size} cards of a {series} node"
                + (f", on {pool.nodes} nodes" if pool.nodes > 1 else "")
                + "; the others may go to other jobs"
            )
            fits = pool.nodes > 1 and total <= size
            hint = f"{total} cards fit on one node: --profile {series}:{total}" if fits else ""
            yield Finding("fleet-partial-node", "note", message, hint, "--profile", file, line)
    if len(pools) > 1 and len({pool.gpus_per_node for pool in pools}) > 1 and series != "cpu":
        shapes = ", ".join(f"{pool.name} {pool.nodes} x {pool.gpus_per_node}" for pool in pools)
        message = f"the {series} pools are uneven ({shapes}): each is scheduled for its own shape"
        yield Finding("fleet-uneven-pools", "note", message, "", "--profile", file, line)
    if count is not None and nodes > count:
        message = f"{nodes} {series} nodes are asked for; fleet {place.name} has {count}"
        hint = f"at most {series}:{count * size}, or correct `count`"
        yield Finding("fleet-nodes", "warning", message, hint, "--profile", file, line)


def refuse_unfit(place: Place, pools: Sequence[Pool]) -> None:
    """What `submit` makes of `unfit`.

    Raises:
        Unavailable: the pools cannot be placed there.
    """
    for finding in unfit(place, pools):
        if finding.severity != "note":
            raise Unavailable(finding.message, code=finding.code, hint=finding.hint)


def connect(place: Place) -> Fleet:
    """The fleet, made by the plugin of its kind: the only one that is imported.

    Raises:
        NotFound: no installed plugin offers the kind. Invalid: a setting is not one of the kind's; each with
            its file and line.
    """
    from tuneport.registry.plugins import load_fleet

    findings = wrong_settings(place)
    if findings:
        raise Invalid(
            f"the settings of fleet {place.name} are not those of kind {place.kind}",
            code="fleet-setting",
            findings=findings,
        )
    fleet: Fleet = load_fleet(place.kind, place.settings)
    return fleet


def wrong_settings(place: Place) -> list[Finding]:
    """The settings that are none of the kind's, each with its file and line.

    Raises:
        NotFound: no installed plugin offers the kind.
    """
    from tuneport.registry.plugins import fleet_factory

    taken = getattr(fleet_factory(place.kind), "SETTINGS", None)
    return list(_settings_problems(place, taken)) if isinstance(taken, Mapping) else []


def _settings_problems(place: Place, taken: Mapping[str, Any]) -> Iterator[Finding]:
    """`taken` maps the kind's settings to JSON Schemas; None stands for what all kinds share."""
    from tuneport.registry import schemas

    spec = schemas.schema("fleets")
    shared = spec["$defs"]["fleet"]["properties"]
    known = {name: shared[name] if schema is None else schema for name, schema in taken.items()}
    against = {
        "type": "object",
        "properties": {**known, "gpus_per_node": shared["gpus_per_node"], "nodes": shared["nodes"]},
        "additionalProperties": False,
        "$defs": spec["$defs"],
    }
    for path, message, hint in schemas.problems(dict(place.settings), against):
        words = tuple(map(str, path))
        unknown = message.partition("'")[2].partition("'")[0] if message.startswith("unknown key") else ""
        file, line = place.where(*words, *([unknown] if unknown else []))
        key = ".".join((place.name, *words))
        yield Finding("fleet-setting", "error", f"{key}: {message}", hint, f"fleets.{key}", file, line)
