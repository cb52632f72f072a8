"""How a program that a command starts comes to read its settings, where that is not as they are written."""

from __future__ import annotations

from tuneport.types import Context


def as_read(context: Context, unknown: frozenset[str]) -> tuple[Context, frozenset[str]]:
    """(the context, the keys whose value nobody knows) as the program comes to see them: with the old keys
    that it moves to their new places itself, and with what it acts as, whatever it is told."""
    spec, found, open_ = context.method.spec, dict(context.config), set(unknown)
    for move in context.release.spec.get("moves", ()) if spec.get("moves") else ():
        old, new = move["from"], move["to"]
        for name in (*context.config, *unknown):
            if name != old and not name.startswith(f"{old}."):
                continue
            target = new + name.removeprefix(old)
            if name in unknown:
                open_.add(target)
            elif context.config[name] is not None:
                found[target] = context.config[name]
    fixed = spec.get("acts_as", {})
    return context._replace(config={**found, **fixed}), frozenset(open_.difference(fixed))
