"""Judges each key that somebody set against the release's surface: does it exist, can it hold this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from tuneport.text import closest
from tuneport.types import Context, Finding, Json, Key, Origin, Ref

_NAMES = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    list: "list",
    dict: "dict",
    type(None): "null",
}


MAX_UNKNOWN = 500
"""Unknown keys that are named one by one; a file with more is for another program."""


def check(
    context: Context, raw: Mapping[str, str], judged: Set[str], *, closed: bool = True
) -> Iterator[Finding]:
    """Findings for every key above the defaults.

    Args:
        raw: the plain text of YAML scalars by key, to tell `no` from `false`.
        judged: keys that another finding speaks of already; one fault is said once.
        closed: whether the surface is known to be complete; otherwise an unknown key is a warning.
    """
    keys = context.release.keys
    if not keys and closed:
        return
    if context.release.composed is not None:
        from tuneport.checks import composed

        yield from composed.check(context, raw, judged)
        return
    moves: dict[str, Mapping[str, Json]] = {}
    for move in context.release.spec.get("moves", ()):
        if move["to"] in keys or move["from"] not in moves:  # entries may call one key by several names
            moves[move["from"]] = move
    absent = 0
    for name, value in context.own.items():
        origin = context.origins[name]
        if isinstance(value, Ref) or name in judged:
            continue
        key = keys.get(name) or ancestor(name, keys)
        if key is None:
            absent += 1
            if absent <= MAX_UNKNOWN:
                yield unknown(context, name, origin, moves, closed)
        elif key.name == name:
            yield from _value(context, key, value, origin, raw.get(name, ""))
    if absent > MAX_UNKNOWN:
        message = f"{absent - MAX_UNKNOWN} more keys that {what(context)} does not have"
        yield Finding("key-unknown", "error" if closed else "warning", message)
    for key in keys.values():
        if key.required and key.name not in context.own and key.name not in judged:
            yield Finding(
                "key-required",
                "error",
                f"{what(context)} needs `{key.name}` and nothing sets it",
                _how(context, key.name),
                key.name,
                source=source_of(context, key),
            )


def ancestor(name: str, keys: Mapping[str, Key]) -> Key | None:
    """The key that holds `name` inside its free-form value."""
    while "." in name:
        name = name.rpartition(".")[0]
        key = keys.get(name)
        if key is not None:
            return key if {"dict", "any"} & set(key.types) else None
    return None


def unknown(
    context: Context, name: str, origin: Origin, moves: Mapping[str, Mapping[str, Json]], closed: bool
) -> Finding:
    move = moves.get(name)
    if move is not None:
        message = f"`{name}` has moved to `{move['to']}` in {what(context)}"
        return Finding("key-moved", "error", message, f"write {move['to']}", name, origin.file, origin.line)
    close = closest(name, context.release.keys)
    if not close:  # the right leaf under the wrong parent is as common as a typo
        leaf = name.rpartition(".")[2]
        close = next((key for key in context.release.keys if key.rpartition(".")[2] == leaf), "")
    message = f"{what(context)} has no key `{name}`"
    if name in context.method.params and not close:
        close = next(iter(context.method.params[name].keys), "")
    hint = f"did you mean `{close}`?" if close else f"`tp methods {context.method.id}` lists what can be set"
    return Finding(
        "key-unknown", "error" if closed else "warning", message, hint, name, origin.file, origin.line
    )


def _value(context: Context, key: Key, value: Json, origin: Origin, raw: str) -> Iterator[Finding]:
    single = value is not None and not isinstance(value, dict | list) and _words_are_lists(context)
    if not fits([value] if single and "list" in key.types else value, key.types):
        shown = show(value)
        message = f"`{key.name}` is {shown} where {what(context)} takes {kinds(key)}"
        hint = type_hint(key, value, raw)
        yield Finding(
            "key-type", "error", message, hint, key.name, origin.file, origin.line, source_of(context, key)
        )
    elif "nargs" in key.flag and value is not None:
        yield from _values(context, key, value if isinstance(value, list) else [value], origin)
    elif key.choices and not isinstance(value, list) and not _listed(value, key):
        close = closest(str(value), map(str, key.choices))
        message = f"`{key.name}` is {show(value)}; {what(context)} takes {options(key)}"
        hint = f"did you mean {close!r}?" if close else ""
        yield Finding(
            "key-choice", "error", message, hint, key.name, origin.file, origin.line, source_of(context, key)
        )


def _values(context: Context, key: Key, values: list[Json], origin: Origin) -> Iterator[Finding]:
    """How many values a flag takes, and what each of them may be."""
    nargs, place = key.flag["nargs"], (key.name, origin.file, origin.line, source_of(context, key))
    if isinstance(nargs, int) and len(values) != nargs:
        message = f"`{key.name}` has {len(values)} where {what(context)} takes {nargs} values"
        yield Finding("key-values", "error", message, f"write {nargs} values in a list", *place)
    elif nargs == "+" and not values:
        message = f"`{key.name}` is empty where {what(context)} takes one value or more"
        yield Finding("key-values", "error", message, "leave the key out, or write a value", *place)
    single = tuple(kind for kind in key.types if kind not in ("list", "null"))
    wrong = [item for item in values if not fits(item, single) or (key.choices and item not in key.choices)]
    if wrong:
        wanted = options(key) if key.choices else kinds(key._replace(types=single))
        message = f"`{key.name}` holds {show(wrong[0])} where {what(context)} takes {wanted}"
        yield Finding("key-type", "error", message, "", *place)


def _words_are_lists(context: Context) -> bool:
    """On a command line a single word is a list of one."""
    dialect: str = context.method.spec.get("launch", {}).get("dialect", {}).get("name", "")
    return dialect in ("flags", "dataclass-cli")


def _listed(value: Json, key: Key) -> bool:
    # `type=` runs before `choices` in every parser we read, so "1" and 1 are told apart by type above.
    return value in key.choices or (value is None and "null" in key.types)


def kind_of(value: Json) -> str:
    """The word that `Key.types` has for a value."""
    return _NAMES.get(type(value), "any")


def fits(value: Json, types: tuple[str, ...]) -> bool:
    """Whether a release that declares `types` takes `value` as it is, or by lossless widening."""
    if "any" in types:
        return True
    kind = kind_of(value)
    if kind in types:
        return True
    if kind == "int" and "float" in types:
        return True
    if kind in ("int", "float", "bool") and "str" in types:
        # A number given for text is written the same way, but a bool changes its spelling.
        return kind != "bool"
    if kind == "float" and "int" in types:
        return float(value).is_integer() and abs(value) < 2**53
    return False


def type_hint(key: Key, value: Json, raw: str) -> str:
    if isinstance(value, bool) and "str" in key.types:
        written = raw or str(value).lower()
        close = [c for c in key.choices if isinstance(c, str) and c.lower() == written.lower()]
        text = close[0] if close else written
        return f'YAML reads {written} as {str(value).lower()}: write "{text}" in quotes'
    if isinstance(value, str) and {"int", "float"} & set(key.types):
        return "write a number without quotes"
    return ""


def kinds(key: Key) -> str:
    names = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}
    names |= {"list": "a list", "dict": "a mapping", "null": "null"}
    return " or ".join(names[kind] for kind in key.types if kind in names)


def options(key: Key) -> str:
    return ", ".join(str(choice) for choice in key.choices[:20]) + (", …" if len(key.choices) > 20 else "")


def show(value: Json) -> str:
    text = "null" if value is None else (str(value).lower() if isinstance(value, bool) else repr(value))
    return text if len(text) <= 80 else text[:80] + "…"


def what(context: Context) -> str:
    script = context.method.spec.get("surface", {}).get("script")
    return str(script) if script else f"{context.release.framework} {context.release.version}"


def _how(context: Context, name: str) -> str:
    for flag, binding in context.method.spec.get("bind", {}).items():
        if binding["key"] == name:
            return f"give --{flag.replace('_', '-')}"
    return f"set it in config.yaml: `{name}: …`"


def source_of(context: Context, key: Key) -> str:
    return f"{context.release.framework} {context.release.version} {key.source}" if key.source else ""
