"""Versions of other packages, where the facts declare them, against what the release's wheel asks for.
No manifest: expressions do not compare versions with windows of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tuneport.types import Context, Finding, Json


def check(context: Context) -> Iterator[Finding]:
    """A warning for each declared package (`env: {packages: {vllm: 0.12.0}}`) outside its window."""
    declared = context.facts.get("env", {}).get("packages", {})
    if not isinstance(declared, dict):
        return
    release = context.release
    for name, window in release.spec.get("pins", {}).items():
        version = declared.get(name)
        if version is not None and not _inside(version, window):
            message = (
                f"{name} {version} is not what {release.framework} {release.version} asks for ({window})"
            )
            hint = f"install {name}{window if window[:1] in '<>=!~' else '==' + window}"
            source = f"{release.framework} {release.version} METADATA, Requires-Dist"
            yield Finding(
                "verl-package-version", "warning", message, hint, f"env.packages.{name}", source=source
            )


def _inside(version: Json, window: str) -> bool:
    """Whether a version is in the window; what cannot be read is nobody's mistake."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        wanted = SpecifierSet(window if window[:1] in "<>=!~" else f"=={window}")
        return wanted.contains(Version(str(version)), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return True
