"""Sections of config.yaml that Tuneport reads itself: each has a schema, and no framework ever sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tuneport.checks.rules import nested
from tuneport.registry import schemas
from tuneport.types import Context, Finding, Json, Method

_NAMED = r"(?:unknown key|the key) '([^']*)'"


def names(method: Method) -> list[str]:
    """The sections of a method."""
    return list(method.spec.get("sections", {}))


def owned(context: Context) -> set[str]:
    """The keys that are set in a section."""
    prefixes = tuple(f"{name}." for name in names(context.method))
    return {key for key in context.own if key in names(context.method) or key.startswith(prefixes)}


def content(context: Context, name: str) -> dict[str, Json]:
    """What a section says; empty where nothing is set in it."""
    ours = owned(context)
    found = nested({key: value for key, value in context.own.items() if key in ours}).get(name, {})
    return found if isinstance(found, dict) else {}


def without(context: Context) -> Context:
    """The context as the framework may see it."""
    ours = owned(context)
    return context._replace(own={key: value for key, value in context.own.items() if key not in ours})


def check(context: Context) -> Iterator[Finding]:
    """Findings for every section that is set, or has to be, against its schema."""
    for name, spec in context.method.spec.get("sections", {}).items():
        wrong = context.own.get(name)
        if wrong is not None and not isinstance(wrong, dict):
            origin = context.origins[name]
            message = f"`{name}` holds no keys"
            yield Finding("section-schema", "error", message, "", name, origin.file, origin.line)
            continue
        tree = content(context, name)
        if not tree and not spec.get("required"):
            continue
        for path, message, hint in schemas.problems(tree, schemas.schema(spec["schema"])):
            lost = re.match(_NAMED, message)
            key = ".".join(map(str, (name, *path, *([lost[1]] if lost else []))))
            place = context.origins.get(key) or context.origins.get(name)
            where = (place.file, place.line) if place else ("", 0)
            said = f"`{key}` is missing" if message.startswith("the key") else f"`{key}`: {message}"
            more = hint or f"`tp schema {spec['schema']}` prints what the section holds"
            yield Finding("section-schema", "error", said, more, key, *where)
