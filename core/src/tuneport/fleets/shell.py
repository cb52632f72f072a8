"""Values in a shell script: what was typed arrives as it was typed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from tuneport.types import Value


def word(value: Value, variables: Mapping[str, str]) -> str:
    """One word of a command. A reference is a variable, which `variables` names with its dollar sign, between
    two quoted texts."""
    if isinstance(value, str):
        return shlex.quote(value)
    before = shlex.quote(value.prefix) if value.prefix else ""
    after = shlex.quote(value.suffix) if value.suffix else ""
    return f'{before}"{variables[value.ref]}"{after}'
