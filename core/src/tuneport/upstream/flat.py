"""The keys of a surface document by entry, composed where the release composes its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneport.errors import TuneportError
from tuneport.types import Key

Keys = Mapping[str, Mapping[str, Key]]


def flat(document: Mapping[str, Any]) -> tuple[dict[str, dict[str, Key]], list[str]]:
    """(entry -> native key -> what is known of it, what could not be composed).

    An entry that is composed of files is there once as it starts, and once more for every other option of
    every group, as `ENTRY GROUP=OPTION`; one whose files build on each other once for each file.
    """
    from tuneport.registry import surfaces

    found: dict[str, dict[str, Key]] = {}
    undecided: list[str] = []
    for entry, item in document["entries"].items():
        if "keys" in item:
            found[entry] = {name: surfaces.key(name, facts) for name, facts in item["keys"].items()}
        else:
            _composed(dict(document), entry, item, found, undecided)
    return found, undecided


def _composed(
    document: dict[str, Any],
    entry: str,
    item: Mapping[str, Any],
    found: dict[str, dict[str, Key]],
    undecided: list[str],
) -> None:
    from tuneport.dialects.hydra.compose import compose as composition
    from tuneport.dialects.hydra.defaults import Choices, ComposeError
    from tuneport.dialects.hydra.surface import composed_surface

    def compose(choices: dict[str, str | None], label: str) -> Any:
        try:
            if item.get("chain"):
                keys, how = composed_surface(document, item, {})
            else:  # by itself, since a group may be in a folder that only the file names
                how = composition(document, item, Choices(choices))  # type: ignore[assignment]
                keys = how.keys  # type: ignore[attr-defined]
        except (
            ComposeError,
            TuneportError,
            KeyError,
            TypeError,
            AttributeError,
            ValueError,
            RecursionError,
        ) as error:
            undecided.append(f"{label} cannot be composed: {error}")
            return None
        found[label] = dict(keys)
        return how

    start = compose({}, entry)
    if start is None:
        return
    if not item.get("chain"):
        for group, options in start.options.items():
            for option in options:
                if option != start.groups.get(group):
                    label = f"{entry} {group}={option}"
                    compose({group: option}, label)
