"""How an effective configuration becomes argv, environment and files of one command.

A dialect is a function from its settings (the manifest's `launch.dialect`) and a context to a
`Rendered`. An adapter may bring its own instead of using one of these.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tuneport.errors import Invalid
from tuneport.types import EMPTY, Context, FileSpec, Json, Value

NAMES = ("flags", "dataclass-cli", "yaml-file", "yaml-chain", "env", "hydra")


class Rendered(NamedTuple):
    """What a dialect adds to the command."""

    argv: tuple[Value, ...] = ()
    env: Mapping[str, Value] = EMPTY
    files: Mapping[str, FileSpec] = EMPTY


def render(settings: Mapping[str, Json], context: Context) -> Rendered:
    """Render the keys above the release's defaults in the dialect that `settings` names.

    Raises:
        Invalid: there is no such dialect, or a value cannot be said in it.
    """
    name = settings["name"]
    if name not in NAMES:
        raise Invalid(
            f"no dialect is called {name!r}", code="dialect-unknown", hint=f"there are {', '.join(NAMES)}"
        )
    module = importlib.import_module(f"tuneport.dialects.{name.replace('-', '_')}")
    function: Callable[[Mapping[str, Json], Context], Rendered] = module.render
    return function(settings, context)
