"""Finds a Python that a runtime variant accepts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tuneport.errors import Invalid, Unavailable

_PROBE = (
    "import sys, sysconfig; v = sys.version_info; "
    "print('%d.%d.%d' % v[:3], sys.implementation.cache_tag, sysconfig.get_platform())"
)
_MINORS = range(40, 7, -1)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """`version` is complete (3.11.7); `tag` names what compiled packages depend on."""

    path: Path
    version: str
    tag: str


def this_interpreter() -> Interpreter | None:
    """The one that runs Tuneport, unless it does not know where it is."""
    import sysconfig

    if not sys.executable:
        return None
    version = "{}.{}.{}".format(*sys.version_info)
    tag = f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
    return Interpreter(Path(sys.executable), version, tag)


def find_interpreter(specifier: str, what: str) -> Interpreter:
    """The Python to build with: this one where it fits, else the newest `pythonX.Y` on PATH that does.

    `what` names the runtime in the error.

    Raises:
        Invalid: `specifier` is no version specifier. Unavailable: nothing fits.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        wanted = SpecifierSet(specifier)
    except InvalidSpecifier as error:
        raise Invalid(f"{what}: {specifier!r} is not a version specifier", code="runtime-python") from error
    here = this_interpreter()
    if here is not None and wanted.contains(here.version):
        return here
    # A bound may name a patch level, so a minor version counts where its first or a late patch fits.
    names = [f"python3.{m}" for m in _MINORS if any(wanted.contains(f"3.{m}.{p}") for p in (0, 99))]
    for name in names:
        path = shutil.which(name)
        found = _probe(path) if path else None
        if found is not None and wanted.contains(found.version):
            return found
    names.reverse()
    looked = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
    running = f"this one is {here.version}" if here else "this one is unknown"
    raise Unavailable(
        f"{what} needs Python {specifier}: {running}, and none fits among {looked or 'any'} on PATH",
        code="runtime-python",
        hint=f"install {names[0] if names else 'such a Python'} and put it on PATH, then repeat the command",
    )


def _probe(path: str) -> Interpreter | None:
    try:
        done = subprocess.run([path, "-I", "-c", _PROBE], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.split()
    if done.returncode != 0 or len(words) != 3 or not re.fullmatch(r"\d+\.\d+\.\d+", words[0]):
        return None  # a version manager's stand-in for a Python that is not there
    return Interpreter(Path(path), words[0], f"{words[1]}-{words[2]}")
