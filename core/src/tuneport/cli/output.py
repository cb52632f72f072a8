"""How verbs speak: data on stdout, talk on stderr, one JSON document when asked."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tuneport.text import printable, table

__all__ = ["data", "json_option", "print_json", "printable", "table", "talk"]

F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """Add `--json`, passed to the verb as `as_json`."""
    decorate = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
    return decorate(function)


def print_json(document: Any) -> None:
    """One document; NaN and infinities become null because JSON has no word for them."""
    try:
        text = json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(document), ensure_ascii=False, indent=2, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # half a character, or a terminal that is not UTF-8: JSON has escapes for it
        text = json.dumps(json.loads(text), indent=2)
    sys.stdout.write(text + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def data(text: str) -> None:
    """A line of the command's result."""
    sys.stdout.write(text + "\n")


def talk(text: str) -> None:
    """A line of progress or advice."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
