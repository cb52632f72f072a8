"""Command lines generated from dataclasses (Hugging Face's argument parser and its like).

A scalar is `--key=value`, which keeps leading dashes and empty text whole. What argparse cannot say, or
would read as something else, goes into a YAML file that the program reads through its configuration
flag: null, mappings, nested lists, and whatever is not text for a key that takes text as well.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuneport.dialects import Rendered
from tuneport.dialects.flags import text_of
from tuneport.errors import Invalid
from tuneport.types import Context, FileSpec, Json, Key, Ref, Value

_KINDS = {bool: "bool", int: "int", float: "float", str: "str"}


def render(settings: Mapping[str, Json], context: Context) -> Rendered:
    """Settings: `config_flag` (for example `--config`; without it such values are refused) and
    `config_file`, the name of the file that is written."""
    words: list[Value] = []
    filed: dict[str, Json] = {}
    for name in sorted(context.own):
        value, key = context.own[name], context.release.keys.get(name)
        if value is None and key is not None and key.default is None and not key.required:
            continue
        if isinstance(value, Ref):
            words += [f"--{name}", value]
        elif isinstance(value, list) and _words(value, key):
            words += [f"--{name}", *value]
        elif _scalar(value, key):
            words.append(f"--{name}={text_of(_whole(value, key))}")
        else:
            filed[name] = value
    if not filed:
        return Rendered(argv=tuple(words))
    flag, file = settings.get("config_flag"), settings.get("config_file", "tuneport-config.yaml")
    if not flag:
        raise Invalid(
            f"{', '.join(filed)}: no command line can say this value",
            code="dialect-value",
            hint="use a plain value",
        )
    return Rendered(argv=(flag, file, *words), files={file: FileSpec("yaml", filed)})


def _words(items: list[Json], key: Key | None) -> bool:
    """Whether a list can follow its flag: all text, and the key takes nothing but lists."""
    if not items or (key is not None and ("str" in key.types or key.flag.get("reads") == "nothing")):
        return False
    return all(isinstance(item, str) and not item.startswith("-") and "\0" not in item for item in items)


def _scalar(value: Json, key: Key | None) -> bool:
    kind = _KINDS.get(type(value))
    if kind is None or (isinstance(value, str) and "\0" in value):
        return False
    # Where text is allowed beside it, `true` or `8` would arrive as text.
    return kind == "str" or key is None or not {"str", kind} <= set(key.types)


def _whole(value: Json, key: Key | None) -> Json:
    """`3.0` for a key that takes whole numbers only: the parser refuses the dot."""
    if isinstance(value, float) and key is not None and "int" in key.types and "float" not in key.types:
        return int(value) if value.is_integer() else value
    return value
