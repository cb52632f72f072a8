"""Reads one word of a Hydra command line as Hydra 1.3 reads it.

The grammar is small: a sign, a key or `group@package`, and a value of quoted text, plain words, lists
and mappings. Plain words keep their blanks and lose their escapes; one word alone may be a number, a
switch or null.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from tuneport.types import Json

_KEY = re.compile(
    r"(?P<sign>\+\+?|~)?"
    r"(?P<key>[A-Za-z_][A-Za-z0-9_-]*(?:/[A-Za-z_][A-Za-z0-9_-]*)+"
    r"|(?:[A-Za-z_$][A-Za-z0-9_$-]*|0|[1-9](?:_?[0-9])*)(?:\.(?:[A-Za-z_$][A-Za-z0-9_$-]*|0|[1-9](?:_?[0-9])*))+"
    r"|[A-Za-z_$][A-Za-z0-9_$-]*|)"
    r"(?:@(?P<package>(?:[A-Za-z_$][A-Za-z0-9_$-]*|0|[1-9](?:_?[0-9])*)"
    r"(?:\.(?:[A-Za-z_$][A-Za-z0-9_$-]*|0|[1-9](?:_?[0-9])*))+|[A-Za-z_$][A-Za-z0-9_$-]*|))?"
    r"(?P<equal>=[ \t]*)?"
)
_INT = r"(?:0|[1-9](?:_?[0-9])*)"
_POINT = rf"(?:{_INT}?\.[0-9](?:_?[0-9])*|{_INT}\.)"
# As the lexer of the grammar: at each place the longest match wins, and of two the first.
TOKENS = [
    ("(", re.compile(r"[ \t]*\([ \t]*")),
    (",", re.compile(r"[ \t]*,[ \t]*")),
    (")", re.compile(r"[ \t]*\)")),
    ("[", re.compile(r"\[[ \t]*")),
    ("]", re.compile(r"[ \t]*\]")),
    ("{", re.compile(r"\{[ \t]*")),
    ("}", re.compile(r"[ \t]*\}")),
    (":", re.compile(r"[ \t]*:[ \t]*")),
    ("=", re.compile(r"[ \t]*=[ \t]*")),
    (
        "float",
        re.compile(
            rf"[+-]?(?:(?:{_POINT}|{_INT})[eE][+-]?[0-9](?:_?[0-9])*|{_POINT}|[Ii][Nn][Ff]|[Nn][Aa][Nn])"
        ),
    ),
    ("int", re.compile(rf"[+-]?{_INT}")),
    ("bool", re.compile(r"[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]")),
    ("null", re.compile(r"[Nn][Uu][Ll][Ll]")),
    ("char", re.compile(r"[/\-\\+.$%*@?|]")),
    ("id", re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")),
    ("esc", re.compile(r"(?:\\[\\()\[\]{}:=, \t])+")),
    ("ws", re.compile(r"[ \t]+")),
    ("quoted", re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.S)),
    ("interpolation", re.compile(r"\$\{[^}]+\}")),
]
_PLAIN = {"id", "null", "int", "float", "bool", "interpolation", "char", ":", "esc", "ws"}
_KEYLIKE = _PLAIN - {":", "interpolation"}
_CASTS = ("int", "float", "str", "bool")
_SWEEPS = ("choice", "range", "interval", "glob", "sort", "shuffle", "tag")
MAX_DEPTH = 100


class OverrideError(Exception):
    """Hydra refuses the word; `at` is the offset where."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.message, self.at = message, at


class Override(NamedTuple):
    """One word. `sign` is empty, `+`, `++` or `~`; `package` is what follows `@`, None without one.
    `kind` is `value`, `sweep` (several values, of which a single run takes none), `call` (a cast whose
    result only Hydra knows) or `none` (a `~key` without a value)."""

    text: str
    sign: str
    key: str
    package: str | None
    kind: str
    value: Json = None


def parse_override(word: str) -> Override:
    """Read one word.

    Raises:
        OverrideError: it is no override.
    """
    match = _KEY.match(word)
    assert match is not None
    sign, key, package = match["sign"] or "", match["key"], match["package"]
    end = match.end()
    if match["equal"] is None:
        if sign == "~" and end == len(word):
            return Override(word, sign, key, package, "none")
        if end == len(word):
            raise OverrideError("it has no `=`", end)
        raise OverrideError(f"{word[end]!r} cannot stand in a key", end)
    if end == len(word):
        return Override(word, sign, key, package, "value", "")
    reader = _Reader(_lex(word, end), len(word))
    kind, value = reader.whole()
    return Override(word, sign, key, package, kind, value)


def _lex(word: str, at: int) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []
    depth = 0
    while at < len(word):
        best, length = "", 0
        for name, pattern in TOKENS:
            match = pattern.match(word, at)
            if match is not None and match.end() - at > length:
                best, length = name, match.end() - at
        if not length:
            what = "a quote that is not closed" if word[at] in "'\"" else f"{word[at]!r} must be in quotes"
            raise OverrideError(what, at)
        depth += (best in ("(", "[", "{")) - (best in (")", "]", "}"))
        if depth > MAX_DEPTH:  # said before the rest is looked at
            raise OverrideError("nested too deeply", at)
        found.append((best, word[at : at + length], at))
        at += length
    return found


class _Call:
    """A function whose result is not a plain value here; `sweep` where it makes several values."""

    def __init__(self, sweep: bool) -> None:
        self.sweep = sweep


class _Reader:
    def __init__(self, tokens: list[tuple[str, str, int]], end: int) -> None:
        self._tokens, self._end, self._next, self._depth = tokens, end, 0, 0

    def whole(self) -> tuple[str, Json]:
        value = self._element()
        sweep = False
        while self._peek() == ",":
            self._take()
            self._element()
            sweep = True
        if self._next < len(self._tokens):
            _, text, at = self._tokens[self._next]
            raise OverrideError(f"{text.strip() or 'a blank'!r} is unexpected", at)
        if sweep or (isinstance(value, _Call) and value.sweep):
            return "sweep", None
        return ("call", None) if _has_call(value) else ("value", value)

    def _peek(self, ahead: int = 0) -> str:
        index = self._next + ahead
        return self._tokens[index][0] if index < len(self._tokens) else ""

    def _take(self) -> tuple[str, str, int]:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _expect(self, kind: str) -> None:
        if self._peek() != kind:
            at = self._tokens[self._next][2] if self._next < len(self._tokens) else self._end
            raise OverrideError(f"{kind!r} is missing", at)
        self._take()

    def _element(self) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise OverrideError("nested too deeply", 0)
        try:
            kind = self._peek()
            if kind == "quoted":
                return _unquoted(self._take()[1])
            if kind == "[":
                return self._list()
            if kind == "{":
                return self._dict()
            if kind == "id" and self._peek(1) == "(":
                return self._call()
            return self._plain(_PLAIN)
        finally:
            self._depth -= 1

    def _list(self) -> Any:
        self._take()
        items: list[Any] = []
        while self._peek() != "]":
            if items:
                self._expect(",")
            items.append(self._element())
        self._take()
        return items

    def _dict(self) -> Any:
        self._take()
        found: dict[Any, Any] = {}
        first = True
        while self._peek() != "}":
            if not first:
                self._expect(",")
            first = False
            name = self._plain(_KEYLIKE)
            self._expect(":")
            found[name] = self._element()
        self._take()
        return found

    def _call(self) -> _Call:
        _, name, at = self._take()
        self._take()
        first = True
        while self._peek() != ")":
            if not first:
                self._expect(",")
            first = False
            if self._peek() == "id" and self._peek(1) == "=":
                self._take()
                self._take()
            self._element()
        self._take()
        if name not in (*_CASTS, *_SWEEPS):
            raise OverrideError(f"there is no function {name!r}", at)
        return _Call(name in _SWEEPS)

    def _plain(self, allowed: set[str]) -> Any:
        tokens = []
        while self._peek() in allowed:
            tokens.append(self._take())
        if not tokens:
            at = self._tokens[self._next][2] if self._next < len(self._tokens) else self._end
            shown = self._tokens[self._next][1].strip() if self._next < len(self._tokens) else "the end"
            raise OverrideError(f"a value is missing before {shown!r}", at)
        if tokens[0][0] == "ws":
            if len(tokens) == 1:
                raise OverrideError("the value is nothing but blanks", tokens[0][2])
            tokens = tokens[1:]
        if tokens[-1][0] == "ws":
            tokens = tokens[:-1]
        if len(tokens) > 1:
            return "".join(text[1::2] if kind == "esc" else text for kind, text, _ in tokens)
        kind, text, at = tokens[0]
        return scalar(kind, text, at)


def scalar(kind: str, text: str, at: int) -> Json:
    if kind == "int":
        if len(text) > 4300:
            raise OverrideError("an integer of so many digits cannot be read", at)
        return int(text)
    if kind == "float":
        return float(text)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    return text[1::2] if kind == "esc" else text


def _unquoted(text: str) -> str:
    """The content of quoted text: a backslash counts as an escape only in a run before a quote."""
    return re.sub(rf"(\\+)({text[0]}|\Z)", lambda run: "\\" * (len(run[1]) // 2) + run[2], text[1:-1])


def _has_call(value: Any) -> bool:
    if isinstance(value, _Call):
        return True
    if isinstance(value, list):
        return any(map(_has_call, value))
    return isinstance(value, dict) and any(map(_has_call, value.values()))
