"""What a release is read from: a wheel, a source archive or a source folder, unpacked into the cache."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name, canonicalize_version

from tuneport.errors import Invalid
from tuneport.settings import cache_dir, private_dir
from tuneport.upstream import archives, download
from tuneport.upstream.metadata import Metadata, read_metadata

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Artefact:
    """`roots` hold the packages, most special first; `facts` are name, version and sha256 or commit, as a
    surface lists them."""

    metadata: Metadata
    roots: tuple[Path, ...]
    facts: Mapping[str, str]


def obtain(what: str | Path, wanted: Mapping[str, str] = {}, release: str = "") -> Artefact:
    """The artefact that a word names, unpacked.

    Args:
        what: a folder, a file (`.whl`, `.tar.gz`, `.zip`), or a requirement for pip.
        wanted: `python` and `platform` of the wheel that pip is to take, as `scan` of framework.yaml says.
        release: the version, where the source does not say it.

    Raises:
        TuneportError: it cannot be had, or is not what its name says.
    """
    path = Path(what)
    if str(what) and path.is_dir():
        return _tree(path, release)
    if path.name.endswith((".whl", ".tar.gz", ".tgz", ".zip")):
        if not path.is_file():
            raise Invalid(f"there is no file {path}", code="upstream-name")
        return _archive(path, release)
    name = re.split(r"[=<>!~;\[ ]", str(what), maxsplit=1)[0]
    if not _NAME.fullmatch(name) or path.is_file():
        message = f"{str(what)[:200]!r} is no NAME==VERSION, archive or folder that is there"
        raise Invalid(message, code="upstream-name", hint="for example acme==1.2, ./acme-1.2.whl or ./acme")
    return _archive(download.wheel(str(what), wanted.get("python", ""), wanted.get("platform", "")), release)


def _archive(path: Path, release: str) -> Artefact:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    root = _kept(digest, lambda into: archives.unpack(path, into))
    if path.suffix != ".whl":  # a source archive has one folder that holds everything
        inside = [item for item in root.iterdir() if item.is_dir()]
        root = inside[0] if len(inside) == 1 and not (root / "PKG-INFO").is_file() else root
    return _made(root, {"sha256": digest}, release, path.name)


def _tree(folder: Path, release: str) -> Artefact:
    with tempfile.TemporaryDirectory() as made:
        archives.copy(folder.resolve(), Path(made))
        digest = hashlib.sha256()
        for path in sorted(Path(made).rglob("*")):
            if path.is_file():
                digest.update(path.relative_to(made).as_posix().encode("utf-8", "surrogateescape") + b"\0")
                digest.update(hashlib.sha256(path.read_bytes()).digest())
        root = _kept(digest.hexdigest(), lambda into: shutil.copytree(made, into, dirs_exist_ok=True))
    commit = _commit(folder)
    return _made(root, {"commit": commit} if commit else {}, release, folder.name)


def _kept(digest: str, fill: Callable[[Path], object]) -> Path:
    """The folder of the cache that holds what `fill` writes; written once."""
    parent = private_dir(cache_dir() / "upstream" / "trees")
    target = parent / f"{digest[:32]}-{archives.FORMAT}"
    if not target.is_dir():
        made = Path(tempfile.mkdtemp(dir=parent))
        try:
            fill(made)
            made.rename(target)
        except OSError:
            if not target.is_dir():  # another process was faster, or there is no room
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return target


def _made(root: Path, identity: Mapping[str, str], release: str, label: str) -> Artefact:
    metadata = read_metadata(root)
    metadata.name = canonicalize_name(metadata.name)
    if not any(root.iterdir()):
        message = f"{label} holds no file that is read: no Python, YAML, JSON, TOML or metadata"
        raise Invalid(message, code="upstream-archive", hint="name the folder that has the packages")
    said = metadata.version if label.endswith(".whl") else ""  # a source tree may be between two releases
    if release and said and canonicalize_version(said) != canonicalize_version(release):
        raise Invalid(f"{label} is {metadata.name} {said}, not {release}", code="upstream-version")
    metadata.version = release or metadata.version
    if not metadata.name or not metadata.version:
        missing = "version" if metadata.name else "name"
        message = f"{label} does not say its {missing} where it can be read without running it"
        hint = "say it with --release" if metadata.name else "give it a pyproject.toml with the name"
        raise Invalid(message, code="upstream-version", hint=hint)
    roots = [*sorted(root.glob("*.data/purelib")), *sorted(root.glob("*.data/platlib")), root]
    if (root / "src").is_dir() and not (root / "src" / "__init__.py").is_file():
        roots.insert(0, root / "src")
    facts = {"name": metadata.name, "version": metadata.version, **identity}
    return Artefact(metadata, tuple(roots), facts)


def _commit(folder: Path) -> str:
    """The commit of a git checkout without local changes; empty for any other folder."""
    words = ["git", "-C", str(folder)]
    try:
        dirty = subprocess.run(
            [*words, "status", "--porcelain", "-uno"], capture_output=True, text=True, timeout=60
        )
        head = subprocess.run([*words, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    clean = dirty.returncode == 0 and not dirty.stdout.strip()
    return head.stdout.strip() if clean and (folder / ".git").exists() else ""
