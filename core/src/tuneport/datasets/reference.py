"""The name of a dataset version: `owner/name@version`."""

from __future__ import annotations

import re

from tuneport.errors import Invalid

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_NAME = re.compile(f"({_PART})/({_PART})")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_RULE = "letters, digits, dots, dashes and underscores, beginning with a letter or digit"


def parse_reference(text: str) -> tuple[str, str, str]:
    """(owner, name, version) of a reference such as `alice/gsm8k-zh@v2`.

    Raises:
        Invalid: code dataset-reference (not owner/name), dataset-version-missing or dataset-version.
    """
    name, _, version = text.partition("@")
    owner, stem = parse_name(name)
    if not version:
        raise Invalid(
            f"{text!r} names no version",
            code="dataset-version-missing",
            hint=f"write {name}@VERSION; tp dataset ls {name} lists them",
        )
    return owner, stem, parse_version(version)


def parse_name(text: str) -> tuple[str, str]:
    """(owner, name) of `owner/name`.

    Raises:
        Invalid: code dataset-reference.
    """
    found = _NAME.fullmatch(text)
    if found is None:
        raise Invalid(
            f"{text[:120]!r} is not a dataset",
            code="dataset-reference",
            hint=f"write OWNER/NAME@VERSION, such as alice/gsm8k-zh@v2; each of {_RULE}",
        )
    return found[1], found[2]


def parse_version(text: str) -> str:
    """`text`, if it can be a version.

    Raises:
        Invalid: code dataset-version.
    """
    if _VERSION.fullmatch(text) is None:
        raise Invalid(f"{text[:120]!r} is not a dataset version", code="dataset-version", hint=f"use {_RULE}")
    return text
