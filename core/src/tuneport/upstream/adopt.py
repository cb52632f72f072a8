"""Drafts everything that a new release of a known framework needs, as data, and proves what can be proved.

The draft starts from the nearest release that the manifests have. Nothing that exists is changed: the release
is opt-in, and what a person has to decide is said, not guessed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tuneport.errors import Invalid, NotFound, TuneportError, Unavailable
from tuneport.experiment.create import write_atomic
from tuneport.registry import catalog, surfaces
from tuneport.settings import setting
from tuneport.types import Json, Key
from tuneport.upstream import adopt_gates, adopt_release
from tuneport.upstream.adopt_gates import Side, Verdict
from tuneport.upstream.scan import Scan, scan

if TYPE_CHECKING:
    from tuneport.upstream.diff import Difference

SURE = 0.9
"""Confidence from which a move is written into the draft; others are for a person to decide."""
_RELEASE = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+!-]*")
_TIME = 3600  # seconds for the proof of a framework


@dataclass(frozen=True, slots=True)
class Adoption:
    """A drafted release. `files` are name below the manifest folder -> content; `verdicts` say which rules
    and parameters apply; `proof` is that of `adopt_proof`; `changed` are locks of other releases that would
    go stale, which is a fault; `unmet` are requirements that the pinned sets do not meet, `left_open` those
    that they do not pin for the base either."""

    framework: str
    release: str
    base: str
    scan: Scan
    difference: Difference
    verdicts: tuple[Verdict, ...]
    files: Mapping[str, str]
    unmet: tuple[str, ...]
    proof: Mapping[str, Json]
    changed: tuple[str, ...]
    left_open: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing that was tried failed."""
        broken = [row for row in self.proof["methods"] if row["errors"]]
        return not (broken or self.changed or self.proof["problems"] or self.unmet)

    def write(self, folder: Path) -> list[Path]:
        """Write the drafted files below a manifest folder.

        Raises:
            Invalid: one of them is there already with other content.
        """
        paths = {folder / name: text for name, text in self.files.items()}
        for path, text in paths.items():
            if path.exists() and path.read_bytes() != text.encode():
                message = f"{path} exists already with other content"
                raise Invalid(message, code="release-exists", hint="move it away to draft it anew")
        for path, text in reversed(paths.items()):  # the release last: it is there once its surface is
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text)
        return list(paths)


def target(into: str = "") -> Path:
    """The manifest folder that a draft is written below.

    Raises:
        Invalid: none was named, or it is no folder.
    """
    folders = [into] if into else (setting("MANIFEST_PATH") or "").split(os.pathsep)
    if not folders[-1]:
        message = "no manifest folder was named, and TUNEPORT_MANIFEST_PATH names none"
        raise Invalid(message, code="adopt-into", hint="--into DIR; then put it into TUNEPORT_MANIFEST_PATH")
    if not Path(folders[-1]).is_dir():
        raise Invalid(f"{folders[-1]} is not a folder", code="adopt-into", hint="create it first")
    return Path(folders[-1])


def adopt(
    name: str,
    version: str,
    *,
    source: str = "",
    commands: Sequence[str] = (),
    install: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Adoption:
    """Draft a release and prove it.

    Args:
        name: a framework, or a distribution that its `scan` section names.
        source: a wheel, archive or folder to read instead of what pip finds.
        commands: folders of shell scripts, which are checked at both releases; without any, those of a folder
            that is the source.
        install: build the drafted runtime where it is not here, so that its own parser can be asked.
        say: told what is being done, since reading and proving take a minute.

    Raises:
        TuneportError: the framework is unknown, the release is there already, or it cannot be had or read.
    """
    framework, distribution = _who(name)
    if source and not Path(source).exists():  # as a requirement, pip would look for it
        message = f"there is no file or folder {source}"
        raise Invalid(message, code="upstream-name", hint="name a wheel, source archive or folder")
    for folder in commands:
        if not os.path.isdir(folder):
            message = f"{folder!r} is not a folder"
            raise Invalid(message, code="adopt-commands", hint="name the folder that holds your scripts")
    known = catalog.releases(framework)
    say(f"reading {distribution} {version}")
    release = _title(framework, distribution, version)
    if not _RELEASE.fullmatch(release):
        message = f"{release[:80]!r} cannot be the name of a release"
        raise Invalid(message, code="upstream-name", hint="for example 1.2.3")
    if release in known:
        message = f"{framework} {release} is among the manifests already"
        raise Invalid(message, code="release-exists", hint=f"tp methods {framework} lists what runs on it")
    sides = _beside(framework, release, known)
    base = sides[0]
    pins = _pins(framework, base, distribution)
    found = scan(source or f"{distribution}=={version}", framework, release=version, beside=pins)
    from tuneport.upstream.checks import checks_changed
    from tuneport.upstream.diff import diff

    say(f"comparing it with {framework} {base}")
    old = scan(f"{framework}@{base}")
    code = _read_base(framework, base, distribution)
    if not old.keys:  # it ships no surface: its methods read another one
        old = code or old
    difference = diff(old, found)
    if code is not None:  # a shipped surface says nothing of checks
        difference = replace(difference, checks=checks_changed(code.checks, found.checks))
    shipped = {one: old if one == base else scan(f"{framework}@{one}") for one in sides}
    known_sides = [_side(framework, one, shipped[one].keys, say) for one in sides]
    verdicts = [
        *adopt_gates.rules(framework, release, found.keys, found.sources.roots, known_sides),
        *adopt_gates.params(framework, release, found.keys, known_sides),
    ]
    files = _files(framework, base, found, difference, verdicts)
    spec = catalog.release_spec(framework, base)
    unmet, left_open = adopt_release.unmet(spec, found, known_sides[0].requirements)
    say("proving every method of it" + (", once its runtime is installed" if install else ""))
    scripts = list(commands) or ([source] if Path(source or os.devnull).is_dir() else [])
    proof = _proof(framework, release, base, files, {"commands": scripts, "install": install})
    before = _digests(framework)
    changed = [lock for lock, digest in before.items() if proof["digests"].get(lock) != digest]
    return Adoption(
        framework,
        release,
        base,
        found,
        difference,
        tuple(verdicts),
        files,
        tuple(unmet),
        proof,
        tuple(changed),
        tuple(left_open),
    )


def _who(name: str) -> tuple[str, str]:
    """(framework, distribution) of a name that is either."""
    for framework in catalog.frameworks():
        scans = catalog.framework_spec(framework).get("scan", {})
        if name in scans:
            return framework, name
        if name == framework and len(scans) == 1:
            return framework, next(iter(scans))
        if name == framework and scans:
            hint = f"name one of {', '.join(scans)}"
            raise Invalid(f"{framework} is read from several distributions", code="adopt-which", hint=hint)
    raise NotFound(
        f"no framework here is read from {name!r}",
        code="framework-unknown",
        hint="its framework.yaml needs a `scan` section; `tp upstream scan` reads any release",
    )


def _title(framework: str, distribution: str, version: str) -> str:
    spec = catalog.framework_spec(framework)["scan"][distribution]
    return str(spec.get("release", "{version}")).replace("{version}", version)


def _beside(framework: str, release: str, known: Sequence[str]) -> list[str]:
    """The releases next to a new one, the older first; those of another distribution do not count."""
    head = release.rpartition("-")[0]
    numbers = {
        title.rpartition("-")[2]: title for title in (*known, release) if title.rpartition("-")[0] == head
    }
    ordered = [numbers[number] for number in catalog.in_order(numbers)]
    here = ordered.index(release)
    if len(ordered) == 1:
        message = f"{framework} has no release that {release} could start from"
        raise Invalid(message, code="adopt-base", hint="write its first release by hand: docs/manifests.md")
    return [*ordered[:here][-1:], *ordered[here + 1 : here + 2]]


def _pins(framework: str, base: str, distribution: str) -> list[str]:
    """What was read beside the base: the same versions are read beside the new release."""
    items = catalog.release_spec(framework, base).get("artefacts", ())
    wanted = catalog.framework_spec(framework)["scan"][distribution].get("with", ())
    return [f"{item['name']}=={item['version']}" for item in items if item["name"] in wanted]


def _side(
    framework: str, release: str, keys: Mapping[str, Mapping[str, Key]], say: Callable[[str], None]
) -> Side:
    """A known release with its code; without it, where it cannot be had, nothing is compared with it."""
    from tuneport.upstream.artefacts import obtain

    spec = catalog.release_spec(framework, release)
    gates = {kind: spec.get("gates", {}).get(kind, {}) for kind in ("rules", "params")}
    scans = catalog.framework_spec(framework).get("scan", {})
    roots: list[Path] = []
    requirements: dict[str, str] = {}
    for item in spec.get("artefacts", ()):
        try:
            artefact = obtain(f"{item['name']}=={item['version']}", scans.get(item["name"], {}))
            roots += artefact.roots
            requirements |= artefact.metadata.requirements
        except TuneportError as error:
            say(f"{item['name']} {item['version']} cannot be compared with: {error.message}")
    return Side(release, tuple(roots), gates, keys, requirements)


def _read_base(framework: str, base: str, distribution: str) -> Scan | None:
    """The base as its own code has it, None where that cannot be had."""
    for item in catalog.release_spec(framework, base).get("artefacts", ()):
        if item["name"] == distribution:
            try:
                return scan(f"{distribution}=={item['version']}", framework)
            except TuneportError:
                return None
    return None


def _files(
    framework: str, base: str, found: Scan, difference: Difference, verdicts: Sequence[Verdict]
) -> dict[str, str]:
    """Name below the manifest folder -> content. A surface only where the base has one."""
    spec = catalog.release_spec(framework, base)
    written = catalog.release_file(framework, base).read_text("utf-8")
    known = {(move["from"], move["to"]) for move in spec.get("moves", ())}
    moves = {
        (move.old, move.new): {"from": move.old, "to": move.new, "since": found.release}
        for move in difference.moved
        if move.confidence >= SURE and (move.old, move.new) not in known
    }
    gates: dict[str, dict[str, str]] = {"params": {}, "rules": {}}
    for verdict in verdicts:
        if not verdict.applies:
            gates[verdict.kind][verdict.name] = verdict.reason
    surface = bool(surfaces.of(framework, base))
    text = adopt_release.draft(written, spec, found, list(moves.values()), gates, surface=surface)
    files = {f"{framework}/releases/{found.release}.yaml": text}
    return {**files, f"{framework}/surfaces/{found.release}.json": found.text()} if surface else files


def _digests(framework: str) -> dict[str, str]:
    from tuneport.upstream.adopt_proof import digests

    return digests(framework)


def _proof(
    framework: str, release: str, base: str, files: Mapping[str, str], options: Mapping[str, Json]
) -> dict[str, Json]:
    """Run `adopt_proof` on a catalog that has the draft, in a process that has read no other."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in files.items():
            file = Path(scratch) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        path = os.pathsep.join(filter(None, (setting("MANIFEST_PATH"), scratch)))
        env = {**os.environ, "TUNEPORT_MANIFEST_PATH": path}
        module = "tuneport.upstream.adopt_proof"
        command = [sys.executable, "-m", module, framework, release, base, json.dumps(options)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", env=env, timeout=_TIME, check=False
            )
        except subprocess.TimeoutExpired:
            message = f"the proof of {framework} {release} took more than {_TIME} seconds"
            hint = "name fewer scripts with --commands"
            raise Unavailable(message, code="adopt-proof", hint=hint) from None
    try:
        proof: dict[str, Json] = json.loads(done.stdout)
    except ValueError:
        last = "".join(done.stderr.splitlines(keepends=True)[-8:])
        message = f"the proof of {framework} {release} did not end: {last or done.returncode}"
        raise Unavailable(message, code="adopt-proof") from None
    return proof
