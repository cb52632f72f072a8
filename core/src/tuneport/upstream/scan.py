"""The inventory of a release: what it takes, what it asks for, what it checks. Nothing of it is imported."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuneport.errors import Invalid, NotFound
from tuneport.types import Key
from tuneport.upstream.artefacts import Artefact, obtain
from tuneport.upstream.code import Code, read_code
from tuneport.upstream.discover import discovered
from tuneport.upstream.flat import flat
from tuneport.upstream.raises import Check
from tuneport.upstream.recipes import made, recipe
from tuneport.upstream.sources import Sources


@dataclass(frozen=True, slots=True)
class Scan:
    """One release as it was read.

    Attributes:
        framework: empty where no manifest knows the distribution.
        release: as `releases/RELEASE.yaml` is called.
        name, version: of the distribution.
        surface: the surface document, as surface.schema.json says.
        artefacts: `name`, `version` and `sha256` or `commit` of everything that was read.
        requires_python: a version specifier; empty where none is said.
        requirements: canonical name -> specifier and marker.
        entry_points: `console_scripts: NAME` -> `module:object`.
        choices: registry -> the names it holds.
        checks: raises and assertions that name a configuration key.
        undecided: what could not be read, one sentence each.
        keys: entry -> native key -> facts; see `tuneport.upstream.flat`.
        whole: False for a shipped surface alone, which says nothing of requirements, points and checks.
    """

    framework: str
    release: str
    name: str
    version: str
    surface: Mapping[str, Any]
    artefacts: tuple[Mapping[str, str], ...] = ()
    requires_python: str = ""
    requirements: Mapping[str, str] = field(default_factory=dict)
    entry_points: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    undecided: tuple[str, ...] = ()
    keys: Mapping[str, Mapping[str, Key]] = field(default_factory=dict)
    whole: bool = True
    code: Code = field(default_factory=Code, repr=False, compare=False)
    sources: Sources = field(default_factory=lambda: Sources(()), repr=False, compare=False)

    def text(self) -> str:
        """The surface as `surfaces/RELEASE.json` holds it."""
        if "files" in self.surface:
            from tuneport.upstream.hydra import dumps as tree

            return tree(self.surface)
        from tuneport.upstream.__main__ import dumps

        return dumps(self.surface)


def scan(what: str | Path, framework: str = "", *, release: str = "", beside: Sequence[str] = ()) -> Scan:
    """Read a release.

    Args:
        what: `NAME==VERSION`, a wheel, a source archive or folder, or `FRAMEWORK@RELEASE` for the surface
            that the manifests have.
        framework: whose recipe counts, where several have one for the distribution.
        release: the version, where a source folder does not say it.
        beside: `NAME==VERSION` of packages that the recipe reads too. Without it they are those that the
            manifest of this release was proved with, or else the newest that the release allows.

    Raises:
        TuneportError: it cannot be had, is damaged or too large, or the recipe does not fit it at all; or it
            is not read beside what `beside` names.
    """
    known, at, version = str(what).partition("@")
    if at and re.fullmatch(r"[a-z][a-z0-9-]*", known) and not Path(what).exists():
        return _shipped(known, version)
    named = isinstance(what, str) and not Path(what).exists()
    artefact = obtain(what, recipe(_plain(str(what)), framework)[1] if named else {}, release)
    name, number = artefact.metadata.name, artefact.metadata.version
    owner, spec = recipe(name, framework)
    title = str(spec.get("release", "{version}")).replace("{version}", number)
    others, undecided = _others(owner, title, spec, artefact, beside)
    roots = [root for one in (artefact, *others) for root in one.roots]
    sources = Sources(roots)
    facts = tuple(one.facts for one in (artefact, *others))
    if spec:
        surface, missing = made(owner, title, spec, sources, facts)
    else:
        surface, missing = discovered(name, number, Sources(artefact.roots), facts)
    # what a surface keeps for itself while it is composed stays out of it
    keys, uncomposed = flat({**surface})
    leaves = {key.rpartition(".")[2] for found in keys.values() for key in found}
    code = read_code(Sources(artefact.roots), spec.get("packages", ()), leaves)
    broken = {**sources.broken, **code.broken}
    undecided += [
        *_otherwise(owner, title, facts),
        *missing,
        *uncomposed,
        *(f"{module} cannot be read: {why}" for module, why in broken.items()),
    ]
    metadata = artefact.metadata
    return Scan(
        owner,
        title,
        name,
        number,
        surface,
        facts,
        metadata.requires_python,
        metadata.requirements,
        metadata.entry_points,
        code.choices,
        tuple(code.checks),
        tuple(dict.fromkeys(undecided)),
        keys,
        True,
        code,
        sources,
    )


def _plain(what: str) -> str:
    from packaging.utils import canonicalize_name

    return canonicalize_name(re.split(r"[=<>!~;\[ ]", what, maxsplit=1)[0])


def _shipped(framework: str, version: str) -> Scan:
    from tuneport.registry import catalog, surfaces

    if framework not in catalog.frameworks():
        raise NotFound(f"there is no framework {framework!r}", code="framework-unknown")
    surface = surfaces.of(framework, version)
    artefacts = tuple(catalog.release_spec(framework, version).get("artefacts", ()))
    keys, undecided = flat({**surface}) if surface else ({}, [])
    why = "requirements, entry points and checks are not in a surface: name the wheel to compare them too"
    name = artefacts[0]["name"] if artefacts else framework
    number = artefacts[0]["version"] if artefacts else version
    return Scan(
        framework,
        version,
        name,
        number,
        surface,
        artefacts,
        undecided=(*undecided, why),
        keys=keys,
        whole=False,
    )


def _otherwise(framework: str, release: str, facts: Sequence[Mapping[str, str]]) -> list[str]:
    """What was read that is not what the manifest of this release was made from."""
    from tuneport.registry import catalog

    if not framework or release not in catalog.releases(framework):
        return []
    listed = catalog.release_spec(framework, release).get("artefacts", ())
    pinned = {(item["name"], item["version"]): item.get("sha256") for item in listed}
    found = []
    for item in facts:
        expected = pinned.get((item["name"], item["version"]))
        if expected and item.get("sha256", expected) != expected:
            what = f"{item['name']} {item['version']}"
            found.append(f"{what} is another file than the manifest of {release} was made from")
    return found


def _others(
    framework: str, release: str, spec: Mapping[str, Any], artefact: Artefact, beside: Sequence[str]
) -> tuple[list[Artefact], list[str]]:
    """(the artefacts of the packages that the recipe reads too, what is to be said of them)."""
    given = {_plain(word): word for word in beside}
    wanted = spec.get("with", ())
    if odd := [word for name, word in given.items() if name not in wanted]:
        those = f"{', '.join(wanted)} is" if wanted else "nothing is"
        message = f"{odd[0]!r} is not read beside {artefact.metadata.name}: {those}"
        raise Invalid(message, code="upstream-with", hint="see `with` under `scan` of framework.yaml")
    if not wanted:
        return [], []
    from tuneport.registry import catalog

    pinned: dict[str, str] = {}
    if release in catalog.releases(framework):
        listed = catalog.release_spec(framework, release).get("artefacts", ())
        pinned = {item["name"]: f"{item['name']}=={item['version']}" for item in listed}
    found, said = [], []
    for name in wanted:
        allowed = artefact.metadata.requirements.get(name, "").split(";")[0].split("|")[0].strip()
        word = given.get(name) or pinned.get(name) or f"{name}{allowed}"
        found.append(obtain(word, {"python": spec.get("python", "")}))
        if name not in given and name not in pinned:
            number = found[-1].metadata.version
            said.append(
                f"{name} {number} was read beside it, the newest that it allows; --with names another"
            )
    return found, said
