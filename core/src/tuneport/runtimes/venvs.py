"""Where built environments live and which of them may be used.

`CACHE/runtimes/<runtime id>-<variant>-<digest>/` is an environment; it counts only once it holds
`ready.json`, which is written last. Environments cannot be moved, so each is built where it stays.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuneport.errors import Unavailable
from tuneport.runtimes.variants import Variant, digest
from tuneport.settings import cache_dir

MARKER = "ready.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Built:
    """An environment on disk. `size` is in bytes; `state` is ready, installing, half-built or broken
    (its interpreter is gone)."""

    path: Path
    state: str
    runtime_id: str = ""
    variant: str = ""
    release: str = ""
    python: str = ""
    tag: str = ""
    requirements: tuple[str, ...] = ()
    size: int = 0
    created: float = 0.0
    packages: Mapping[str, str] = field(default_factory=dict)

    @property
    def interpreter(self) -> Path:
        return interpreter(self.path)


def root() -> Path:
    """The folder of all environments. Not created here."""
    return cache_dir() / "runtimes"


def folder(variant: Variant, content: str) -> Path:
    """Where the environment with this content digest belongs."""
    return root() / f"{variant.runtime_id}-{variant.name}-{content[:12]}"


def lock_of(path: Path) -> Path:
    """The lock file that guards building and removing `path`."""
    return path.with_name(path.name + ".lock")


def log_of(path: Path) -> Path:
    """What the installer said while `path` was built."""
    return path.with_name(path.name + ".log")


def interpreter(path: Path) -> Path:
    """The Python of the environment at `path`."""
    return path / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def inspect(path: Path) -> Built:
    """What is at `path`, judged by its marker."""
    from tuneport.runtimes.locks import is_held

    try:
        note = json.loads((path / MARKER).read_bytes())
        if note["format"] != _FORMAT:
            raise ValueError("made by another version")
        usable = os.access(interpreter(path), os.X_OK)
        return Built(
            path=path,
            state="ready" if usable else "broken",
            runtime_id=str(note["runtime"]),
            variant=str(note["variant"]),
            release=str(note["release"]),
            python=str(note["python"]),
            tag=str(note["tag"]),
            requirements=tuple(str(item) for item in note["requirements"]),
            size=int(note["size"]),
            created=float(note["created"]),
            packages={str(name): str(version) for name, version in note["packages"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Built(path, "installing" if is_held(lock_of(path)) else "half-built")


def built() -> Iterator[Built]:
    """Everything under `root()`, in order of name."""
    try:
        entries = sorted(root().iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise Unavailable(f"cannot read {root()}: {error.strerror}", code="folder-not-readable") from error
    for path in entries:
        if path.is_dir() and not path.is_symlink():
            yield inspect(path)


def find_built(variant: Variant) -> Built | None:
    """A ready environment with exactly this requirement set; this Python's own first, then the newest."""
    from tuneport.runtimes.interpreters import this_interpreter

    here = this_interpreter()
    own = folder(variant, digest(variant, here.tag)) if here else None
    names = root().glob(f"{variant.runtime_id}-{variant.name}-*/{MARKER}")
    found = [inspect(path.parent) for path in names]
    fitting = [item for item in found if item.state == "ready" and belongs(item, variant)]
    return max(fitting, key=lambda item: (item.path == own, item.created), default=None)


def belongs(found: Built, variant: Variant) -> bool:
    """True where this environment was built from exactly this variant, for whichever Python."""
    return bool(found.tag) and found.path == folder(variant, digest(variant, found.tag))


def write_marker(found: Built) -> None:
    """Declare the environment usable: from here on others see it."""
    note = {
        "format": _FORMAT,
        "runtime": found.runtime_id,
        "variant": found.variant,
        "release": found.release,
        "python": found.python,
        "tag": found.tag,
        "requirements": sorted(found.requirements),
        "size": found.size,
        "created": found.created,
        "packages": dict(sorted(found.packages.items())),
    }
    draft = found.path / (MARKER + ".part")
    with draft.open("w", encoding="utf-8") as stream:
        json.dump(note, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(found.path / MARKER)


def users_of(path: Path) -> list[int]:
    """Processes whose command line names a file of `path`; empty where the system does not tell."""
    needle = os.fsencode(str(path)) + os.sep.encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue  # it ended meanwhile, or it is another user's
        pid = int(entry.parent.name)
        if pid != os.getpid() and any(word.startswith(needle) for word in words):
            found.append(pid)
    return found
