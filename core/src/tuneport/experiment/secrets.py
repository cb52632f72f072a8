"""Tells which variables look like secrets, so that none is written where others read it.

A job has the environment of the `tp submit` that started it: that is where a secret is set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tuneport.types import Json

ADVICE = "looks like a secret: set it where the job is submitted"
_WORDS = ("KEY", "KEYS", "TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "CREDENTIAL", "CREDENTIALS")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*\Z")
SHORTEST = 16  # characters of a value that is looked for in other places: a shorter one is there by chance


def is_secret(name: str) -> bool:
    """Whether a variable is named like one that holds a secret."""
    return any(part.endswith(_WORDS) for part in name.upper().split("_"))


def secret_keys(config: Mapping[str, Json], env: Mapping[str, str]) -> dict[str, str]:
    """Key -> why it must not be written: it is named like a secret variable (what a framework hands on to
    its workers), or it holds the value of a variable that is a secret."""
    values = {value: name for name, value in env.items() if is_secret(name) and len(value) >= SHORTEST}
    return {key: why for key, value in config.items() if (why := _why(key.rpartition(".")[2], value, values))}


def _why(name: str, value: Json, values: Mapping[str, str]) -> str:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return next((why for inner, item in items if (why := _why(str(inner), item, values))), "")
    if not isinstance(value, str) or not value or "${" in value:
        return ""
    if _VARIABLE.match(name) and is_secret(name):
        return ADVICE
    held = next((variable for text, variable in values.items() if text in value), "")
    return f"it holds {held}, which {ADVICE}" if held else ""
