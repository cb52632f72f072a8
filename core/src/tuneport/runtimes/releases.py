"""From the words people type, and from runtime ids, to the release that declares a runtime."""

from __future__ import annotations

from collections.abc import Iterator

from tuneport.errors import NotFound, TuneportError
from tuneport.runtimes.variants import runtime_id
from tuneport.types import Release


def release_of(runtime: str) -> Release:
    """The release whose runtime has this id.

    Raises:
        NotFound: no installed manifest declares it.
    """
    from tuneport.registry import catalog, surfaces

    names = set(catalog.frameworks())
    parts = runtime.split("-")
    # Ids are framework-version by custom: try that first, it reads one manifest instead of all.
    for cut in range(len(parts) - 1, 0, -1):
        framework, version = "-".join(parts[:cut]), "-".join(parts[cut:])
        if framework in names and version in catalog.releases(framework):
            release = surfaces.release(framework, version)
            if runtime_id(release.spec) == runtime:
                return release
    for release in all_releases():
        if runtime_id(release.spec) == runtime:
            return release
    raise NotFound(
        f"no installed manifest declares the runtime {runtime!r}",
        code="runtime-unknown",
        hint="see tp runtime ls",
    )


def by_reference(text: str) -> Release:
    """The release that `framework@version`, `framework` (its default) or a runtime id names.

    Raises:
        NotFound: nothing here has that name.
    """
    from tuneport.registry import catalog, surfaces

    framework, at, version = text.partition("@")
    if framework in catalog.frameworks() and bool(at) == bool(version):
        return surfaces.release(framework, version)
    try:
        return release_of(text)
    except NotFound:
        from difflib import get_close_matches

        close = get_close_matches(framework, catalog.frameworks(), n=1)
        meant = f"; did you mean {close[0]}@{version}?" if close and version else ""
        raise NotFound(
            f"{text!r} names no release here{meant}",
            code="runtime-unknown",
            hint="write framework@version; tp runtime ls lists what is declared",
        ) from None


def all_releases() -> Iterator[Release]:
    """Every release of every installed framework; a manifest that is broken is left to `tp plugins`."""
    from tuneport.registry import catalog, surfaces

    for framework in catalog.frameworks():
        try:
            versions = list(catalog.releases(framework))
        except TuneportError:
            continue
        for version in versions:
            try:
                yield surfaces.release(framework, version)
            except TuneportError:
                continue
