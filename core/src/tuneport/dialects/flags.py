"""Plain flags of an argparse parser: `--epochs=5`, `--amp` for a switch.

Flags are written in full: a parser that takes abbreviations may find one ambiguous in its next release.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

from tuneport.dialects import Rendered
from tuneport.errors import Invalid
from tuneport.types import Context, Json, Key, Ref, Value

_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")
"""What argparse takes for a number, though it starts with a dash, where no flag looks like one."""


def render(settings: Mapping[str, Json], context: Context) -> Rendered:
    """Each key above the defaults as one flag. `settings.dashes: true` writes `--batch-size` for
    `batch_size`; the spelling of the release's parser, or of the script where it was read, wins."""
    script = context.method.spec.get("surface", {}).get("script", "")
    spelling = context.facts.get("scripts", {}).get(script, {}).get("flags", {})
    # A parser with flags that look like numbers takes no negative number for a value of a list.
    numbers = not any(_NEGATIVE.fullmatch(item.get("style", "")) for item in spelling.values())
    words: list[Value] = []
    own = _folded(context.own, context.release.keys)
    for name in sorted(own):
        key = context.release.keys.get(name)
        flag = spelling.get(name) or _flag(key)
        style = flag.get("style") or f"--{name.replace('_', '-') if settings.get('dashes') else name}"
        if flag.get("action") == "store_true" and own[name] is False and flag.get("default") is True:
            words.append(_opposite(style, name, context.release.keys))
            continue
        words += _words(style, own[name], key, flag, numbers=numbers)
    return Rendered(argv=tuple(words))


def _folded(own: Mapping[str, Json], keys: Mapping[str, Key]) -> dict[str, Json]:
    """The settings with what lies below a mapping inside of it: one flag says the whole."""
    found = dict(own)
    for name, value in own.items():
        parent, _, last = name.rpartition(".")
        if parent and name not in keys and parent in keys and "dict" in keys[parent].types:
            inside = found.get(parent)
            found[parent] = {**(inside if isinstance(inside, dict) else {}), last: value}
            del found[name]
    return found


def _flag(key: Key | None) -> dict[str, Json]:
    """What a surface says of a flag."""
    if key is None:
        return {}
    return {**key.flag, **({} if key.required else {"default": key.default})}


def _opposite(style: str, name: str, keys: Mapping[str, Key]) -> str:
    """The flag that turns off what another one can only turn on."""
    for key in keys.values():
        if key.flag.get("dest") == name and key.flag.get("action") == "store_false":
            return str(key.flag.get("style") or f"--{key.name}")
    message = f"{style} is on unless said otherwise, and no flag turns it off"
    raise Invalid(message, code="dialect-switch", hint="leave the key out of config.yaml")


def _words(
    style: str, value: Json, key: Key | None, flag: Mapping[str, Json], *, numbers: bool
) -> Iterator[Value]:
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
    elif isinstance(value, list) and flag.get("converter") == "int-list":
        yield f"{style}={','.join('None' if item is None else text_of(item) for item in value)}"
    elif isinstance(value, list) and action == "append":
        yield from (f"{style}={text_of(item)}" for item in value)
    elif isinstance(value, list):
        texts = [_item(item) for item in value]
        if len(texts) == 1 and flag.get("nargs") in ("*", "+"):
            yield f"{style}={texts[0]}"
            return
        if any(text.startswith("-") and not (numbers and _NEGATIVE.fullmatch(text)) for text in texts):
            message = f"{style}: an item that starts with a dash cannot be given in a list"
            raise Invalid(message, code="dialect-dash", hint="rename it, or read the list from a file")
        yield from (style, *texts)
    else:
        yield f"{style}={text_of(value)}"


def _item(value: Json) -> str:
    """An item of a list. argparse takes -0.00001 for a number there, and -1e-05 for a flag."""
    if isinstance(value, float) and value < 0:
        return format(Decimal(repr(value)), "f")
    return text_of(value)


def _truth(style: str, value: bool, key: Key | None, flag: Mapping[str, Json]) -> Iterator[str]:
    """A switch is there or not, whatever its absence means; a flag with a value gets the word."""
    action = flag.get("action", "")
    if action == "boolean_optional":
        yield style if value else f"--no-{style.lstrip('-')}"
    elif action.startswith("store_") or _alone(key, flag):
        yield from [style] * value
    elif flag.get("converter") == "bool":
        yield f"{style}={'true' if value else ''}"  # bool() takes every text but the empty one for true
    else:
        yield f"{style}={text_of(value)}"


def _alone(key: Key | None, flag: Mapping[str, Json]) -> bool:
    """Whether a flag without a word says true."""
    if flag.get("const") is True and "converter" not in flag:
        return True
    return not flag.get("action") and key is not None and key.types == ("bool",)


def text_of(value: Json) -> str:
    """A value as the text that a parser turns back into it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)
