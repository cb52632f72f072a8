"""recipe.lock.json: what an experiment was created against, and what has changed since."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tuneport.errors import NotFound, TuneportError, Untrusted
from tuneport.experiment.site import required_trust
from tuneport.experiment.yamlread import read_text
from tuneport.registry import store
from tuneport.types import Finding, Json

NAME = "recipe.lock.json"


def make(method_id: str, version: str) -> dict[str, Json]:
    """The lock of a method at a release, as the catalog has it now. `trust` is there where the site asks
    for a level."""
    from tuneport.registry import catalog

    method = catalog.method(method_id, version)
    published = catalog.release_spec(method.framework, version)
    lock: dict[str, Json] = {
        "recipe": {
            "name": method_id,
            "version": str(method.spec.get("version", "1")),
            "digest": method.digest,
        },
        "framework": {"kind": method.framework, "version": version, "runtime_id": published["runtime"]["id"]},
        "requires": {"core": method.spec.get("requires", {}).get("core", ">=0.1")},
    }
    if required_trust()[0] != "unsigned":
        from tuneport.registry import trust

        lock["trust"] = trust.recorded(method.framework)
    lock["lock_digest"] = _own_digest(lock)
    return lock


def _own_digest(lock: Mapping[str, Json]) -> str:
    """The digest of a lock, kept: writing canonical JSON takes longer than reading an answer."""
    place = f"lock-{store.hash_text(lock['recipe']['name']):x}"
    kept = store.load(place, lock)
    if not isinstance(kept, str):
        from tuneport.registry.digest import digest

        kept = digest(lock)
        store.save(place, lock, kept)
    return kept


def text(lock: Mapping[str, Json]) -> str:
    """The file's content."""
    return json.dumps(lock, indent=2, ensure_ascii=False) + "\n"


def read(path: Path) -> tuple[dict[str, Json] | None, list[Finding]]:
    """The lock, or None with the findings that say why. Every problem of the file is named."""
    place = str(path)
    try:
        content = read_text(path, 64 * 1024)
    except NotFound:
        message = "there is no recipe.lock.json: nothing says which method this is"
        hint = "create the experiment with `tp new`, or `tp recipe upgrade EXP --method FRAMEWORK/METHOD`"
        return None, [Finding("lock-missing", "error", message, hint, NAME, place)]
    except TuneportError as error:
        return None, [Finding("lock-unreadable", "error", error.message, error.hint, NAME, place)]
    repeated: list[str] = []

    def pairs(items: list[tuple[str, Json]]) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for key, value in items:
            if key in found:
                repeated.append(key)
            found[key] = value
        return found

    hint = "`tp recipe upgrade EXP` writes a fresh one"
    try:
        lock = json.loads(content, object_pairs_hook=pairs, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        message = f"recipe.lock.json is not JSON: {error}"
        return None, [Finding("lock-broken", "error", message, hint, NAME, place, line)]
    findings = [
        Finding(
            "lock-duplicate-key", "error", f"`{key}` is written twice", hint, key, place, _line(content, key)
        )
        for key in repeated
    ]
    if not findings and _is_fresh(lock):
        return lock, []
    findings += _shape(lock, content, place, hint)
    if not findings:
        findings += _sealed(lock, content, place, hint)
    return (lock if isinstance(lock, dict) and not findings else None), findings


def _is_fresh(lock: Json) -> bool:
    """Whether this is, to the last value, what the catalog would write now: then nothing is to be said."""
    try:
        fresh: bool = lock == make(lock["recipe"]["name"], lock["framework"]["version"])
    except (TuneportError, KeyError, TypeError, AttributeError):
        return False
    return fresh


def _constant(word: str) -> Json:
    raise ValueError(f"{word} is not JSON")


def _shape(lock: Json, content: str, place: str, hint: str) -> Iterator[Finding]:
    from tuneport.registry import schemas

    for path, message, fix in schemas.problems(lock, schemas.schema("lock")):
        key = ".".join(str(part) for part in path)
        unknown = message.partition("'")[2].rpartition("'")[0] if message.startswith("unknown key") else ""
        name = ".".join(filter(None, (key, unknown)))
        line = _line(content, name.rpartition(".")[2])
        text = f"{key}: {message}" if key else message
        yield Finding("lock-schema", "error", text, fix if "did you mean" in fix else hint, name, place, line)


def _sealed(lock: Mapping[str, Json], content: str, place: str, hint: str) -> Iterator[Finding]:
    """The lock's own digest: an edit is found even where the catalog cannot tell which field changed."""
    from tuneport.registry.digest import digest

    body = {key: value for key, value in lock.items() if key != "lock_digest"}
    if digest(body) != lock["lock_digest"]:
        changed = ", ".join(_edited(lock)) or "some value"
        message = f"recipe.lock.json was edited after it was written: {changed}"
        key = next(iter(_edited(lock)), "lock_digest")
        yield Finding(
            "lock-tampered", "error", message, hint, key, place, _line(content, key.rpartition(".")[2])
        )


def _edited(lock: Mapping[str, Json]) -> list[str]:
    """Which fields differ from the lock that the catalog would write for what this one claims to be."""
    try:
        fresh = make(lock["recipe"]["name"], lock["framework"]["version"])
    except TuneportError as error:
        if error.code == "release-unknown":
            return ["framework.version"]
        return ["recipe.name"] if error.code in ("method-unknown", "framework-unknown") else []
    return [key for key, old, new in differences(lock, fresh) if old != new]


def differences(lock: Mapping[str, Json], fresh: Mapping[str, Json]) -> list[tuple[str, Json, Json]]:
    """(field, locked, now) of everything that differs, `lock_digest` only where nothing else does."""
    found = []
    for group in ("recipe", "framework", "requires"):
        for field, value in fresh[group].items():
            if lock[group].get(field) != value:
                found.append((f"{group}.{field}", lock[group].get(field), value))
    same = lock.get("trust") == fresh.get("trust")  # else what is installed has been held to both
    if not found and same and lock["lock_digest"] != fresh["lock_digest"]:
        found.append(("lock_digest", lock["lock_digest"], fresh["lock_digest"]))
    return found


def check(lock: Mapping[str, Json], place: Path, version: str = "") -> Iterator[Finding]:
    """Findings for a sound lock against the installed catalog; `version` is a release asked for instead.

    Raises:
        Untrusted: what is installed is trusted less than the lock says it was.
    """
    name, kind = lock["recipe"]["name"], lock["framework"]["kind"]
    locked = lock["framework"]["version"]
    file = str(place)
    content = read_text(place, 64 * 1024)

    def finding(code: str, message: str, hint: str, key: str) -> Finding:
        return Finding(code, "error", message, hint, key, file, _line(content, key.rpartition(".")[2]))

    if kind != name.partition("/")[0]:
        message = f"the lock says framework {kind!r} for the method {name!r}"
        yield finding("lock-kind", message, "`tp recipe upgrade EXP` writes a fresh one", "framework.kind")
        return
    required_trust()  # a site file that cannot be read is no fault of the lock
    try:
        fresh = make(name, locked)
    except Untrusted:
        raise
    except TuneportError as error:
        key = "framework.version" if error.code == "release-unknown" else "recipe.name"
        yield finding("lock-" + error.code, error.message, error.hint, key)
        return
    if "trust" in lock:
        from tuneport.registry import trust

        trust.hold(kind, lock["trust"])
    for field, old, new in differences(lock, fresh):
        code = "lock-stale"
        message = f"{field} is {old} in the lock and {new} in the installed catalog"
        hint = "`tp recipe status EXP` shows what changed, `tp recipe upgrade EXP` moves the lock"
        yield finding(code, message, hint, field)
    yield from _core(lock, finding)
    if version and version != locked:
        yield Finding(
            "lock-release",
            "error",
            f"the lock is for {kind} {locked} and --framework-version asks for {version}",
            f"`tp recipe upgrade EXP --framework-version {version}` moves it",
            "--framework-version",
            file,
            _line(content, "version"),
        )


def _core(lock: Mapping[str, Json], finding: object) -> Iterator[Finding]:
    from tuneport._version import __version__

    wanted = lock["requires"]["core"]
    if not _meets(__version__, wanted):
        message = f"the lock needs tuneport-core {wanted} and this is {__version__}"
        yield finding(
            "lock-core", message, "upgrade tuneport-core, or `tp recipe upgrade EXP`", "requires.core"
        )  # type: ignore[operator]


def _meets(version: str, wanted: str) -> bool:
    """Whether a version is in a range. The common `>=1.2` is decided without loading the range parser."""
    plain = re.compile(r"[0-9]+(\.[0-9]+)*\Z")
    if wanted.startswith(">=") and plain.match(wanted[2:]) and plain.match(version):
        return [*map(int, version.split("."))] >= [*map(int, wanted[2:].split("."))]
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(wanted).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def _line(content: str, key: str) -> int:
    """The line of the first `"key":` in the file; 0 where there is none."""
    for number, line in enumerate(content.splitlines(), 1):
        if f'"{key}"' in line:
            return number
    return 0
