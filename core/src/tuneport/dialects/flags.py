"""Plain flags of an argparse script: `--epochs=5`, `--amp` for a switch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tuneport.dialects import Rendered
from tuneport.errors import Invalid
from tuneport.types import Context, Json, Key, Ref, Value


def render(settings: Mapping[str, Json], context: Context) -> Rendered:
    """Each key above the defaults as one flag. `settings.dashes: true` writes `--batch-size` for
    `batch_size`; the script's own spelling, where it was read, wins."""
    script = context.method.spec.get("surface", {}).get("script", "")
    spelling = context.facts.get("scripts", {}).get(script, {}).get("flags", {})
    words: list[Value] = []
    for name in sorted(context.own):
        flag = spelling.get(name, {})
        style = flag.get("style") or f"--{name.replace('_', '-') if settings.get('dashes') else name}"
        words += _words(style, context.own[name], context.release.keys.get(name), flag)
    return Rendered(argv=tuple(words))


def _words(style: str, value: Json, key: Key | None, flag: Mapping[str, Json]) -> Iterator[Value]:
    action = flag.get("action", "")
    if isinstance(value, Ref):
        yield from (style, value)
    elif value is None:
        # No flag can say null; one that is left out says it where null is the default.
        if flag.get("default", "") is not None:
            raise Invalid(
                f"{style} cannot be null on a command line",
                code="dialect-null",
                hint="leave the key out of config.yaml",
            )
    elif isinstance(value, bool):
        yield from _truth(style, value, key, flag)
    elif action == "count" and isinstance(value, int):
        yield from [style] * min(max(value, 0), 20)
    elif isinstance(value, list) and action == "append":
        yield from (f"{style}={text_of(item)}" for item in value)
    elif isinstance(value, list):
        texts = [text_of(item) for item in value]
        if any(text.startswith("-") for text in texts):
            message = f"{style}: an item that starts with a dash cannot be given in a list"
            raise Invalid(message, code="dialect-dash", hint="rename it, or read the list from a file")
        yield from (style, *texts)
    else:
        yield f"{style}={text_of(value)}"


def _truth(style: str, value: bool, key: Key | None, flag: Mapping[str, Json]) -> Iterator[str]:
    """A switch is there or not, whatever its absence means; a flag with a value gets the word."""
    action = flag.get("action", "")
    if action == "boolean_optional":
        yield style if value else f"--no-{style.lstrip('-')}"
    elif action.startswith("store_") or (not flag and key is not None and key.types == ("bool",)):
        yield from [style] * value
    elif flag.get("converter") == "bool":
        yield f"{style}={'true' if value else ''}"  # bool() takes every text but the empty one for true
    else:
        yield f"{style}={text_of(value)}"


def text_of(value: Json) -> str:
    """A value as the text that a parser turns back into it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)
