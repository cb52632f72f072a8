"""Configuration as environment variables, for programs of any kind."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tuneport.dialects import Rendered
from tuneport.dialects.flags import text_of
from tuneport.errors import Invalid
from tuneport.types import Context, Json, Ref, Value


def render(settings: Mapping[str, Json], context: Context) -> Rendered:
    """`optimizer.lr` becomes `<prefix>OPTIMIZER__LR`; lists and mappings are JSON, null is empty."""
    prefix = settings.get("prefix", "CONFIG_")
    env: dict[str, Value] = {}
    for name in sorted(context.own):
        value = context.own[name]
        variable = prefix + re.sub(r"[^A-Z0-9_]", "_", name.upper().replace(".", "__"))
        if variable in env:
            raise Invalid(
                f"two keys of config.yaml become the variable {variable}; one is {name!r}",
                code="dialect-env-clash",
                hint="rename one of them",
            )
        env[variable] = value if isinstance(value, Ref) else ("" if value is None else text_of(value))
    return Rendered(env=env)
