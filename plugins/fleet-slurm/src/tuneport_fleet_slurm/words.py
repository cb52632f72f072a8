"""Values in a shell script: what was typed arrives as it was typed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tuneport.errors import Invalid
from tuneport.fleets import shell
from tuneport.types import Value

VARIABLES = {"node_rank": "$tp_rank", "head_addr": "$tp_head", "head_port": "$tp_port"}
"""What only a running job knows, as the script's node part calls it."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def word(value: Value) -> str:
    """One word of a command. A reference is a variable between two quoted texts."""
    return shell.word(value, VARIABLES)


def exports(variables: Mapping[str, Value]) -> list[str]:
    """One `export` for each variable.

    Raises:
        Invalid: a name that a shell cannot export.
    """
    for name in variables:
        if not _NAME.match(name):
            raise Invalid(
                f"{name!r} cannot be an environment variable in a batch script", code="value-unusable"
            )
    return [f"export {name}={word(value)}" for name, value in variables.items()]


def command(words: Sequence[str], indent: str) -> str:
    """A command with one word a line, each already quoted."""
    return f" \\\n{indent}  ".join(words)
