"""The grammar of OmegaConf's interpolations: text with `${key}` and `${resolver:arguments}` in it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from tuneport.dialects.hydra.nodes import GrammarError, Interpolation, Quoted, Text, Words
from tuneport.dialects.hydra.parse import TOKENS, OverrideError, scalar

_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_KEY = re.compile(r"[^\\{}()\[\]:. \t'\"]+")
_BLANKS = re.compile(r"[ \t]*")
_RUN = re.compile(r"\\+")
MAX_DEPTH = 40


@lru_cache(maxsize=4096)
def parse_text(text: str) -> Text:
    """The pieces of a value, which must not be changed.

    Raises:
        GrammarError: an interpolation in it is malformed.
    """
    parts, end = _Parser(text).text(0, "")
    assert end == len(text)
    return parts


def parse_element(text: str) -> Any:
    """One argument on its own, as `oc.decode` reads it.

    Raises:
        GrammarError: it is none.
    """
    parser = _Parser(text)
    start = _blanks(text, 0)
    value, end = parser.element(start)
    if _blanks(text, end) != len(text):
        raise GrammarError(f"{text[end:]!r} is unexpected")
    return value


def _blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    assert match is not None
    return match.end()


class _Parser:
    def __init__(self, source: str) -> None:
        self._s, self._depth = source, 0

    def text(self, at: int, quote: str) -> tuple[Text, int]:
        """Pieces from `at` to the closing quote (after which the returned offset is) or to the end."""
        s, plain = self._s, ""
        parts: Text = []
        while at < len(s):
            run = _RUN.match(s, at)
            count = run.end() - at if run else 0
            after = at + count
            if s.startswith("${", after):
                plain += "\\" * (count // 2)
                if count % 2:
                    plain, at = plain + "${", after + 2
                    continue
                if plain:
                    parts.append(plain)
                    plain = ""
                item, at = self.interpolation(after)
                parts.append(item)
            elif quote and s.startswith(quote, after):
                plain += "\\" * (count // 2)
                if count % 2 == 0:
                    return [*parts, *([plain] if plain else [])], after + 1
                plain, at = plain + quote, after + 1
            elif count:
                plain, at = plain + s[at:after], after
            else:
                plain, at = plain + s[at], at + 1
        if quote:
            raise GrammarError("a quote is not closed")
        return [*parts, *([plain] if plain else [])], at

    def interpolation(self, at: int) -> tuple[Interpolation, int]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise GrammarError("nested too deeply")
        s = self._s
        at = _blanks(s, at + 2)
        path: list[Any] = []
        while s.startswith(".", at):
            path.append(".")
            at += 1
        at = self._key(at, path)
        names_only = path[0] not in (".", "[")
        while True:
            closing = _blanks(s, at)
            if s.startswith("}", closing):
                self._depth -= 1
                return Interpolation(path), closing + 1
            if s.startswith(":", closing) and names_only and all(map(_is_name, path)):
                item, at = self._resolver([part for part in path if part != "."], _blanks(s, closing + 1))
                self._depth -= 1
                return item, at
            if s.startswith(".", at):
                path.append(".")
                at = self._plain_key(at + 1, path)
            elif s.startswith("[", at):
                names_only = False
                at = self._key(at, path)
            else:
                raise GrammarError(f"{s[at : at + 1] or 'the end'!r} is unexpected in an interpolation")

    def _key(self, at: int, path: list[Any]) -> int:
        if not self._s.startswith("[", at):
            return self._plain_key(at, path)
        path.append("[")
        at = self._plain_key(at + 1, path)
        if not self._s.startswith("]", at):
            raise GrammarError("a bracket is not closed")
        path.append("]")
        return at + 1

    def _plain_key(self, at: int, path: list[Any]) -> int:
        if self._s.startswith("${", at):
            item, at = self.interpolation(at)
            path.append(item)
            return at
        match = _KEY.match(self._s, at)
        if match is None:
            raise GrammarError("a name is missing in an interpolation")
        # A nested interpolation may not start in the middle of a name.
        text = match[0]
        cut = text.find("$") if self._s.startswith("${", at + text.find("$")) and "$" in text else -1
        if cut >= 0:
            raise GrammarError("an interpolation in the middle of a name")
        path.append(text)
        return match.end()

    def _resolver(self, name: list[Any], at: int) -> tuple[Interpolation, int]:
        s = self._s
        arguments: list[Any] = []
        if s.startswith("}", at):
            return Interpolation([], name), at + 1
        while True:
            here = _blanks(s, at)
            if s.startswith((",", "}"), here):
                arguments.append("")
                at = here
            else:
                value, at = self.element(at)
                arguments.append(value)
                at = _blanks(s, at)
            if s.startswith("}", at):
                return Interpolation([], name, tuple(arguments)), at + 1
            if not s.startswith(",", at):
                raise GrammarError(f"{s[at : at + 1] or 'the end'!r} is unexpected in an argument")
            at = _blanks(s, at + 1)

    def element(self, at: int) -> tuple[Any, int]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise GrammarError("nested too deeply")
        try:
            s = self._s
            if s.startswith(("'", '"'), at):
                parts, end = self.text(at + 1, s[at])
                return Quoted(parts), end
            if s.startswith("[", at):
                return self._list(at)
            if s.startswith("{", at):
                return self._dict(at)
            return self._words(at, "")
        finally:
            self._depth -= 1

    def _list(self, at: int) -> tuple[list[Any], int]:
        s, items = self._s, []
        at = _blanks(s, at + 1)
        if s.startswith("]", at):
            return [], at + 1
        while True:
            here = _blanks(s, at)
            if s.startswith((",", "]"), here):
                items.append("")
                at = here
            else:
                value, at = self.element(at)
                items.append(value)
                at = _blanks(s, at)
            if s.startswith("]", at):
                return items, at + 1
            if not s.startswith(",", at):
                raise GrammarError("a list is not closed")
            at = _blanks(s, at + 1)

    def _dict(self, at: int) -> tuple[dict[Any, Any], int]:
        s, found = self._s, {}
        at = _blanks(s, at + 1)
        if s.startswith("}", at):
            return {}, at + 1
        while True:
            name, at = self._words(at, ":")
            if isinstance(name, Words):
                if any(not isinstance(part, str) for part in name.parts):
                    raise GrammarError("an interpolation as the key of a mapping")
                name = "".join(name.parts)
            at = _blanks(s, at)
            if not s.startswith(":", at):
                raise GrammarError("a colon is missing in a mapping")
            found[name], at = self.element(_blanks(s, at + 1))
            at = _blanks(s, at)
            if s.startswith("}", at):
                return found, at + 1
            if not s.startswith(",", at):
                raise GrammarError("a mapping is not closed")
            at = _blanks(s, at + 1)

    def _words(self, at: int, stop: str) -> tuple[Any, int]:
        """Tokens that form one plain value; blanks at its ends belong to what surrounds it."""
        s = self._s
        tokens: list[tuple[str, Any]] = []
        while at < len(s):
            if s.startswith("${", at):
                item, at = self.interpolation(at)
                tokens.append(("interpolation", item))
                continue
            kind, text = _token(s, at)
            if kind in ("(", ")", "[", "]", "{", "}", ",", "=", "") or (kind == ":" and stop == ":"):
                break
            tokens.append((kind, text))
            at += len(text)
        while tokens and tokens[-1][0] == "ws":
            at -= len(tokens.pop()[1])
        if not tokens:
            raise GrammarError(f"a value is missing before {s[at : at + 1] or 'the end'!r}")
        if len(tokens) == 1 and tokens[0][0] != "interpolation":
            try:
                return scalar(*tokens[0], at), at
            except OverrideError as error:
                raise GrammarError(error.message) from None
        return Words([text[1::2] if kind == "esc" else text for kind, text in tokens]), at


def _is_name(part: Any) -> bool:
    return part == "." or isinstance(part, Interpolation) or bool(_ID.fullmatch(part))


def _token(source: str, at: int) -> tuple[str, str]:
    best, length = "", 0
    for name, pattern in TOKENS:
        if name in ("quoted", "interpolation"):
            continue
        match = pattern.match(source, at)
        if match is not None and match.end() - at > length:
            best, length = name, match.end() - at
    return best, source[at : at + length]
