"""recipe.lock.json: what an experiment was created against, and what has changed since."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice, product
from pathlib import Path

from tuneport.errors import NotFound, TuneportError, Untrusted
from tuneport.experiment.site import required_trust
from tuneport.experiment.yamlread import read_text
from tuneport.registry import store
from tuneport.types import Finding, Json

NAME = "recipe.lock.json"
_MOST = 500
"""So many locks are tried to say which one was edited; a catalog may have far more."""


def make(method_id: str, version: str) -> dict[str, Json]:
    """The lock of a method at a release, as the catalog has it now. `trust` is there where the site asks
    for a level."""
    lock = _body(method_id, version)
    if required_trust()[0] != "unsigned":
        from tuneport.registry import trust

        lock["trust"] = trust.recorded(lock["framework"]["kind"])
    lock["lock_digest"] = _own_digest(lock)
    return lock


def _body(method_id: str, version: str) -> dict[str, Json]:
    from tuneport.registry import catalog

    method = catalog.method(method_id, version)
    published = catalog.release_spec(method.framework, version)
    return {
        "recipe": {
            "name": method_id,
            "version": str(method.spec.get("version", "1")),
            "digest": method.digest,
        },
        "framework": {"kind": method.framework, "version": version, "runtime_id": published["runtime"]["id"]},
        "requires": {"core": method.spec.get("requires", {}).get("core", ">=0.1")},
    }


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
        line = _line(content, name)
        text = f"{key}: {message}" if key else message
        yield Finding("lock-schema", "error", text, fix if "did you mean" in fix else hint, name, place, line)


def _sealed(lock: Mapping[str, Json], content: str, place: str, hint: str) -> Iterator[Finding]:
    """The lock's own digest: an edit is found even where the catalog cannot tell which field changed."""
    from tuneport.registry.digest import digest

    body = {key: value for key, value in lock.items() if key != "lock_digest"}
    if digest(body) != lock["lock_digest"]:
        edited = _edited(lock)
        changed = ", ".join(edited) or "some value"
        message = f"recipe.lock.json was edited after it was written: {changed}"
        key = next(iter(edited), "lock_digest")
        yield Finding("lock-tampered", "error", message, hint, key, place, _line(content, key))


def _edited(lock: Mapping[str, Json]) -> list[str]:
    """Which fields differ from the lock that this one was written as; where the catalog has no such lock,
    from the one that it would write for what this one claims to be."""
    written = _written_as(lock)
    if written:
        return [key for key, _old, _new in differences(lock, written)]
    try:
        fresh = make(lock["recipe"]["name"], lock["framework"]["version"])
    except TuneportError as error:
        if error.code == "release-unknown":
            return ["framework.version"]
        return ["recipe.name"] if error.code in ("method-unknown", "framework-unknown") else []
    return [key for key, old, new in differences(lock, fresh) if old != new]


def _written_as(lock: Mapping[str, Json]) -> dict[str, Json] | None:
    """The lock, of those that the catalog would write, whose digest this one still has."""
    from tuneport.registry.digest import digest

    trusted = {key: lock[key] for key in ("trust",) if key in lock}
    for name, version in islice(_alike(lock), _MOST):
        try:
            body = _body(name, version) | trusted
        except TuneportError:
            continue
        if digest(body) == lock["lock_digest"]:
            return {**body, "lock_digest": lock["lock_digest"]}
    return None


def _alike(lock: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Methods and releases that a lock may have been for, those first that differ in one of the two."""
    from tuneport.registry import catalog

    name, locked = lock["recipe"]["name"], lock["framework"]["version"]
    yield name, locked
    for kind in dict.fromkeys((lock["framework"]["kind"], name.partition("/")[0])):
        try:
            methods, releases = [row[0] for row in catalog.methods(kind)], catalog.releases(kind)
        except TuneportError:
            continue
        yield from ((name, version) for version in releases)
        yield from ((method, locked) for method in methods)
        yield from product(methods, releases)


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
        return Finding(code, "error", message, hint, key, file, _line(content, key))

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
            _line(content, "framework.version"),
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
    """The line of the first key with this path, or with this end of one; 0 where there is none."""
    wanted = key.split(".")
    here: list[str] = []
    name = ""
    for token in re.finditer(r'"((?:\\.|[^"\\])*)"(\s*:)?|[{}]', content):
        if token[0] == "{":
            here.append(name)
        elif token[0] == "}":
            here = here[:-1]
        elif token[2]:
            name = token[1]
            if [*here, name][-len(wanted) :] == wanted:
                return content.count("\n", 0, token.start()) + 1
    return 0
