"""The keys of an entry under the group choices of a request, composed once for each set of choices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneport.dialects.hydra.choices import CONFIG
from tuneport.dialects.hydra.compose import Composition, compose
from tuneport.dialects.hydra.defaults import Choices, ComposeError, Tree, reach
from tuneport.errors import Invalid
from tuneport.types import Composed, Finding, Json, Key

_CACHE = " composed"


def composed_surface(
    document: dict[str, Any], entry: Mapping[str, Json], values: Mapping[str, Json]
) -> tuple[dict[str, Key], Composed]:
    """(keys, how they came to be) of one entry of a surface document.

    Args:
        values: settings by key; see `catalog.release`.

    Raises:
        Invalid: the release would refuse to compose these choices; the finding says why.
    """
    if entry.get("chain"):
        from tuneport.dialects.hydra.chain import chain_surface

        return chain_surface(document, entry, values)
    config = str(values.get(CONFIG) or entry["config"]).removesuffix(".yaml")
    choices = choices_of(reach(document["files"], entry["path"], config), values)
    made = document.setdefault(_CACHE, {})
    parts = (choices.chosen.items(), choices.added.items(), choices.deleted.items())
    key = (config, tuple(entry["path"]), *(tuple(sorted(part)) for part in parts))
    if key not in made:
        try:
            made[key] = compose(document, {**entry, "config": config}, choices)
        except ComposeError as error:
            finding = Finding(error.code, "error", error.message, error.hint, error.key)
            raise Invalid(error.message, code=error.code, hint=error.hint, findings=[finding]) from error
    found: Composition = made[key]
    chosen = {name: option for name, option in choices.chosen.items() if option is not None}
    chosen |= {f"+{name}": option for name, option in choices.added.items()}
    chosen |= {f"~{name}": option for name, option in choices.deleted.items()}
    if config != entry["config"]:
        chosen[CONFIG] = config
    options = {name: tuple(known) for name, known in found.options.items()}
    names = document.get("names", "")
    built = tuple(document["built"]) if "built" in document else None
    composed = Composed("hydra", chosen, found.groups, options, found.classes, found.free, names, built)
    return found.keys, composed


def tree_of(document: Mapping[str, Any], entry: str, config: str = "") -> Tree:
    """The files that an entry of a surface document can reach; `config` is another primary configuration."""
    item = document["entries"][entry]
    return reach(document["files"], item["path"], config.removesuffix(".yaml") or item["config"])


def choices_of(tree: Tree, values: Mapping[str, Json]) -> Choices:
    """The group choices among some settings: a key that names a group of files and holds text."""
    chosen: dict[str, str | None] = {}
    added: dict[str, str] = {}
    deleted: dict[str, str] = {}
    for key, value in values.items():
        bare = key.lstrip("+~")
        if isinstance(value, str) and tree.is_group(bare.partition("@")[0]):
            target = deleted if key.startswith("~") else (added if key.startswith("+") else chosen)
            target[bare] = value
    return Choices(chosen, added, deleted)
