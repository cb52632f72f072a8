"""An existing argument list as settings, word by word as Hugging Face's argument parser takes it.

That parser makes its flags from dataclasses, each under two spellings; a switch that is on by default has a
second flag that turns it off, text stands for the one member of a union that the parser keeps, and a
configuration file gives the defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuneport.dialects.flags_read import Read, Reader, Unfit
from tuneport.errors import Invalid, NotFound
from tuneport.experiment.yamlread import Document, read_yaml
from tuneport.shell.gaps import open_, shown, word
from tuneport.text import closest
from tuneport.types import Finding, Json, Key

CONFIG = "--config"
_TRUE, _FALSE = ("yes", "true", "t", "y", "1"), ("no", "false", "f", "n", "0")
_NONE = ("none", "null")
_DOCS = "transformers hf_argparser.py, HfArgumentParser._parse_dataclass_field"


@dataclass(slots=True)
class Settings:
    """What an argument list and its configuration file set. `open` says why some of it is not known, `env` is
    what the file adds to the environment."""

    read: Read
    open: str = ""
    env: dict[str, str] = field(default_factory=dict)


def read(
    arguments: Sequence[str], keys: Mapping[str, Key], handed: Mapping[str, bool] | None = None
) -> Settings:
    """Take an argument list apart.

    Args:
        handed: flags that the program hands on to its launcher -> whether they take a value; None for a
            program that hands nothing on.
    """
    words = list(arguments)
    path, place = "", ""
    if CONFIG in words:
        at = words.index(CONFIG)
        place = words.pop(at)
        path = words.pop(at) if at < len(words) else ""
    found = Settings(Reader(words, _options(keys), converted, handed or {}).run())
    if not place:
        return found
    if not path:
        message = f"{CONFIG} names no file"
        found.read.applied.findings.append(Finding("key-values", "error", message, "", CONFIG))
    elif open_(path):
        found.open = f"{CONFIG} {shown(path)}"
    else:
        _defaults(found, Path(path), keys, handed)
    return found


def _options(keys: Mapping[str, Key]) -> dict[str, tuple[Key, bool]]:
    options: dict[str, tuple[Key, bool]] = {}
    for key in keys.values():
        kind = reads(key)
        flag: dict[str, Json] = {**key.flag}
        if kind == "list":
            flag["nargs"] = "+"
        elif flag.get("bare") or (kind == "bool" and key.default is not None):
            flag |= {"nargs": "?", "bare": True}
        options |= dict.fromkeys(_spellings(key.name), (key._replace(flag=flag), True))
        if kind == "bool" and key.default is True:
            off = key._replace(flag={"action": "store_false"})
            options |= dict.fromkeys((f"--no_{key.name}", f"--no-{key.name.replace('_', '-')}"), (off, False))
    return options


def _spellings(name: str) -> tuple[str, str]:
    return f"--{name}", f"--{name.replace('_', '-')}"


def reads(key: Key) -> str:
    """What a word of a key is read as: bool, int, float, str or list, or nothing where no word can say it."""
    told = key.flag.get("reads")
    return str(told) if told else next((kind for kind in key.types if kind != "null"), "nothing")


def converted(key: Key, text: str) -> Json:
    """A word as the value that it stands for.

    Raises:
        Unfit: the key does not take it.
    """
    kind = reads(key)
    if kind == "list":
        kind = str(key.flag.get("items", "str"))
    elif kind in ("int", "float", "nothing") and _is_none(key, text):
        return None
    if kind == "nothing":
        raise Unfit(f"no word can say it: write it into a file, and name that with {CONFIG}")
    if kind == "bool":
        return _truth(text)
    if kind in ("int", "float"):
        try:
            return int(text) if kind == "int" else float(text)
        except ValueError as error:
            raise Unfit("") from error
    if key.choices:  # the parser goes by how each choice is written
        return next((choice for choice in key.choices if str(choice) == text), str(text))
    return _mapping(text) if "dict" in key.types and text.startswith("{") else str(text)


def _is_none(key: Key, text: str) -> bool:
    return "null" in key.types and not key.choices and text.lower() in _NONE


def _truth(text: str) -> bool:
    if text.lower() in (*_TRUE, *_FALSE):
        return text.lower() in _TRUE
    raise Unfit("write true or false")


def _mapping(text: str) -> Json:
    """Text that starts with a brace, as the training arguments take it: JSON, whose texts become numbers and
    truth values where they look like them."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unfit("what starts with { must be JSON, with double quotes") from error
    return _plain(found)


def _plain(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    if value.isdigit():
        return int(value)
    return float(value) if value.replace(".", "", 1).isdigit() else value


def _defaults(
    found: Settings, path: Path, keys: Mapping[str, Key], handed: Mapping[str, bool] | None
) -> None:
    """Take in a configuration file, below what the command itself says."""
    applied = found.read.applied
    try:
        document = read_yaml(path)
    except NotFound:
        found.open = f"{CONFIG} {path}"
        return
    except Invalid as error:
        applied.findings += error.findings or [
            Finding(error.code, "error", error.message, error.hint, CONFIG, str(path))
        ]
        return
    applied.findings += document.findings
    if not isinstance(document.data, dict):
        message = f"{path} must hold a mapping of keys to values"
        applied.findings.append(Finding("config-mapping", "error", message, "", CONFIG, str(path)))
        return
    for name, value in document.data.items():
        line = document.line((name,))
        if name == "env":
            found.env |= (
                {str(key): str(item) for key, item in value.items()} if isinstance(value, dict) else {}
            )
        elif name in keys:
            if name not in applied.own:
                _default(found, keys[name], value, document, line)
        elif handed is None:
            close = closest(name, keys)
            hint = f"did you mean `{close}`?" if close else "delete the line"
            message = f"`{name}` is no key of the program, which passes over it without a word"
            applied.findings.append(Finding("config-unread", "warning", message, hint, name, str(path), line))
        elif f"--{name}" in handed:
            found.read.handed.insert(0, (f"--{name}", str(value)))
        else:
            applied.own[name] = value
            applied.places[name] = word(name, str(path), line)


def _default(found: Settings, key: Key, value: Json, document: Document, line: int) -> None:
    """A default as argparse takes it: text is read as a word of the flag is, all else stays as it is."""
    applied = found.read.applied
    if isinstance(value, str) and (reads(key) != "str" or "dict" in key.types):
        try:
            value = converted(key, value)
        except Unfit as refusal:
            message = f"`{key.name}` is {value!r}, which its flag would not take"
            place = (key.name, document.file, line)
            applied.findings.append(Finding("key-type", "error", message, str(refusal), *place, source=_DOCS))
            return
    applied.own[key.name] = value
    applied.places[key.name] = word(key.name, document.file, line)
