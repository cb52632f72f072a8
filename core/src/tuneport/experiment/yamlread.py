"""Reads what people write: bounded YAML, with the line of every key and every problem at once.

Values are read as OmegaConf reads them (YAML 1.1 with `1e-6` a number and no timestamps), because
that is what most releases do. Nothing recursive runs over the input, so its depth is only a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tuneport.errors import Invalid, NotFound
from tuneport.types import Finding, Json

MAX_BYTES = 4 * 1024 * 1024
MAX_SCALAR = 256 * 1024
MAX_DEPTH = 64
MAX_NODES = 25_000

Path_: TypeAlias = tuple[str | int, ...]

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {
    **dict.fromkeys(("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_INT = r"[-+]?(?:0b_*[01][01_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|0[0-7_]+|0|[1-9][0-9_]*)\Z"
_FLOAT = (
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+"
    r"|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?)\Z"
)
_SPECIAL = {
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_SCALARS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "null": (type(None),),
}
_TAG = "tag:yaml.org,2002:"


@dataclass(slots=True)
class Document:
    """A YAML document: plain data, the 1-based line of each path, the text of each plain scalar, the first
    and last line of each text of several lines. `places` is filled where it was made of several files: the
    file of each path."""

    data: Json = None
    file: str = ""
    lines: dict[Path_, int] = field(default_factory=dict)
    raw: dict[Path_, str] = field(default_factory=dict)
    spans: dict[Path_, tuple[int, int]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    places: dict[Path_, str] = field(default_factory=dict)

    def line(self, path: Path_) -> int:
        """The line of `path`, or of its nearest ancestor that has one."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)

    def place(self, path: Path_) -> str:
        """The file of `path`, or of its nearest ancestor that has one."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, self.file)


def read_yaml(path: Path) -> Document:
    """Read and parse a file.

    Raises:
        NotFound: it does not exist. Invalid: it cannot be read as text of a sane size.
    """
    return parse_yaml(read_text(path), str(path))


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """The file's text, refused above `limit` bytes, where it is no regular file, or not UTF-8."""
    try:
        if not path.is_file():
            if path.exists() or path.is_symlink():
                raise Invalid(f"{path} is not a regular file", code="not-a-file")
            raise NotFound(f"{path} does not exist", code="file-missing")
        with path.open("rb") as stream:
            content = stream.read(limit + 1)
    except PermissionError as error:
        raise Invalid(f"{path} cannot be read", code="file-unreadable", hint="check its mode") from error
    except ValueError as error:  # an embedded NUL in the name
        raise Invalid(f"{str(path)!r} is not a possible file name", code="file-name") from error
    if len(content) > limit:
        raise Invalid(f"{path} is larger than {limit // 1024} KiB", code="file-too-large")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(
            f"{path} is not UTF-8 text (byte {error.start})", code="file-encoding", hint="save it as UTF-8"
        ) from error


def parse_yaml(text: str, file: str = "", plain: Callable[[str], Json] | None = None) -> Document:
    """Parse one document. Problems become findings (code `yaml-…`); `data` is None where it has none.

    Args:
        plain: what a scalar without quotes and tag means, where it is not what this module says.
    """
    import yaml

    document = Document(file=file)
    try:
        loader: Any = yaml.CSafeLoader(text)
        try:
            _Builder(document, plain or scalar).build(_events(loader))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        problem = error.problem or error.context or "not YAML"
        hint = "indent with spaces" if "\\t" in problem or "cannot start any token" in problem else ""
        document.findings.append(
            Finding("yaml-syntax", "error", f"not YAML: {problem}", hint, "", file, line)
        )
        document.data = None
    except yaml.YAMLError as error:
        message = " ".join(str(error).split())[:200]
        document.findings.append(Finding("yaml-syntax", "error", f"not YAML: {message}", "", "", file, 0))
        document.data = None
    except UnicodeEncodeError:
        message = "not YAML: half a character (not valid Unicode)"
        document.findings.append(Finding("yaml-syntax", "error", message, "", "", file, 0))
    except _Refused as refusal:
        document.findings.append(
            Finding(refusal.code, "error", refusal.message, refusal.hint, "", file, refusal.line)
        )
        document.data = None
    return document


def scalar(text: str) -> Json:
    """A plain scalar's value under the rules of this module."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if text in _SPECIAL:
        return _SPECIAL[text]
    if re.match(_INT, text):
        return _integer(text)
    if re.match(_FLOAT, text):
        return float(text.replace("_", ""))
    return text


def _integer(text: str) -> int | str:
    digits = text.replace("_", "").lower()
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-")
    if len(digits) > 400:  # int() of a huge literal is quadratic, and no setting is that large
        return text
    for prefix, base in (("0x", 16), ("0b", 2)):
        if digits.startswith(prefix):
            return sign * int(digits[2:], base)
    if len(digits) > 1 and digits.startswith("0"):
        return sign * int(digits, 8)
    return sign * int(digits)


class _Refused(Exception):
    def __init__(self, code: str, message: str, line: int, hint: str = "") -> None:
        self.code, self.message, self.line, self.hint = code, message, line, hint


def _events(loader: Any) -> Iterator[Any]:
    while loader.check_event():
        yield loader.get_event()


class _Frame:
    """One open mapping or sequence."""

    __slots__ = ("anchor", "key", "keys", "line", "merge", "merges", "path", "value", "wants_value")

    def __init__(
        self, value: dict[str, Json] | list[Json], path: Path_, line: int, anchor: str | None
    ) -> None:
        self.value, self.path, self.line, self.anchor = value, path, line, anchor
        self.key: str = ""
        self.merge = False
        self.wants_value = False
        self.keys: dict[str, int] = {}
        self.merges: list[Json] = []


class _Builder:
    def __init__(self, document: Document, meaning: Callable[[str], Json]) -> None:
        self.doc = document
        self.meaning = meaning
        self.stack: list[_Frame] = []
        self.anchors: dict[str, Json] = {}
        self.sizes: dict[int, int] = {}
        self.nodes = 0
        self.documents = 0

    def build(self, events: Iterator[Any]) -> None:
        import yaml

        for event in events:
            line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent):
                self.documents += 1
                if self.documents > 1:
                    raise _Refused("yaml-documents", "more than one YAML document in the file", line)
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event, line)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event, line)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._open(event, {} if isinstance(event, yaml.MappingStartEvent) else [], line)
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                self._close()

    def _scalar(self, event: Any, line: int) -> None:
        if len(event.value) > MAX_SCALAR:
            raise _Refused("yaml-too-large", f"a value is longer than {MAX_SCALAR // 1024} KiB", line)
        kind = self._check_tag(event.tag, line, _SCALARS)
        plain = bool(event.implicit[0])
        top = self.stack[-1] if self.stack else None
        if top is not None and isinstance(top.value, dict) and not top.wants_value:
            self._key(top, event.value, plain, line)
            return
        value = self.meaning(event.value) if plain else event.value
        if kind and kind != "str":
            value = scalar(event.value)
            if not isinstance(value, _SCALARS[kind]) or (isinstance(value, bool) and kind != "bool"):
                raise _Refused("yaml-tag", f"{event.value[:80]!r} is tagged !!{kind} and is none", line)
            value = float(value) if kind == "float" and isinstance(value, int) else value
        if plain and not isinstance(value, str):
            self.doc.raw[self._here()] = event.value
        last = event.end_mark.line + 1
        if last > line:
            block = event.style in ("|", ">")  # which ends where the next line begins
            self.doc.spans[self._here()] = (line + 1, max(last - 1, line + 1)) if block else (line, last)
        self._add(value, line, event.anchor, 1)

    def _key(self, top: _Frame, text: str, plain: bool, line: int) -> None:
        if plain and text != "<<" and not isinstance(scalar(text), str):
            self._say(
                "yaml-key",
                f"the key `{text}` is read as {scalar(text)!r}, not as text",
                line,
                text,
                "quote it",
            )
        if "\0" in text:
            raise _Refused("yaml-nul", "a key contains a NUL character", line)
        if text in top.keys:
            where = ".".join(str(part) for part in (*top.path, text))
            self._say(
                "yaml-duplicate-key",
                f"`{where}` is written twice (first on line {top.keys[text]}); only the last would count",
                line,
                where,
                "delete one of them",
            )
        top.keys[text] = line
        top.key, top.wants_value, top.merge = text, True, plain and text == "<<"
        self.doc.lines[(*top.path, text)] = line

    def _alias(self, event: Any, line: int) -> None:
        if event.anchor not in self.anchors:
            raise _Refused("yaml-syntax", f"the alias *{event.anchor} has no anchor before it", line)
        value = self.anchors[event.anchor]
        if self.stack and isinstance(self.stack[-1].value, dict) and not self.stack[-1].wants_value:
            raise _Refused("yaml-key", "an alias is used as a key", line, "write the key out")
        self._add(value, line, None, self._size(value))

    def _open(self, event: Any, value: dict[str, Json] | list[Json], line: int) -> None:
        self._check_tag(event.tag, line, ("map",) if isinstance(value, dict) else ("seq",))
        if len(self.stack) >= MAX_DEPTH:
            raise _Refused("yaml-too-deep", f"nested more than {MAX_DEPTH} levels deep", line)
        top = self.stack[-1] if self.stack else None
        if top is not None and isinstance(top.value, dict) and not top.wants_value:
            raise _Refused("yaml-key", "a list or mapping is used as a key", line, "use text as keys")
        self.stack.append(_Frame(value, self._here(), line, event.anchor))

    def _close(self) -> None:
        frame = self.stack.pop()
        if isinstance(frame.value, dict):
            for merged in frame.merges:
                for source in merged if isinstance(merged, list) else [merged]:
                    if not isinstance(source, dict):
                        raise _Refused("yaml-merge", "`<<` takes a mapping or a list of mappings", frame.line)
                    self._count(len(source), frame.line)  # before the copy: merges of merges multiply
                    for key, value in source.items():
                        frame.value.setdefault(key, value)
        size = 1 + sum(self._size(child) for child in _children(frame.value))
        self.sizes[id(frame.value)] = size
        self._add(frame.value, frame.line, frame.anchor, size)

    def _add(self, value: Json, line: int, anchor: str | None, size: int) -> None:
        if isinstance(value, str) and "\0" in value:
            raise _Refused("yaml-nul", "a value contains a NUL character", line)
        # An alias counts as often as it is walked: a bomb is refused before anything expands it.
        self._count(1, line, size)
        path = self._here()
        if anchor:
            self.anchors[anchor] = value
        if not self.stack:
            self.doc.data = value
            self.doc.lines.setdefault((), line)
            return
        top = self.stack[-1]
        self.doc.lines.setdefault(path, line)
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.merge:
            top.merges.append(value)
            top.wants_value = False
        else:
            top.value[top.key] = value
            top.wants_value = False

    def _here(self) -> Path_:
        if not self.stack:
            return ()
        top = self.stack[-1]
        return (*top.path, len(top.value) if isinstance(top.value, list) else top.key)

    def _size(self, value: Json) -> int:
        """How many values there are in `value`, aliases expanded."""
        return self.sizes.get(id(value), 1) if isinstance(value, dict | list) else 1

    def _count(self, more: int, line: int, size: int = 0) -> None:
        self.nodes += more
        if self.nodes > MAX_NODES or size > MAX_NODES:
            raise _Refused("yaml-too-many", f"more than {MAX_NODES} values, aliases expanded", line)

    def _check_tag(self, tag: str | None, line: int, allowed: Collection[str]) -> str:
        """The short name of a tag of the core schema that fits here; empty where there is none."""
        if not tag or tag == "!":
            return ""
        kind = tag.removeprefix(_TAG)
        if kind == tag or kind not in allowed:
            raise _Refused("yaml-tag", f"the tag {tag[:80]!r} is not plain data", line, "remove the tag")
        return kind

    def _say(self, code: str, message: str, line: int, key: str, hint: str) -> None:
        self.doc.findings.append(Finding(code, "error", message, hint, key, self.doc.file, line))


def _children(value: Hashable | dict[str, Json] | list[Json]) -> Iterator[Json]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value
