"""The site file: what an administrator says once for everybody on a machine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tuneport.errors import Invalid
from tuneport.settings import setting
from tuneport.types import Json

DEFAULT = Path("/etc/tuneport/site.yaml")


@cache
def load_site() -> Mapping[str, Json]:
    """The checked content of TUNEPORT_SITE_FILE, else of /etc/tuneport/site.yaml, else nothing.

    Raises:
        Invalid: the file breaks its schema. NotFound: TUNEPORT_SITE_FILE names no file.
    """
    from tuneport.experiment.yamlread import read_yaml
    from tuneport.registry import schemas

    named = setting("SITE_FILE")
    path = Path(named) if named else DEFAULT
    if not named and not path.exists():
        return {}
    document = read_yaml(path)
    findings = document.findings or (schemas.check(document, "site", "site-schema") if document.data else [])
    if findings:
        raise Invalid(f"the site file {path} is broken", code="site-broken", findings=findings)
    return document.data or {}


def fleet_settings(name: str) -> dict[str, Json]:
    """The site's entry for a fleet, with its `kind`; a kind's own name needs no entry."""
    declared: dict[str, Json] = dict(load_site().get("fleets", {}).get(name, {}))
    declared.setdefault("kind", "kubernetes" if name == "kuberay" else name)
    return declared
