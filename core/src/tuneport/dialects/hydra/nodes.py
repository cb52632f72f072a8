"""What text with interpolations in it is made of, and its plain forms read without the whole grammar.

Nearly all that a release's files say is `${key}` or `${oc.select:key,default}`. A test holds what is read
here to the grammar, which reads everything else.
"""

import re
from typing import Any, NamedTuple, TypeAlias

_SPLIT = re.compile(r"(?:^(?!\[)|\.)([^\.\[\]]*)|\[([^\.\[\]]*)\]")

Text: TypeAlias = list[Any]
"""Pieces of text: str or Interpolation."""


class GrammarError(Exception):
    """The text is no interpolation that OmegaConf reads."""


class Interpolation(NamedTuple):
    """`${…}`. For a reference `path` holds its pieces (dots and brackets included); for a resolver the
    name's parts and the arguments are given."""

    path: list[Any]
    resolver: list[Any] | None = None
    arguments: tuple[Any, ...] = ()


class Quoted(NamedTuple):
    parts: Text


class Words(NamedTuple):
    """An argument out of several tokens, or of one interpolation."""

    parts: Text


def split_key(key: str) -> list[str]:
    """`a.b[c]` as its three names."""
    return [match[1] if match[1] is not None else match[2] for match in _SPLIT.finditer(key)]


_NAMES = r"\.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_PLAIN = re.compile(
    rf"\$\{{(?:oc\.select:(?P<key>{_NAMES})(?:,[ \t]*(?P<default>.+))?|(?P<path>{_NAMES}))\}}", re.DOTALL
)
_WORD = r"[A-Za-z_][A-Za-z0-9_-]*"
_NUMBER = r"0|-?[1-9][0-9]{0,17}"
_VALUES = {"null": None, "true": True, "false": False}


def plain(text: str) -> Text | None:
    """The pieces of one reference, or of one `oc.select` with a plain default; None where it is another."""
    match = _PLAIN.fullmatch(text)
    if match is None:
        return None
    if match["path"]:
        return [Interpolation(_pieces(match["path"]))]
    key, word = _pieces(match["key"]), match["default"]
    if key[0].lower() in _READ_AS_VALUE:
        return None
    arguments: tuple[Any, ...] = (Words(key) if len(key) > 1 else key[0],)
    if word is None:
        return [Interpolation([], ["oc", "select"], arguments)]
    if word in ("[]", "{}"):
        default: Any = [] if word == "[]" else {}
    elif re.fullmatch(_NUMBER, word):
        default = int(word)
    elif word.lower() in _VALUES:
        default = _VALUES[word.lower()]
    elif re.fullmatch(_WORD, word) and word.lower() not in _READ_AS_VALUE:
        default = word
    else:
        inner = plain(word)
        if inner is None:
            return None
        default = Words(inner)
    return [Interpolation([], ["oc", "select"], (*arguments, default))]


_READ_AS_VALUE = {*_VALUES, "inf", "nan"}


def _pieces(names: str) -> list[Any]:
    return [piece for piece in re.split(r"(\.)", names) if piece]
