"""What bash would stumble over in the text of a script, before anything in it is followed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tuneport.shell import scan
from tuneport.types import Finding

_OVERRIDE = re.compile(r"(?:\+\+?|~)?[A-Za-z_][\w/@-]*(?:\.[\w@-]+)+=|(?:\+\+?|--)[A-Za-z_][\w.@/-]*(?:=|\Z)")
_HEREDOC = re.compile(r"<<(?!<)(-?)[ \t]*(['\"]?)\\?([A-Za-z_]\w*)\2(?=[\s;&|)<>]|\Z)")
_BOM = b"\xef\xbb\xbf"


def of_text(source: bytes, file: str) -> Iterator[Finding]:
    """A byte order mark, Windows line ends, and a quote that is never closed."""
    if source.startswith(_BOM):
        message = "the script begins with a byte order mark, which bash takes for part of its first word"
        hint = f"take it out: sed -i '1s/^\\xef\\xbb\\xbf//' {file}"
        yield Finding("script-mark", "warning", message, hint, "", file, 1)
    count = source.count(b"\r\n")
    if count:
        message = (
            f"{count} lines end in CR LF: bash takes the CR for part of the last word, and a backslash "
            "before it continues nothing"
        )
        line = source[: source.index(b"\r\n")].count(b"\n") + 1
        yield Finding("script-crlf", "warning", message, f"sed -i 's/\\r$//' {file}", "", file, line)
    text = source.decode("utf-8", "replace")
    line, longest = unclosed_quote(text)
    if line:
        message = "a quote that opens here is never closed, and bash refuses the script from there on"
        hint = "close it"
        if longest and longest != line:
            hint = f"the missing one may be further up: that of line {longest} runs over several lines"
        yield Finding("script-quote", "error", message, hint, "", file, line)


def unclosed_quote(text: str) -> tuple[int, int]:
    """(the line where a quote opens that is never closed, that of the first quote that runs over several
    lines); zeros where there is none, or where that is not certain."""
    at, waiting, first = 0, list[re.Match[str]](), 0
    while at < len(text):
        sign = text[at]
        if sign == "\n" and waiting:
            for found in waiting:
                dashed = r"\t*" if found[1] else ""
                end = re.compile(rf"^{dashed}{found[3]}$", re.M).search(text, at + 1)
                if end is None:
                    return 0, 0
                at = end.end()
            waiting = []
            continue
        if sign == "#" and (not at or text[at - 1] in " \t\n;|&()"):
            end_of_line = text.find("\n", at)
            at = len(text) if end_of_line < 0 else end_of_line
            continue
        if sign == "<" and text.startswith("<<", at) and not text.startswith("<<<", at):
            heredoc = _HEREDOC.match(text, at)
            if heredoc is None:
                return 0, 0  # a shift, or a delimiter that is not read here
            waiting.append(heredoc)
            at = heredoc.end()
            continue
        if text.startswith("<<<", at):
            at += 3
            continue
        try:
            after = scan.after(text, at)
        except scan.Unended:
            plain = sign == "'" or text.startswith("$'", at) or (sign == '"' and _plain(text[at + 1 :]))
            return (text.count("\n", 0, at) + 1, first) if plain else (0, 0)
        if sign in "'\"" and not first and "\n" in text[at:after]:
            first = text.count("\n", 0, at) + 1
        if sign in '$`"' and "'" in text[at:after] and re.search(r"[`({]", text[at:after]):
            return 0, 0  # which quotes count inside such an expansion is bash's own affair
        at = after
    return 0, 0


def _plain(text: str) -> bool:
    return not re.search(r"`|\$[({]", text)


def override_like(first: str) -> bool:
    """Whether the first word of a command is an override or a flag, which no program is called."""
    return bool(_OVERRIDE.match(first))


def override_alone(first: str, text: str, line: int, file: str) -> Finding | None:
    """What to say of a command that begins like an override: it belonged to the command above.

    Args:
        text: the source, of which it begins in the `line`-th line, counted from 1.
    """
    lines = text.split("\n")
    above = lines[line - 2] if 1 < line <= len(lines) + 1 else ""
    if above.endswith("\r"):
        return None  # said of the whole script
    shown = first if len(first) <= 60 else first[:60] + "…"
    message = f"{shown!r} looks like an override, but is a command of its own"
    hint = "write it behind the program"
    if above.lstrip().startswith("#"):
        message += f": the comment in line {line - 1} ends the command before it"
        hint = "move the comment above the whole command"
    elif re.search(r"\\[ \t]+\Z", above):
        message += f": in line {line - 1} blanks follow the backslash, so it continues nothing"
        hint = f"take out the blanks at the end of line {line - 1}"
    elif not above.strip() and line > 2:
        message += f": the empty line {line - 1} ends the command before it"
        hint = "take the empty line out"
    elif above.strip():
        message += f": a backslash is missing at the end of line {line - 1}"
        hint = f"end line {line - 1} with a backslash"
    return Finding("script-override", "warning", message, hint, first.partition("=")[0], file, line)
