"""Data and models of a request that a fleet, by what it declares, does not show to its jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os.path import normpath
from pathlib import Path

from tuneport.errors import TuneportError
from tuneport.experiment import fleets
from tuneport.experiment.project import Folder
from tuneport.types import Finding, Location, Request


def unseen(
    request: Request, project: Folder | None, mounts: Sequence[str], checkpoint: Location | None = None
) -> Iterator[Finding]:
    """A warning for each place of data that lies under none of the folders that the fleet says it shows;
    nothing where it says none. An image may hold what no mount shows.

    Args:
        mounts: the plan's, which a site's policies add.
        checkpoint: what an export reads, and that alone.
    """
    from tuneport.registry.plugins import fleet_factory

    place = fleets.find(request.fleet, project)
    if not place.settings.get("mounts"):
        return
    try:
        says = getattr(fleet_factory(place.kind), "shown_folders", None)
    except TuneportError:  # `submit` says what is wrong with it
        return
    folders = says(place.settings, request.image, mounts) if says else ()
    if not folders:
        return
    file, line = place.where("mounts")
    shown = ", ".join(dict.fromkeys(place.settings.get("mounts", ())))
    read = {name: getattr(request, name) for name in ("model", "train_data", "validation_data")}
    for name, found in ({"checkpoint": checkpoint} if checkpoint else read).items():
        for path in _paths(found) if found is not None else ():
            if not any(path.is_relative_to(folder) for folder in folders):
                message = f"{path} lies under no `mounts` of fleet {place.name} ({shown})"
                hint = "add a mount that holds it, under the same path, unless the image has it there"
                flag = f"--{name.replace('_', '-')}"
                yield Finding("fleet-data", "warning", message, hint, flag, file, line)


def _paths(location: Location) -> Iterator[Path]:
    """Where a location is on the machine that runs, as far as that is known before."""
    if location.kind == "path":
        yield Path(normpath(location.value))
    elif location.kind == "dataset":
        from tuneport.datasets import reference, store

        try:
            yield store.root().joinpath(*reference.parse_reference(location.owner)) / store.DATA
        except TuneportError:  # its own finding
            return
    for other in location.others:
        yield from _paths(other)
