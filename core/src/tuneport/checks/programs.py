"""What is special about a program that a command starts: the rules that it has, and how it comes to read its
settings where that is not as they are written."""

from __future__ import annotations

from tuneport.registry import catalog, surfaces
from tuneport.types import Context, Json, Method

Rules = list[dict[str, Json]]


def unrun(framework: str, version: str = "") -> list[Method]:
    """What is known of each program of a release that no method runs."""
    version = version or catalog.default_release(framework)
    if not catalog.release_spec(framework, version).get("surface"):
        return []
    specs = [
        catalog.resolved(framework, row[0].partition("/")[2])
        for row in catalog.methods(framework)
        if not row[2]
    ]
    run = {entry for spec in specs for entry in (spec.get("entry"), *spec.get("entries", ()))}
    entries = surfaces.of(framework, version).get("entries", {})
    found = (catalog.program(framework, version, entry) for entry in entries if entry not in run)
    return [method for method in found if method is not None]


def rules(method: Method, version: str) -> tuple[Rules, Rules]:
    """(rules, inert entries) of a program in a release, some of them softened to warnings."""
    spec = method.spec
    checks, inert = catalog.rules(method.framework, version, spec.get("rules", []), spec.get("gates", ()))
    soft = spec.get("softens", ())
    return [{**rule, "severity": "warning"} if rule["code"] in soft else rule for rule in checks], inert


def as_read(context: Context, unknown: frozenset[str]) -> tuple[Context, frozenset[str]]:
    """(the context, the keys whose value nobody knows) as the program comes to see them: with the old keys
    that it moves to their new places itself, and with what it acts as, whatever it is told."""
    spec, found, open_ = context.method.spec, dict(context.config), set(unknown)
    moves = context.release.spec.get("moves", ()) if spec.get("moves") else ()
    olds = tuple(move["from"] for move in moves)
    names = [name for name in (*context.config, *unknown) if name.startswith(olds)]
    for move in moves:
        old, new = move["from"], move["to"]
        for name in names:
            if name != old and not name.startswith(f"{old}."):
                continue
            target = new + name.removeprefix(old)
            if name in unknown:
                open_.add(target)
            elif context.config[name] is not None:
                found[target] = context.config[name]
    fixed = spec.get("acts_as", {})
    return context._replace(config={**found, **fixed}), frozenset(open_.difference(fixed))
