"""What releases run in: Python environments built here, and images that somebody else built.

python = resolve_python(plan.runtime)    # the interpreter of a built environment
image = resolve_image(plan.runtime)      # an image reference, for fleets that run images
"""

from __future__ import annotations

import sys
from pathlib import Path

from tuneport.errors import NotFound, Unavailable
from tuneport.runtimes.images import FORMS, Image, find_image, is_digest
from tuneport.runtimes.releases import release_of
from tuneport.runtimes.variants import choose_variant, pick
from tuneport.types import RuntimeNeed

__all__ = [
    "FORMS",
    "Image",
    "choose_variant",
    "is_digest",
    "resolve_image",
    "resolve_image_details",
    "resolve_python",
]


def resolve_python(need: RuntimeNeed) -> Path:
    """The interpreter that a plan runs with on this machine.

    Raises:
        Unavailable: the runtime is not installed here, or exists only as an image.
        NotFound: no installed manifest declares the runtime, or it has no such variant.
    """
    if need.host:
        return Path(sys.executable)
    from tuneport.runtimes.images import variable
    from tuneport.runtimes.variants import variants
    from tuneport.runtimes.venvs import find_built

    release = release_of(need.id)
    reference = f"{release.framework}@{release.version}"
    if not variants(release.spec, release.framework):
        raise Unavailable(
            f"runtime {need.id} has no Python environment; it comes as an image",
            code="runtime-no-venv",
            hint=f"use a fleet that runs images, and set {variable(release.framework)} or register {need.id} "
            "in the file that TUNEPORT_RUNTIME_REGISTRY_FILE names",
        )
    if not need.variant:
        raise Unavailable(f"runtime {need.id} has no variant for this hardware", code="runtime-no-variant")
    variant = pick(release.spec, release.framework, need.variant)
    found = find_built(variant)
    if found is None:
        raise Unavailable(
            f"runtime {need.id} ({need.variant}) is not installed here",
            code="runtime-not-installed",
            hint=f"tp runtime install {reference} --variant {need.variant}; a fleet that runs images takes "
            f"the one that {variable(release.framework)} or the file of TUNEPORT_RUNTIME_REGISTRY_FILE names",
        )
    return found.interpreter


def resolve_image(need: RuntimeNeed, *forms: str) -> str:
    """The image reference or path for a plan, in one of `forms` (oci, sif, sqsh; all by default).

    Raises:
        Unavailable: none is known; the message names the runtime, the variable and the registry file.
        Invalid: the reference or the registry file is malformed.
    """
    return resolve_image_details(need, *forms).reference


def resolve_image_details(need: RuntimeNeed, *forms: str) -> Image:
    """As `resolve_image`, with the form, where it was looked up, and the promised digest."""
    try:
        release = release_of(need.id)
    except NotFound:  # its manifest is not installed here; the variable and the registry still may know
        return find_image(need, need.id.rpartition("-")[0] or need.id, forms or FORMS)
    return find_image(need, release.framework, forms or FORMS, release.spec)
