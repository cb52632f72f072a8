"""Expands the raw words of a script as bash does, with gaps where a value is not known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tuneport.shell import arithmetic, patterns, scan
from tuneport.shell.gaps import blank, fog, open_
from tuneport.shell.parameters import NAME, Parameters, Piece, sliced, transformed
from tuneport.shell.state import State

_SIMPLE = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*=)~(?=/|\Z)")
_SPECIAL = re.compile(r"[\\*?\[\]()|+@!]")
_ANSI = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "e": "\x1b", "r": "\r"}
_ANSI_SIGN = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|[0-7]{1,3}|.)", re.S)
BREAK = Piece("", "break")


class Expander:
    """Expands words in the state of a running script.

    Args:
        state: gives the state as it is now.
        capture: what a command prints, for `$(…)`.
        element: sets an element of an array, `name[subscript]`.
    """

    def __init__(
        self, state: Callable[[], State], capture: Callable[[str], str], element: Callable[[str, str], None]
    ) -> None:
        self._state, self._capture, self._element = state, capture, element
        self.lenient = False  # whether a variable that nobody set is empty rather than unknown
        self.touched = ""  # a variable that the last words depended on and nobody knows

    def fields(self, raw: str) -> list[str]:
        """The words that a raw word becomes.

        Raises:
            scan.Unended: a quote or bracket is not closed.
        """
        budget = self._state().common.budget
        found: list[str] = []
        for one in scan.braces(raw):
            # What looks like an assignment has its tilde expanded, wherever it stands.
            home = _ASSIGNED.match(one)
            one = f"{home[1]}{self._state().home}{one[home.end() :]}" if home else one
            found += self._split(self.pieces(one))
        budget.count(1 + len(found))
        for text in found:
            budget.spend(text)
        return found

    def single(self, raw: str, *, assigned: bool = False) -> str:
        """The text that a raw word becomes where nothing is split, as on the right of `=`."""
        if assigned and ":~/" in raw and not any(sign in raw for sign in "'\"\\"):
            raw = raw.replace(":~/", f":{self._state().home}/")
        text = "".join(" " if piece is BREAK else piece.text for piece in self.pieces(raw))
        return self._state().common.budget.spend(text)

    def pattern(self, raw: str) -> str:
        """A raw word as a pattern: what is quoted has a backslash before each special character."""
        return "".join(
            piece.text if piece.kind in ("plain", "open") else _SPECIAL.sub(r"\\\g<0>", piece.text)
            for piece in self.pieces(raw)
        )

    def arithmetic(self, text: str) -> str:
        """The value of an arithmetic expression, as text; a gap where it is not known."""
        text = "".join(piece.text for piece in self.pieces(text, quoted=True)).replace('"', "")
        if open_(text):
            return fog(text)
        missing: list[str] = []

        def get(name: str) -> str:
            value = self._parameters().plain(name)
            base = name.partition("[")[0]
            if value is None and base != name and base in self._state().variables:
                return "0"  # an element that was never set
            if value is None or open_(value):
                missing.append(fog(value) if value else self._unset(name))
                raise arithmetic.NoNumber
            return value or "0"

        def put(name: str, value: str) -> None:
            if "[" in name or isinstance(self._state().variables.get(name), list | dict):
                self._element(name, value)
            else:
                self._state().variables[name] = value

        try:
            return str(arithmetic.evaluate(text, get, put))
        except arithmetic.NoNumber:
            return missing[0] if missing else self._state().gap(f"(({text[:60]})) has no value here")

    def pieces(self, raw: str, *, quoted: bool = False) -> Iterator[Piece]:
        """A raw word, or the inside of double quotes, piece by piece."""
        budget = self._state().common.budget
        budget.enter()
        try:
            yield from self._pieces(raw, quoted)
        finally:
            budget.leave()

    def _pieces(self, raw: str, quoted: bool) -> Iterator[Piece]:
        kind = "quoted" if quoted else "plain"
        at = 0
        if not quoted and (raw == "~" or raw.startswith("~/")):
            yield Piece(self._state().home, "quoted")
            at = 1
        while at < len(raw):
            sign = raw[at]
            if sign == "\\":
                following = raw[at + 1 : at + 2]
                if following != "\n":
                    kept = quoted and following not in ("$", "`", '"', "\\")
                    yield Piece(sign + following if kept else following, "quoted")
                at += 2
            elif sign == "'" and not quoted:
                end = scan.end_of_single(raw, at + 1)
                yield Piece(raw[at + 1 : end - 1], "quoted")
                at = end
            elif sign == '"' and not quoted:
                end = scan.end_of_double(raw, at + 1)
                yield from self._double(raw[at + 1 : end - 1])
                at = end
            elif sign == "`":
                end = scan.end_of_backtick(raw, at + 1)
                inner = re.sub(r"\\([$`\\])", r"\1", raw[at + 1 : end - 1])
                yield Piece(self._capture(inner), "quoted" if quoted else "open")
                at = end
            elif sign == "$":
                at, found = self._dollar(raw, at, quoted)
                yield from found
            else:
                end = at + 1
                while end < len(raw) and raw[end] not in "\\'\"`$":
                    end += 1
                yield Piece(raw[at:end], kind)
                at = end

    def _double(self, inner: str) -> Iterator[Piece]:
        found = list(self.pieces(inner, quoted=True))
        if found or not inner:  # "$@" without parameters is no word at all, "" is an empty one
            yield Piece("", "quoted")
            yield from found

    def _dollar(self, raw: str, at: int, quoted: bool) -> tuple[int, list[Piece]]:
        """(offset after an expansion, what it becomes)."""
        kind = "quoted" if quoted else "open"
        following = raw[at + 1 : at + 2]
        if following == "(":
            end = scan.end_of_paren(raw, at + 2)
            inner = raw[at + 2 : end - 1]
            if inner.startswith("(") and inner.endswith(")"):
                return end, [Piece(self.arithmetic(inner[1:-1]), kind)]
            return end, [Piece(self._capture(inner), kind)]
        if following == "{":
            end = scan.end_of_brace(raw, at + 2, quoted=quoted)
            return end, self._parameter(raw[at + 2 : end - 1], quoted)
        if following == "'" and not quoted:
            end = scan.end_of_ansi(raw, at + 2)
            return end, [Piece(_ANSI_SIGN.sub(_ansi, raw[at + 2 : end - 1]), "quoted")]
        if following == '"' and not quoted:
            return at + 1, []
        name = _SIMPLE.match(raw, at + 1)
        if name is None:
            return at + 1, [Piece("$", "quoted" if quoted else "plain")]
        return name.end(), self._parameter(name[0], quoted)

    def _parameters(self) -> Parameters:
        return Parameters(self._state(), self.single, self.arithmetic)

    def _unset(self, name: str) -> str:
        if self.lenient:
            return ""
        return self._state().gap(f"the script does not set {name}", name)

    def _parameter(self, content: str, quoted: bool) -> list[Piece]:
        kind = "quoted" if quoted else "open"
        state, table = self._state(), self._parameters()
        if content.startswith("!") and len(content) > 1:
            keys = table.keys(content)
            if keys is not None:
                return _several(keys, kind, joined=quoted and content.endswith("[*]]"))
            target = table.plain(content[1:])
            if target is None or open_(target) or not NAME.fullmatch(target):
                return [Piece(self._unset(content[1:]), kind)]
            content = target
        if content.startswith("#") and len(content) > 1:
            size = table.length(content[1:])
            return [Piece(self._unset(content[1:]) if size is None else size, kind)]
        name, subscript, rest = table.named(content)
        if not name:
            return [Piece(state.gap(f"${{{content[:40]}}} is not followed here"), kind)]
        value = table.value(name, subscript)
        several = subscript in ("@", "*") or name in ("@", "*")
        sign = re.match(r":?[-=+?]", rest)
        if sign:
            return self._alternative(name, value, sign[0], rest[sign.end() :], kind, quoted)
        if value is None:
            value = [] if several and name in state.variables else self._unset(name)
        try:
            if rest.startswith(":"):
                value = sliced(value, rest[1:], self.arithmetic, positional=name in ("@", "*"))
            elif rest:
                value = transformed(value, rest, self.pattern, self.single)
        except (patterns.TooHard, ValueError):
            value = state.gap(f"${{{content[:40]}}} is not followed here")
        if isinstance(value, list):
            star = (subscript or name) == "*"
            return _several(value, kind, joined=star and quoted, by=table.separator())
        return [Piece(value, kind)]

    def _alternative(
        self, name: str, value: str | list[str] | None, sign: str, word: str, kind: str, quoted: bool
    ) -> list[Piece]:
        """`${name:-word}` and its kin."""
        state = self._state()
        text = " ".join(value) if isinstance(value, list) else value
        absent = text is None or (sign[0] == ":" and text == "")
        absent = absent or (isinstance(value, list) and not value)
        if text is not None and sign[0] == ":" and blank(text):
            return [Piece(text, kind)]  # it may be empty or not
        if sign[-1] == "+":
            return [Piece("", kind)] if absent else list(self.pieces(word, quoted=quoted))
        if not absent:
            assert value is not None
            if isinstance(value, list):
                return _several(value, kind, joined=False)
            return [Piece(value, kind)]
        if sign[-1] == "?":
            return [Piece(state.gap(f"the script stops unless {name} is set", name), kind)]
        if sign[-1] == "=":
            made = "".join(self._settled(piece, name).text for piece in self.pieces(word))
            if NAME.fullmatch(name):
                state.variables[name] = made
            return [Piece(made, kind)]
        # An unquoted default is split, too, where it is not quoted itself.
        found = [self._settled(piece, name) for piece in self.pieces(word, quoted=quoted)]
        return [Piece(p.text, "open") if p.kind == "plain" else p for p in found]

    def _settled(self, piece: Piece, name: str) -> Piece:
        """A default whose value nobody knows could be given instead, by the variable's name."""
        gaps = self._state().common.gaps
        if piece is BREAK or not blank(piece.text) or gaps.variable([piece.text]):
            return piece
        why = next(gaps.of(piece.text)).why
        return Piece(self._state().gap(why, name), piece.kind)

    def _split(self, pieces: Iterator[Piece]) -> list[str]:
        """Fields of a word: unquoted expansions are split where IFS says."""
        found: list[str] = []
        here: str | None = None
        separators = self._parameters().separators()
        for piece in pieces:
            if piece is BREAK:
                if here is not None:
                    found.append(here)
                here = None
            elif piece.kind != "open":
                # A word that came whole keeps the place that it came from.
                here = piece.text if not here else here + piece.text
            elif piece.text:
                parts = _divided(piece.text, separators)
                # An empty field counts where something other than a blank ends it, and never at the end.
                if parts[0] or len(parts) == 1 or piece.text[0] not in " \t\n":
                    here = parts[0] if not here else here + parts[0]
                for number, part in enumerate(parts[1:], 2):
                    if here is not None:
                        found.append(here)
                    here = part if part or number < len(parts) else None
        return found if here is None else [*found, here]


def _divided(text: str, separators: str) -> list[str]:
    if not separators:
        return [text]
    blanks = "".join(sign for sign in separators if sign in " \t\n")
    others = "".join(sign for sign in separators if sign not in " \t\n")
    if not any(sign in separators for sign in text):
        return [text]
    around = f"[{re.escape(blanks)}]*" if blanks else ""
    form = f"{around}[{re.escape(others)}]{around}" if others else ""
    form = "|".join(part for part in (form, f"[{re.escape(blanks)}]+" if blanks else "") if part)
    return re.split(form, text)


def _several(values: list[str], kind: str, *, joined: bool, by: str = " ") -> list[Piece]:
    if joined:
        return [Piece(by.join(values), kind)]
    found: list[Piece] = []
    for number, value in enumerate(values):
        found += [BREAK, Piece(value, kind)] if number else [Piece(value, kind)]
    return found


def _ansi(match: re.Match[str]) -> str:
    sign = match[1]
    if sign[0] in "xu" and len(sign) > 1:
        return chr(int(sign[1:], 16)) if int(sign[1:], 16) else ""
    if sign[0].isdigit():
        return chr(int(sign, 8)) if int(sign, 8) else ""
    return _ANSI.get(sign, match[0])
