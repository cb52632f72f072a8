"""Command lines generated from dataclasses (Hugging Face's argument parser and its like).

A scalar is `--key=value`, which keeps leading dashes and empty text whole. What argparse cannot say
(null where the default is not null, nested values, list items with a leading dash) goes into a YAML
file that the program reads through its configuration flag.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tuneport.dialects import Rendered
from tuneport.dialects.flags import text_of
from tuneport.errors import Invalid
from tuneport.types import Context, FileSpec, Json, Ref, Value


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
        elif isinstance(value, list) and all(_plain(item) for item in value) and value:
            words += [f"--{name}", *(item if isinstance(item, Ref) else text_of(item) for item in value)]
        elif isinstance(value, dict) and key is not None and "str" in key.types:
            words.append(f"--{name}={json.dumps(value, ensure_ascii=False)}")
        elif _scalar(value):
            words.append(f"--{name}={text_of(value)}")
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


def _plain(item: Json) -> bool:
    if isinstance(item, Ref):
        return True
    return _scalar(item) and not text_of(item).startswith("-")


def _scalar(value: Json) -> bool:
    return isinstance(value, str | bool | int | float)
