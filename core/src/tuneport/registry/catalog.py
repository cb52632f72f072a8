"""The catalog: what is known of frameworks, releases and methods, resolved and ready to use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from tuneport.errors import Invalid, NotFound, TuneportError, Untrusted
from tuneport.registry.index import BINDING, Index, index
from tuneport.registry.sources import framework_folders, keep_listing
from tuneport.text import closest
from tuneport.types import Finding, Json, Method, Param

# What a method says about itself without changing what runs: left out of its digest.
_PROSE = ("title", "summary", "papers", "explain", "metrics", "starts_from", "extends")
_TALK = ("note", "hint", "say", "source")  # of a parameter, binding, rule or move
_TALK_MAPS = ("reserved", "requires_files")  # key -> sentence
_OWN = ("method", "title")
MAX_EXTENDS = 50


def frameworks() -> list[str]:
    """Every framework that some source describes."""
    return sorted(framework_folders())


def releases(framework: str) -> list[str]:
    """The framework's releases, oldest first, opt-in ones included."""
    return in_order(index_of(framework)["releases"])


def in_order(titles: Iterable[str]) -> list[str]:
    """Releases, the oldest first; before them those that are called by no version, as text."""
    from packaging.version import InvalidVersion, Version

    def order(text: str) -> tuple[int, Any]:
        try:
            return (1, Version(text))
        except InvalidVersion:
            return (0, text)

    return sorted(titles, key=order)


def default_release(framework: str) -> str:
    """The release that is meant where none is named."""
    return str(_doc(framework, "framework", "framework")["default_release"])


def framework_spec(framework: str) -> Mapping[str, Json]:
    """framework.yaml."""
    return _doc(framework, "framework", "framework")


def launchers() -> dict[str, dict[str, Json]]:
    """Every command that starts programs of a framework and is not known everywhere: name -> its flags."""
    found: dict[str, dict[str, Json]] = {}
    for framework in frameworks():
        with suppress(TuneportError):  # said by whoever needs this framework
            found |= framework_spec(framework).get("launchers", {})
    return found


def programs() -> dict[str, dict[str, Json]]:
    """Every command of a framework that starts its entry points by a word: name -> its words."""
    found: dict[str, dict[str, Json]] = {}
    for framework in frameworks():
        with suppress(TuneportError):
            found |= framework_spec(framework).get("programs", {})
    return found


def beside() -> dict[str, dict[str, Json]]:
    """Every command that people write beside programs of a framework, such as one that starts a server: the
    words that it begins with -> its flags."""
    found: dict[str, dict[str, Json]] = {}
    for framework in frameworks():
        with suppress(TuneportError):
            found |= framework_spec(framework).get("beside", {})
    return found


def release_file(framework: str, version: str) -> Path:
    """Where `release_spec` was read from.

    Raises:
        NotFound: no such release.
    """
    release_spec(framework, version)
    return Path(index_of(framework)["releases"][version]["file"])


def release_spec(framework: str, version: str) -> Mapping[str, Json]:
    """releases/<version>.yaml.

    Raises:
        NotFound: no such release; those that exist are named.
    """
    if version not in index_of(framework)["releases"]:
        known = releases(framework)
        raise NotFound(
            f"{framework} has no release {version!r} here; there are {', '.join(known) or 'none'}",
            code="release-unknown",
            hint=f"--framework-version {default_release(framework)} is the default" if known else "",
        )
    return _doc(framework, "releases", version)


def methods(framework: str = "") -> list[tuple[str, str, str]]:
    """(id, title, problem) of each method, of one framework or of all."""
    from tuneport.experiment.site import required_trust

    rows = []
    required_trust()  # a site file that cannot be read is no reason to list nothing
    for name in [framework] if framework else frameworks():
        try:
            found = index_of(name)["methods"]
        except (NotFound, Untrusted):
            if framework:
                raise
            continue
        for stem, entry in sorted(found.items()):
            if not stem.startswith("_"):
                doc = entry["doc"] or {}
                problem = entry["problems"][0]["message"] if entry["problems"] else ""
                rows.append((f"{name}/{stem}", str(doc.get("title", "")), problem))
    keep_listing()
    return rows


def method_file(method_id: str) -> str:
    """The path of a method's manifest."""
    framework, _, stem = method_id.partition("/")
    return str(index_of(framework)["methods"][stem]["file"])


def problems(framework: str) -> list[Finding]:
    """Everything wrong with the framework's manifests."""
    found: list[Finding] = []
    for kind in index_of(framework).values():
        for entry in kind.values():
            found.extend(Finding(**problem) for problem in entry["problems"])
    return found


def method(method_id: str, version: str = "") -> Method:
    """A method resolved for one release: mixins merged, the release's gates applied.

    Raises:
        NotFound: no such method or release; close names are offered.
        Invalid: its manifest, or one that it needs, is broken.
    """
    framework, _, stem = method_id.partition("/")
    if (
        framework not in framework_folders()
        or stem not in index_of(framework)["methods"]
        or stem.startswith("_")
    ):
        raise _unknown(method_id)
    return _method(framework, stem, version or default_release(framework))


@cache
def _method(framework: str, stem: str, version: str) -> Method:
    method_id, spec = f"{framework}/{stem}", resolved(framework, stem, version)
    if "launch" not in spec:
        message = f"the manifest of {method_id} says nothing about how to launch it"
        raise Invalid(message, code="manifest-launch", hint="write `launch:`, or extend a mixin that has it")
    gates = release_spec(framework, version).get("gates", {}).get("params", {})
    offered = {name: _param(name, item) for name, item in spec.get("params", {}).items() if name not in gates}
    # A key that the method pins is nobody's to set, also where a mixin binds a parameter to it.
    pinned = set(spec.get("identity", {}))
    params = {name: param for name, param in offered.items() if pinned.isdisjoint(param.keys)}
    return Method(
        method_id, framework, str(spec.get("title", "")), spec, params, recipe_digest(method_id, version)
    )


@cache
def program(framework: str, version: str, entry: str) -> Method | None:
    """What is known of a program that no method runs: the mixin that has it as its own `entry`, if any."""
    for stem, item in sorted(index_of(framework)["methods"].items()):
        if stem.startswith("_") and (item["doc"] or {}).get("entry") == entry:
            return Method(framework, framework, "", resolved(framework, stem, version), {}, "")
    return None


@cache
def resolved(framework: str, stem: str, version: str = "") -> dict[str, Json]:
    """A method's manifest with everything it extends merged in; `method` and `title` are its own.

    With a version, what that release lays over the method is on top.
    """
    found = _resolve(framework, stem, (), {})
    laid = release_spec(framework, version).get("extends", {}).get(stem, ()) if version else ()
    for name in laid:
        over = _resolve(framework, name, (), {})
        found = _merge(found, {key: value for key, value in over.items() if key not in _OWN})
    return found


def _resolve(
    framework: str, stem: str, chain: tuple[str, ...], done: dict[str, dict[str, Json]]
) -> dict[str, Json]:
    """`done` holds what was resolved on the way: a mixin that many share is merged once."""
    if stem in done:
        return done[stem]
    if stem in chain or len(chain) > MAX_EXTENDS:
        what = "a circle" if stem in chain else f"more than {MAX_EXTENDS} levels"
        shown = " extends ".join((*chain[:5], "…", *chain[-2:], stem) if len(chain) > 8 else (*chain, stem))
        raise Invalid(f"{framework}: {shown}: {what}", code="manifest-circle", hint="break it")
    doc = _doc(framework, "methods", stem)
    merged: dict[str, Json] = {}
    for parent in doc.get("extends", ()):
        owner, _, name = parent.rpartition("/")
        if owner not in ("", framework):
            raise Invalid(
                f"{framework}/{stem} extends {parent}, which is another framework's",
                code="manifest-extends",
                hint=f"extend methods and mixins of {framework} only",
            )
        base = _resolve(framework, name, (*chain, stem), done)
        merged = _merge(merged, {key: value for key, value in base.items() if key not in _OWN})
    done[stem] = _merge(merged, doc)
    return done[stem]


def _merge(base: Mapping[str, Json], over: Mapping[str, Json]) -> dict[str, Json]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def rules(
    framework: str, version: str, topics: list[str], without: Collection[str] = ()
) -> tuple[list[dict[str, Json]], list[dict[str, Json]]]:
    """(rules, inert entries) of the topics that apply to the release; `without` names some, too."""
    gates = release_spec(framework, version).get("gates", {}).get("rules", {})
    out, checks, inert = {*gates, *without}, list[dict[str, Json]](), list[dict[str, Json]]()
    for topic in topics:
        doc = _doc(framework, "rules", topic)
        checks += [rule for rule in doc.get("rules", ()) if rule["code"] not in out]
        inert += [rule for rule in doc.get("inert", ()) if rule.get("code", rule["key"]) not in out]
    return checks, inert


def all_rules(framework: str, topic: str) -> tuple[list[dict[str, Json]], list[dict[str, Json]]]:
    """(rules, inert entries) of a topic, those that a release gates included."""
    doc = _doc(framework, "rules", topic)
    return list(doc.get("rules", ())), list(doc.get("inert", ()))


@cache
def recipe_digest(method_id: str, version: str) -> str:
    """The digest of the recipe resolved for one release: all that decides what runs, no prose.

    Writing the recipe as canonical JSON takes longer than all the rest, so the digest is kept with those of
    the files that it comes from.
    """
    from tuneport.registry import store
    from tuneport.registry.digest import digest

    files = [
        [kind, name, entry.get("digest", "")]
        for kind, entries in index_of(method_id.partition("/")[0]).items()
        for name, entry in entries.items()
    ]
    place, key = f"recipe-{store.hash_text(f'{method_id} {version}'):x}", [method_id, version, files]
    kept = store.load(place, key)
    if not isinstance(kept, str):
        kept = digest(recipe_parts(method_id, version))
        store.save(place, key, kept)
    return kept


def recipe_parts(method_id: str, version: str) -> dict[str, Json]:
    """What the recipe digest covers, so that a difference can be shown part by part."""
    framework, _, stem = method_id.partition("/")
    spec = {key: value for key, value in resolved(framework, stem, version).items() if key not in _PROSE}
    parts = {key: value for key, value in spec.items() if key != "rules"}
    parts |= {key: sorted(spec[key]) for key in _TALK_MAPS if key in spec}
    if "bind" in spec:
        parts["bind"] = {flag: _bare(item) for flag, item in spec["bind"].items()}
    published = release_spec(framework, version)
    gates = published.get("gates", {})
    parts["params"] = {
        name: _bare(item)
        for name, item in spec.get("params", {}).items()
        if name not in gates.get("params", {})
    }
    checks, inert = rules(framework, version, spec.get("rules", []), spec.get("gates", ()))
    parts["checks"], parts["inert"] = [*map(_bare, checks)], [*map(_bare, inert)]
    parts["moves"] = [_bare(move) for move in published.get("moves", ())]
    parts["entries"] = published.get("entries", {})
    parts["runtime_id"] = published["runtime"]["id"]
    surface = index_of(framework)["surfaces"].get(published.get("surface"), {})
    parts["surface"] = surface.get("digest", "")
    parts["templates"] = {name: entry["digest"] for name, entry in _templates(framework, spec).items()}
    return parts


def _bare(item: Mapping[str, Json]) -> dict[str, Json]:
    """Without the sentences beside what they explain: a better wording makes no lock stale."""
    return {key: value for key, value in item.items() if key not in _TALK}


def templates(method_id: str, version: str = "") -> dict[str, Path]:
    """File name -> path of what `tp new` writes for a method, at the default release unless one is named."""
    framework, _, stem = method_id.partition("/")
    found = _templates(framework, resolved(framework, stem, version or default_release(framework)))
    return {name: Path(entry["file"]) for name, entry in found.items()}


def _templates(framework: str, spec: Mapping[str, Json]) -> dict[str, Index]:
    wanted = spec.get("templates", ())
    known = index_of(framework)["templates"]
    found: dict[str, Index] = {}
    for prefix in [f"{folder}/" for folder in ([wanted] if isinstance(wanted, str) else wanted)]:
        found |= {name.removeprefix(prefix): known[name] for name in known if name.startswith(prefix)}
    return dict(sorted(found.items()))


def metric_aliases(method_id: str, _release: str = "") -> tuple[list[str], dict[str, list[str]]]:
    """(primary canonical metrics, canonical name -> tags it may have)."""
    framework, _, stem = method_id.partition("/")
    if framework not in framework_folders() or stem not in index_of(framework)["methods"]:
        raise _unknown(method_id)
    metrics = resolved(framework, stem).get("metrics", {})
    return list(metrics.get("primary", ())), {k: list(v) for k, v in metrics.get("aliases", {}).items()}


def _param(name: str, item: Mapping[str, Json]) -> Param:
    keys = tuple(item["keys"]) if "keys" in item else ((item["key"],) if "key" in item else ())
    schema = {key: value for key, value in item.items() if key not in BINDING}
    units = tuple(item.get("times", ())), tuple(item.get("over", ())), item.get("follows", "")
    return Param(name, schema, keys, item.get("values", {}), "default" in item, item.get("default"), *units)


def index_of(framework: str) -> Index:
    folders = framework_folders()
    if framework not in folders:
        close = closest(framework, folders)
        raise NotFound(
            f"no framework named {framework!r}; there are {', '.join(sorted(folders)) or 'none'}",
            code="framework-unknown",
            hint=f"did you mean {close!r}?" if close else "install its plugin, or set TUNEPORT_MANIFEST_PATH",
        )
    return _cached_index(framework)


@cache
def _cached_index(framework: str) -> Index:
    from tuneport.experiment.site import required_trust

    wanted, keys = required_trust()
    if wanted != "unsigned":
        from tuneport.registry import trust

        sources = [(source.owner, source.folder) for source in framework_folders()[framework]]
        trust.demand(sources, wanted, keys.values())
    found = index(framework, framework_folders()[framework])
    keep_listing()
    return found


def _doc(framework: str, kind: str, name: str) -> dict[str, Json]:
    entry = index_of(framework)[kind].get(name)
    if entry is None:
        raise Invalid(
            f"the manifests of {framework} need {kind}/{name}, which is not there",
            code="manifest-missing",
            hint="`tp plugins` lists what is wrong with installed manifests",
        )
    usable(entry, f"{framework} {kind}/{name}")
    doc = entry["doc"]
    assert isinstance(doc, dict)
    return doc


def usable(entry: Index, what: str) -> None:
    if entry["problems"]:
        first = entry["problems"][0]
        clash = f": {first['message']}" if first["code"] == "manifest-clash" else ""
        raise Invalid(
            f"the manifest {what} is broken{clash}",
            code="manifest-broken",
            hint="repair or remove the file; other methods are not affected",
            findings=[Finding(**problem) for problem in entry["problems"]],
        )


def _unknown(method_id: str) -> NotFound:
    known = [row[0] for row in methods()]
    close = closest(method_id, known, cutoff=0.5)
    some = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
    hint = f"did you mean {close!r}?" if close else f"`tp methods` lists them: {some}"
    return NotFound(f"no method named {method_id!r}", code="method-unknown", hint=hint)
