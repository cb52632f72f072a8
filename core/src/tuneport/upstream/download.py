"""Fetches a distribution's wheel through pip's own client and keeps it in the cache folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from tuneport.errors import Invalid, NotFound, Unavailable
from tuneport.settings import cache_dir, private_dir

_TIME = 900  # seconds; a large wheel takes minutes
_NO_NETWORK = (
    "connection broken",
    "Failed to establish",
    "name resolution",
    "ProxyError",
    "ConnectTimeout",
    "Network is unreachable",
    "Connection refused",
    "Server Error",
)
# What an index that is there says on a bad day as well: asked again, it often knows better.
_ONCE_MORE = (*_NO_NETWORK, "from versions: none")
_PAUSE = 3.0  # seconds


def wheel(requirement: str, python: str = "", platform: str = "") -> Path:
    """The wheel that pip takes for a requirement, from the cache where an exact version is there.

    Args:
        requirement: `NAME==VERSION`, or a range, of which the newest is taken.
        python: the Python whose compiled wheel is meant, such as `3.11`; the running one without it.
        platform: the platform whose wheel is meant, as pip names it; the running one without it.

    Raises:
        Invalid: this is no requirement. NotFound: the index has no such wheel.
        Unavailable: pip, or the index, cannot be reached.
    """
    try:
        asked = Requirement(requirement)
    except InvalidRequirement as error:
        raise Invalid(f"{requirement!r} is no requirement: {error}", code="upstream-name") from error
    kind = f"{python or 'any'}-{platform}" if platform else python or "any"
    folder = private_dir(cache_dir() / "upstream" / "wheels" / kind)
    exact = [item.version for item in asked.specifier if item.operator in ("==", "===")]
    for path in sorted(folder.glob("*.whl")) if exact else ():
        if _is(path, asked.name, exact[0]):
            return path
    with tempfile.TemporaryDirectory(dir=folder) as made:
        _pip(requirement, Path(made), python, platform)
        found = sorted(Path(made).glob("*.whl"))
        if len(found) != 1:
            raise NotFound(f"pip found no single wheel for {requirement}", code="upstream-not-found")
        target = folder / found[0].name
        shutil.move(found[0], target)
    return target


def _is(path: Path, name: str, version: str) -> bool:
    try:
        found, number, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename:
        return False
    return found == canonicalize_name(name) and str(number) == version


def _pip(requirement: str, folder: Path, python: str, platform: str) -> None:
    # A source archive would be built to learn its name, which runs code of its author.
    words = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    words += ["--disable-pip-version-check", "--quiet", "--retries", "3", "--timeout", "30"]
    words += ["--python-version", python] if python else []
    words += ["--platform", platform] if platform else []
    words += ["--dest", str(folder), requirement]
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=_TIME)
        if done.returncode and any(sign in done.stderr for sign in _ONCE_MORE):
            time.sleep(_PAUSE)
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=_TIME)
    except subprocess.TimeoutExpired as error:
        message = f"pip took more than {_TIME} seconds to download {requirement}"
        raise Unavailable(message, code="upstream-network") from error
    if done.returncode == 0:
        return
    said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    why = said[0].removeprefix("ERROR: ")[:300] if said else done.stderr.strip()[-300:]
    if "No module named pip" in done.stderr:
        raise Unavailable(f"{sys.executable} has no pip", code="upstream-network", hint="name a wheel file")
    if any(sign in done.stderr for sign in _NO_NETWORK):
        message = f"pip cannot reach the package index for {requirement}: {why}"
        hint = "without a network, name a wheel file or a source folder"
        raise Unavailable(message, code="upstream-network", hint=hint)
    raise NotFound(
        f"the package index has no wheel for {requirement}: {why}",
        code="upstream-not-found",
        hint="a release without wheels: get its source yourself and name the archive or folder",
    )
