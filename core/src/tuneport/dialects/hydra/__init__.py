"""Hydra's command line: a tree of YAML files composed by group choices, then overrides.

Everything here works on the composed facts of a release's surface. Neither Hydra nor OmegaConf is
imported; the tests hold each module against them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuneport.dialects import Rendered
from tuneport.dialects.hydra.render import render_overrides  # at the top: a later import would hide `render`
from tuneport.types import Context, Json


def render(settings: Mapping[str, Json], context: Context) -> Rendered:
    """The effective configuration as a minimal list of overrides; see `render.py`."""
    return render_overrides(settings, context)
