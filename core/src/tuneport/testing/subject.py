"""What `tp plugin check` looks at: a distribution, a source folder, a wheel, a folder of manifests.

What is not installed is made to look as if it were, in front of everything that is: nothing of it is
imported or run to find out what it publishes.
"""

from __future__ import annotations

import re
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tuneport.errors import Invalid, NotFound
from tuneport.registry import scan
from tuneport.text import closest
from tuneport.types import Json

_MAX_WHEEL = 1 << 30


@dataclass(frozen=True, slots=True)
class Subject:
    """`dist` is a normalised distribution name, empty for a bare folder of manifests (`manifests`). `path`
    goes in front of the import path. `readme` is its text where it is known without metadata."""

    dist: str
    path: tuple[Path, ...] = ()
    manifests: Path | None = None
    readme: str | None = None
    golden: Path | None = None


def find(named: str, scratch: Path) -> Subject:
    """The subject that a person names; `scratch` is a folder for what has to be unpacked or written.

    Raises:
        NotFound: neither a path nor an installed plugin. Invalid: a folder or wheel that holds no plugin.
    """
    path = Path(named)
    if path.suffix == ".whl" and path.is_file():
        return _wheel(path, scratch)
    if (path / "pyproject.toml").is_file():
        return _source(path.absolute(), scratch)
    if path.is_dir() and [*path.glob("*/framework.yaml"), *path.glob("*/methods/*.yaml")]:
        return Subject("", manifests=path.absolute())
    points = [point for group in scan.GROUPS for point in scan.entry_points(group)]
    wanted = normal(named)
    dists = {point.dist for point in points}
    if wanted in dists:
        return Subject(wanted)
    owners = {point.dist for point in points if point.name == named}
    if len(owners) == 1:
        return Subject(owners.pop())
    if owners:
        raise Invalid(
            f"{named!r} is published by {', '.join(sorted(owners))}",
            code="plugin-ambiguous",
            hint="name the distribution",
        )
    close = closest(named, sorted(dists | {point.name for point in points}))
    raise NotFound(
        f"{named!r} is no installed plugin, and no folder, wheel or project with one",
        code="plugin-unknown",
        hint=f"did you mean {close!r}?" if close else "`tp plugins` lists what is installed",
    )


def normal(name: str) -> str:
    """A distribution's name as installers compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _wheel(path: Path, scratch: Path) -> Subject:
    target = scratch / "wheel"
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(item.file_size for item in archive.infolist()) > _MAX_WHEEL:
                raise Invalid(f"{path} holds more than {_MAX_WHEEL >> 30} GiB", code="wheel-broken")
            archive.extractall(target)
    except (zipfile.BadZipFile, OSError) as error:
        raise Invalid(f"{path} is no wheel: {error}", code="wheel-broken") from error
    info = next(iter(target.glob("*.dist-info")), None)
    if info is None:
        raise Invalid(f"{path} is no wheel: it has no .dist-info", code="wheel-broken")
    return Subject(normal(info.name.partition("-")[0]), (target,))


def _source(folder: Path, scratch: Path) -> Subject:
    """A project as an editable install would make it visible."""
    file = folder / "pyproject.toml"
    try:
        tables = tomllib.loads(file.read_text("utf-8"))
        project = tables["project"]
        name = str(project["name"])
        points = {
            group: dict(entries)
            for group, entries in project.get("entry-points", {}).items()
            if group in scan.GROUPS
        }
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, AttributeError, ValueError) as error:
        message = f"{file} cannot be read: {type(error).__name__}: {error}"
        raise Invalid(message, code="pyproject-broken") from error
    if not points:
        raise Invalid(
            f"{file} publishes nothing of Tuneport's",
            code="pyproject-no-plugin",
            hint=f"it needs an entry point in {', '.join(scan.GROUPS)}",
        )
    info = scratch / "info" / f"{normal(name).replace('-', '_')}-{project.get('version', '0')}.dist-info"
    info.mkdir(parents=True)
    text = "".join(
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
        for group, entries in points.items()
    )
    (info / "entry_points.txt").write_text(text, "utf-8")
    needs = "".join(f"Requires-Dist: {need}\n" for need in project.get("dependencies", ()))
    version = project.get("version", "0")
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}", "utf-8"
    )
    golden = folder / "tests" / "plans"
    return Subject(
        normal(name), (info.parent, *_roots(folder, tables)), None, _readme(folder, project), golden
    )


def _readme(folder: Path, project: Mapping[str, Json]) -> str:
    readme = project.get("readme", "")
    if isinstance(readme, dict):
        if "text" in readme:
            return str(readme["text"])
        readme = readme.get("file", "")
    try:
        return (folder / str(readme)).read_text("utf-8") if readme else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _roots(folder: Path, tables: Mapping[str, Json]) -> list[Path]:
    """The folders that hold the project's packages."""
    wheel = tables.get("tool", {}).get("hatch", {}).get("build", {}).get("targets", {}).get("wheel", {})
    declared = [(folder / package).parent for package in wheel.get("packages", ())]
    found = declared or [folder / "src" if (folder / "src").is_dir() else folder]
    return list(dict.fromkeys(found))
