"""The venv variants that a release declares: which one fits, what it pins, and its digest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tuneport.errors import Invalid, NotFound
from tuneport.types import Json

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_PINNED_URL = re.compile(r"\S+#(\S*&)?sha256=[0-9a-f]{64}(&\S*)?")

# A manifest is data from somebody else: it may narrow what pip does, never say where pip looks.
_PIP_ARGS = ("--no-deps", "--no-build-isolation", "--only-binary=:all:", "--prefer-binary")


@dataclass(frozen=True, slots=True)
class Variant:
    """One pinned requirement set of a release's runtime.

    `series` lists the hardware it fits (`*` is any), `python` is a version specifier, `download_mb`
    what its author measured, `check` the modules that must import afterwards, `pip_args` what pip needs
    to be told for this set.
    """

    runtime_id: str
    release: str  # framework@version
    name: str
    series: tuple[str, ...]
    requirements: tuple[str, ...]
    python: str = ""
    download_mb: int = 0
    note: str = ""
    check: tuple[str, ...] = ()
    pip_args: tuple[str, ...] = ()


def runtime_id(spec: Mapping[str, Json]) -> str:
    """The id of the runtime that a release manifest declares; empty where it declares none."""
    runtime = spec.get("runtime")
    return str(runtime.get("id", "")) if isinstance(runtime, Mapping) else ""


def choose_variant(spec: Mapping[str, Json], series: str) -> str:
    """The venv variant of a release manifest for a pool's series; empty where none fits.

    A variant that lists the series wins over one that takes any (`*`).
    """
    declared = _declared(spec)
    for wanted in (series, "*"):
        for name, body in declared.items():
            if wanted in _list(body, "series"):
                return name
    return ""


def variants(spec: Mapping[str, Json], framework: str) -> dict[str, Variant]:
    """Every venv variant of a release manifest, checked.

    Raises:
        Invalid: a name that cannot be a folder, or a requirement that is not one pinned package.
    """
    release = f"{framework}@{spec.get('release', '')}"
    found = {}
    for name, body in _declared(spec).items():
        variant = Variant(
            runtime_id=runtime_id(spec),
            release=release,
            name=name,
            series=_list(body, "series"),
            requirements=_list(body, "requirements"),
            python=str(body.get("python") or ""),
            download_mb=int(body.get("download_mb") or 0),
            note=str(body.get("note") or ""),
            check=_list(body, "check"),
            pip_args=_list(body, "pip_args"),
        )
        _refuse_unsafe(variant)
        found[name] = variant
    return found


def pick(spec: Mapping[str, Json], framework: str, name: str) -> Variant:
    """The variant called `name`.

    Raises:
        NotFound: the release has no such variant; the message lists those it has.
    """
    declared = variants(spec, framework)
    if name in declared:
        return declared[name]
    runtime = runtime_id(spec) or f"{framework}@{spec.get('release', '')}"
    if not declared:
        raise NotFound(
            f"runtime {runtime} has no Python environment to install; it comes as an image",
            code="runtime-no-venv",
            hint="tp runtime show says where its image is looked up",
        )
    raise NotFound(
        f"runtime {runtime} has no variant {name!r}; it has {', '.join(declared)}", code="runtime-variant"
    )


def digest(variant: Variant, python_tag: str) -> str:
    """SHA-256 (hex) of what decides the content of an environment: Python, platform, pinned set."""
    from tuneport.registry.digest import digest as canonical_digest

    subject: dict[str, Json] = {"python": python_tag, "requirements": sorted(variant.requirements)}
    if variant.pip_args:
        subject["pip_args"] = list(variant.pip_args)
    return canonical_digest(subject).removeprefix("sha256:")


def _declared(spec: Mapping[str, Json]) -> dict[str, Mapping[str, Json]]:
    node: Json = spec
    for key in ("runtime", "venv", "variants"):
        node = node.get(key) if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping):
        return {}
    return {str(name): body for name, body in node.items() if isinstance(body, Mapping)}


def _list(body: Mapping[str, Json], key: str) -> tuple[str, ...]:
    value = body.get(key) or ()
    return tuple(str(item) for item in value) if isinstance(value, list | tuple) else ()


def _refuse_unsafe(variant: Variant) -> None:
    for name in (variant.runtime_id, variant.name):
        if not _NAME.fullmatch(name):
            raise Invalid(f"{name!r} cannot be the name of a runtime or variant", code="runtime-name")
    if not variant.requirements:
        raise Invalid(f"{variant.runtime_id} ({variant.name}) requires nothing", code="runtime-empty")
    for module in variant.check:
        if not _MODULE.fullmatch(module):
            raise Invalid(f"{module!r} is not the name of a module", code="runtime-check-name")
    for argument in variant.pip_args:
        if argument not in _PIP_ARGS:
            raise Invalid(
                f"{variant.runtime_id} ({variant.name}): pip_args may not contain {argument!r}",
                code="runtime-pip-args",
                hint=f"allowed are {', '.join(_PIP_ARGS)}; indexes belong into pip's own configuration",
            )
    for text in variant.requirements:
        _refuse_unpinned(text, variant.runtime_id)


def _refuse_unpinned(text: str, runtime: str) -> None:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        # One line, one package: an installer's options must not come in by the manifest.
        requirement = Requirement(text) if text.isprintable() else None
    except InvalidRequirement:
        requirement = None
    if requirement is None:
        raise Invalid(f"runtime {runtime}: {text!r} is not a requirement", code="runtime-requirement")
    if requirement.url is not None:
        pinned = _PINNED_URL.fullmatch(requirement.url) is not None
    else:
        pins = list(requirement.specifier)
        pinned = len(pins) == 1 and pins[0].operator in ("==", "===") and not pins[0].version.endswith(".*")
    if not pinned:
        raise Invalid(
            f"runtime {runtime}: {text!r} is not pinned",
            code="runtime-requirement",
            hint="write name==version, or name @ URL#sha256=…",
        )
