"""What is declared and what is here, as plain rows for `tp runtime ls` and `show`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tuneport.errors import TuneportError
from tuneport.runtimes import images, venvs
from tuneport.runtimes.releases import all_releases
from tuneport.runtimes.variants import Variant, runtime_id, variants
from tuneport.types import Release, RuntimeNeed


def seen_series() -> str:
    """`cpu` where this machine shows no accelerator device, otherwise `*` (some accelerator)."""
    devices = ("nvidiactl", "kfd", "davinci_manager")
    return "*" if any(Path("/dev", name).exists() for name in devices) else "cpu"


def rows() -> list[dict[str, Any]]:
    """One row per declared variant and per known image, then whatever else lies in the cache."""
    here = list(venvs.built())
    found: list[dict[str, Any]] = []
    shown: set[Path] = set()
    for release in all_releases():
        runtime = runtime_id(release.spec)
        try:
            declared = variants(release.spec, release.framework)
        except TuneportError as error:
            found.append(_row(runtime, "venv", state="broken", release=_name(release), note=error.message))
            continue
        for variant in declared.values():
            mine = [one for one in here if one.path not in shown and _belongs(one, variant)]
            shown.update(one.path for one in mine)
            found += [_variant_row(variant, one) for one in mine] or [_variant_row(variant, None)]
        if _runs_here(release):
            own = _row(runtime, "host", state="here", release=_name(release), path=sys.executable)
            found.append(own | {"note": "the environment that Tuneport runs in"})
        for image in _images(release):
            found.append(
                _row(runtime, image.form, state="named", release=_name(release), image=image.reference)
            )
    for one in here:
        if one.path not in shown:
            found.append(_built_row(_row(one.runtime_id or one.path.name, "venv", release=one.release), one))
    return found


def details(release: Release) -> dict[str, Any]:
    """Everything about one release's runtime.

    Raises:
        Invalid: its manifest declares a requirement that cannot be installed safely.
    """
    here = list(venvs.built())
    shown = []
    for variant in variants(release.spec, release.framework).values():
        best = venvs.find_built(variant) or next((one for one in here if _belongs(one, variant)), None)
        row = _variant_row(variant, best)
        row["requirements"] = list(variant.requirements)
        row["packages"] = dict(best.packages) if best else {}
        shown.append(row)
    return {
        "runtime": runtime_id(release.spec),
        "release": _name(release),
        "host": sys.executable if _runs_here(release) else "",
        "variants": shown,
        "images": [
            {
                "form": image.form,
                "reference": image.reference,
                "origin": image.origin,
                "by_digest": images.is_digest(image.reference) or bool(image.digest),
            }
            for image in _images(release)
        ],
        "variable": images.variable(release.framework),
        "registry": str(images.registry_file() or "TUNEPORT_RUNTIME_REGISTRY_FILE (not set)"),
    }


def _runs_here(release: Release) -> bool:
    """Whether its jobs may run in the environment of Tuneport itself, on the local fleet."""
    return bool(release.spec.get("runtime", {}).get("host"))


def _images(release: Release) -> list[images.Image]:
    need = RuntimeNeed(runtime_id(release.spec))
    found = {}
    for form in images.FORMS:
        try:
            image = images.find_image(need, release.framework, (form,), release.spec)
        except TuneportError:
            continue  # none of this form; a broken registry is said where an image is needed
        found[image.reference] = image
    return list(found.values())


def _belongs(built: venvs.Built, variant: Variant) -> bool:
    if built.tag:
        return venvs.belongs(built, variant)
    return built.path.name.rpartition("-")[0] == f"{variant.runtime_id}-{variant.name}"  # half-built


def _variant_row(variant: Variant, built: venvs.Built | None) -> dict[str, Any]:
    row = _row(
        variant.runtime_id,
        "venv",
        state="not installed",
        release=variant.release,
        variant=variant.name,
        download_mb=variant.download_mb,
        note=variant.note,
    )
    row |= {"series": list(variant.series), "requires_python": variant.python}
    return _built_row(row, built) if built else row


def _built_row(row: dict[str, Any], built: venvs.Built) -> dict[str, Any]:
    row |= {"path": str(built.path), "size": built.size, "python": built.python}
    row["state"] = "installed" if built.state == "ready" else built.state
    row["variant"] = row["variant"] or built.variant
    if not row["release"]:
        row["note"] = row["note"] or "no installed manifest declares it"
    return row


def _row(runtime: str, form: str, **more: Any) -> dict[str, Any]:
    texts = ("variant", "state", "release", "python", "path", "image", "note")
    blank: dict[str, Any] = dict.fromkeys(texts, "")
    return {"runtime": runtime, "form": form, **blank, "size": 0, "download_mb": 0, **more}


def _name(release: Release) -> str:
    return f"{release.framework}@{release.version}"
