"""How verbs speak: data on stdout, talk on stderr, one JSON document when asked."""

from __future__ import annotations

import json
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
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def data(text: str) -> None:
    """A line of the command's result."""
    sys.stdout.write(text + "\n")


def talk(text: str) -> None:
    """A line of progress or advice."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
