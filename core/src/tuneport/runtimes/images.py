"""Looks up the image of a runtime: request, environment variable, registry file, release manifest.

The registry file (setting RUNTIME_REGISTRY_FILE, or `runtimes: {registry: …}` of the site file) is YAML:

    runtimes:
      acme-1.0.0: {oci: registry/acme:1.0.0, sif: /images/acme.sif, sqsh: /images/acme.sqsh, digest: sha256:…}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tuneport.errors import Invalid, NotFound, Unavailable
from tuneport.settings import setting
from tuneport.types import Finding, Json, RuntimeNeed

FORMS = ("oci", "sif", "sqsh")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REFERENCE = re.compile(r"[^\s\x00-\x1f\x7f-\x9f]{1,1024}")
_LIMIT = 1024 * 1024  # bytes of a registry file


@dataclass(frozen=True, slots=True)
class Image:
    """An image and where it was looked up. `digest` is what the registry file promises of a file."""

    form: str
    reference: str
    origin: str
    digest: str = ""


def is_digest(reference: str) -> bool:
    """True where an image reference names its content (`…@sha256:<64 hex>`), not a movable tag."""
    _, at, digest = reference.rpartition("@")
    return bool(at) and _DIGEST.fullmatch(digest) is not None


def variable(framework: str) -> str:
    """The environment variable that names the image of a framework."""
    return "TUNEPORT_" + _setting_name(framework)


def find_image(
    need: RuntimeNeed,
    framework: str,
    forms: Sequence[str] = FORMS,
    spec: Mapping[str, Json] = MappingProxyType({}),
) -> Image:
    """The image of a runtime in one of `forms`, the earlier preferred. `spec` is its release manifest.

    Raises:
        Unavailable: there is none. Invalid: the reference or the registry file is malformed.
    """
    given = _given(need, framework)
    if given is not None:
        if given.form not in forms:
            raise Unavailable(
                f"{given.reference} ({given.origin}) is a {given.form} image, not {' or '.join(forms)}",
                code="runtime-image-form",
            )
        return given
    entry, file = _registered(need.id)
    for form in forms:
        if form in entry:
            digest = entry.get("digest", "")
            return Image(form, _with_digest(entry[form], form, digest), file, digest)
    for form in forms:
        image = _declared(spec, form)
        if image is not None:
            return image
    kinds, file = " or ".join(forms), file or "not set"
    raise Unavailable(
        f"no {kinds} image is known here for runtime {need.id}: neither {variable(framework)} "
        f"nor the file of TUNEPORT_RUNTIME_REGISTRY_FILE ({file}) names one",
        code="runtime-image-missing",
        hint=f"set {variable(framework)}, or register {need.id} in that file",
    )


def read_registry(path: Path) -> dict[str, dict[str, str]]:
    """The runtimes of a registry file: id -> {oci, sif, sqsh, digest}.

    Raises:
        NotFound: no such file. Invalid: with every problem of the file, each with its line.
    """
    from tuneport.experiment.yamlread import parse_yaml, read_text

    document = parse_yaml(read_text(path, _LIMIT), str(path))
    findings = list(document.findings)
    found: dict[str, dict[str, str]] = {}
    tree = document.data
    if not findings and (not isinstance(tree, Mapping) or not isinstance(tree.get("runtimes"), Mapping)):
        findings.append(_problem(path, 1, "", "has no mapping `runtimes`"))
    elif isinstance(tree, Mapping) and isinstance(tree.get("runtimes"), Mapping):
        findings += [
            _problem(path, document.line((key,)), key, f"unknown key `{key}`")
            for key in tree
            if key != "runtimes"
        ]
        for name, body in tree["runtimes"].items():
            line = document.line(("runtimes", name))
            findings += [_problem(path, line, f"runtimes.{name}", text) for text in _entry_problems(body)]
            if isinstance(body, Mapping):
                found[str(name)] = {str(key): str(value) for key, value in body.items()}
    if findings:
        raise Invalid(f"{path} is not a usable runtime registry", code="runtime-registry", findings=findings)
    return found


def registry_file() -> Path | None:
    """The registry file that applies here, None where none is named."""
    named = setting("RUNTIME_REGISTRY_FILE")
    if named:
        return Path(named)
    from tuneport.experiment.site import load_site

    section = load_site().get("runtimes")
    path = section.get("registry") if isinstance(section, Mapping) else None
    return Path(path) if isinstance(path, str) and path else None


def _given(need: RuntimeNeed, framework: str) -> Image | None:
    named = setting(_setting_name(framework))
    for reference, origin in ((need.image, "--image"), (named, variable(framework))):
        if reference:
            return Image(_form(reference), _checked(reference, origin), origin)
    return None


def _registered(runtime: str) -> tuple[dict[str, str], str]:
    path = registry_file()
    if path is None:
        return {}, ""
    try:
        return read_registry(path).get(runtime, {}), str(path)
    except NotFound as error:
        raise Unavailable(
            f"the runtime registry {path} does not exist",
            code="runtime-registry-missing",
            hint=f"correct TUNEPORT_RUNTIME_REGISTRY_FILE; it was asked about {runtime}",
        ) from error


def _declared(spec: Mapping[str, Json], form: str) -> Image | None:
    runtime = spec.get("runtime")
    body = runtime.get(form) if isinstance(runtime, Mapping) else None
    named = body.get("image" if form == "oci" else "path") if isinstance(body, Mapping) else None
    if not isinstance(named, str) or not isinstance(body, Mapping):
        return None
    origin = "its release manifest"
    return Image(form, _with_digest(_checked(named, origin), form, str(body.get("digest") or "")), origin)


def _with_digest(reference: str, form: str, digest: str) -> str:
    return f"{reference}@{digest}" if form == "oci" and digest and not is_digest(reference) else reference


def _form(reference: str) -> str:
    suffix = reference.rpartition(".")[2].lower()
    return {"sif": "sif", "sqsh": "sqsh", "squashfs": "sqsh"}.get(suffix, "oci")


def _checked(reference: str, origin: str) -> str:
    if _REFERENCE.fullmatch(reference) is None or reference.startswith("-"):
        message = f"{reference[:80]!r} ({origin}) is not an image reference"
        raise Invalid(message, code="runtime-image-reference")
    return reference


def _setting_name(framework: str) -> str:
    return "IMAGE_" + re.sub(r"[^A-Za-z0-9]", "_", framework).upper()


def _entry_problems(body: Json) -> list[str]:
    if not isinstance(body, Mapping) or not body:
        return ["is not a mapping of oci, sif, sqsh, digest"]
    problems = []
    for key, value in body.items():
        if key not in (*FORMS, "digest"):
            problems.append(f"unknown key `{key}`; known are {', '.join(FORMS)}, digest")
        elif not isinstance(value, str) or _REFERENCE.fullmatch(value) is None or value.startswith("-"):
            problems.append(f"`{key}` is not an image reference")
        elif key == "digest" and not _DIGEST.fullmatch(value):
            problems.append("`digest` is not sha256: and 64 hex digits")
        elif key in ("sif", "sqsh") and not value.startswith("/"):
            problems.append(f"`{key}` is not an absolute path")
    return problems


def _problem(path: Path, line: int, key: str, message: str) -> Finding:
    message = f"{key}: {message}" if key else message
    return Finding("runtime-registry", "error", message, "", key, str(path), line)
