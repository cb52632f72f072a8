"""The site file: what an administrator says once for everybody on a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from tuneport.errors import Invalid
from tuneport.experiment.yamlread import Document
from tuneport.settings import setting
from tuneport.types import Json

DEFAULT = Path("/etc/tuneport/site.yaml")


def load_site() -> Mapping[str, Json]:
    """The checked content of the site file; empty where there is none.

    Raises:
        As `site_document`.
    """
    return site_document().data or {}


def required_trust() -> tuple[str, dict[str, str]]:
    """(the level that the site asks of manifests, the keys that it trusts by name); see `registry.trust`."""
    wanted = load_site().get("trust", {})
    return wanted.get("required", "unsigned"), wanted.get("keys", {})


@cache
def site_document() -> Document:
    """The checked TUNEPORT_SITE_FILE, else /etc/tuneport/site.yaml, else an empty document.

    Raises:
        Invalid: the file breaks its schema. NotFound: TUNEPORT_SITE_FILE names no file.
    """
    from tuneport.experiment.fleets import problems
    from tuneport.experiment.twin import read_kept
    from tuneport.registry import schemas

    named = setting("SITE_FILE")
    path = Path(named) if named else DEFAULT
    if not named and not path.exists():
        return Document(data={}, file=str(path))
    document = read_kept(path)
    findings = list(document.findings)
    if document.data and not findings:
        findings = schemas.check(document, "site", "site-schema")
        if not findings and "fleets" in document.data:
            findings = problems(replace(document, data={"fleets": document.data["fleets"]}))
    if findings:
        raise Invalid(f"the site file {path} is broken", code="site-broken", findings=findings)
    return document
