"""Writes any value so that Hydra's parser and OmegaConf read it back unchanged.

Two readers follow one another. Hydra's override grammar: text goes between single quotes, where a run of
backslashes is doubled only before a quote; keys of a mapping cannot be quoted, only escaped. Then
OmegaConf: `${` starts an interpolation even inside quotes, and `???` means that a value is missing.
"""

from __future__ import annotations

import math
import re

from tuneport.errors import Invalid
from tuneport.types import Json

_RUN = re.compile(r"(\\*)('|\Z)")
_INTERPOLATION = re.compile(r"(\\*)\$\{")
_KEY = re.compile(r"[A-Za-z0-9_/\-\\+.$%*@?|()\[\]{}:=, \t]+\Z")
_KEY_ESCAPED = re.compile(r"([\\()\[\]{}:=, \t])")
_DIGITS = r"(?:0|[1-9](?:_?[0-9])*)"
_READ_AS_OTHER = re.compile(
    rf"(?:null|true|false|[+-]?(?:inf|nan|{_DIGITS}|"
    rf"(?:{_DIGITS}\.?|{_DIGITS}?\.[0-9](?:_?[0-9])*)(?:e[+-]?[0-9](?:_?[0-9])*)?))\Z",
    re.I,
)
_SEGMENT = r"(?:[A-Za-z_$][A-Za-z0-9_$-]*|0|[1-9](?:_?[0-9])*)"
_PATH = re.compile(rf"(?:[A-Za-z_$][A-Za-z0-9_$-]*|{_SEGMENT}(?:\.{_SEGMENT})+)\Z")
MAX_DIGITS = 4300


def override(key: str, value: Json, prefix: str = "", *, literal: bool = True) -> str:
    """`prefix` + `key=value` for Hydra's command line.

    Args:
        literal: whether `${` in text means those two characters; otherwise it interpolates.

    Raises:
        Invalid: no spelling of this key or value exists.
    """
    if not is_path(key):
        raise Invalid(f"{key!r} cannot be a key of an override", code="hydra-key", hint="rename it")
    return f"{prefix}{key}={quoted(escaped(value, key) if literal else value, key)}"


def is_path(key: str) -> bool:
    """Whether a dotted key can stand left of `=`."""
    return _PATH.match(key) is not None


def quoted(value: Json, key: str = "") -> str:
    """A value in Hydra's override grammar, OmegaConf's own escapes left as they are."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return _integer(value, key)
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        return repr(value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list | tuple):
        return "[" + ",".join(quoted(item, key) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_key(name, key)}:{quoted(item, key)}" for name, item in value.items()) + "}"
    raise Invalid(f"`{key}`: {type(value).__name__} has no spelling in an override", code="hydra-value")


def text(value: str) -> str:
    """Text between single quotes."""
    return "'" + _RUN.sub(lambda run: run[1] * 2 + ("\\'" if run[2] else ""), value) + "'"


def escaped(value: Json, key: str = "") -> Json:
    """A value whose text OmegaConf takes literally: `${` becomes `\\${`, backslashes before it doubled.

    Raises:
        Invalid: text is `???`, which OmegaConf reads as missing whatever surrounds it.
    """
    if isinstance(value, str):
        if value == "???":
            raise Invalid(
                f"`{key}`: the text ??? means that a value is missing", code="hydra-value", hint="reword it"
            )
        return _INTERPOLATION.sub(lambda run: run[1] * 2 + "\\${", value) if "${" in value else value
    if isinstance(value, list | tuple):
        return [escaped(item, key) for item in value]
    if isinstance(value, dict):
        return {name: escaped(item, key) for name, item in value.items()}
    return value


def _integer(value: int, key: str) -> str:
    if abs(value) >= 10**18 and len(f"{abs(value):x}") > MAX_DIGITS * 0.83:
        raise Invalid(f"`{key}`: an integer of so many digits cannot be read", code="hydra-value")
    return str(value)


def _key(name: Json, key: str) -> str:
    if not isinstance(name, str) or not _KEY.match(name):
        message = f"`{key}`: the inner key {name!r} has no spelling in an override"
        raise Invalid(message, code="hydra-key", hint="use letters, digits and . _ - / only")
    if _READ_AS_OTHER.match(name):
        message = f"`{key}`: the inner key {name!r} would be read as a number, a switch or null"
        raise Invalid(message, code="hydra-key", hint="begin it with a letter")
    return _KEY_ESCAPED.sub(r"\\\1", name)
