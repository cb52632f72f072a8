"""Where the statements of a script are, by tree-sitter's grammar of bash.

Its parser is error tolerant and can be slow on text that is no script, so it is watched by the clock.
Words are taken from the source text itself (see `scan`): the grammar drops blanks inside some of them.
"""

from __future__ import annotations

import re
import time
from functools import cache
from typing import Any, TypeAlias

from tuneport.errors import Invalid
from tuneport.shell.limits import MAX_BYTES, too_much

Node: TypeAlias = Any
"""A `tree_sitter.Node`; the package is loaded by the first script."""
PARSE_SECONDS = 0.4
_ARITHMETIC = re.compile(rb"\$\(\(([^\n;]{0,300}?)\)\)(?!\))")
_ESCAPED_BLANK = re.compile(rb"(\\\\)|\\[ \t]")
_BRACKET = re.compile(rb"=\[[^\n\s]*")


def parse(source: bytes, name: str) -> Node:
    """The root node of a script.

    Raises:
        Invalid: it is binary, or too large or too tangled to be read.
    """
    if b"\0" in source:
        raise Invalid(
            f"{name} holds a NUL character: it is no shell script", code="script-text", hint="name the script"
        )
    if len(source) > MAX_BYTES:
        raise too_much(f"{name} is larger than {MAX_BYTES // 1024} KiB")
    # To bash a CR or a byte order mark is a sign like any other; to the grammar it is a blank.
    source = source.replace(b"\r", b"_").replace(b"\xef\xbb\xbf", b"___")
    source = _trimmed(source)  # a backslash on the last line continues nothing
    # The grammar loses blanks behind a backslash; only where words stand is taken from it.
    source = _ESCAPED_BLANK.sub(lambda match: match[1] or b"\\_", source)
    root = _tree(source, name)
    if root.has_error:
        # Two spellings that the grammar cannot take, though bash does, are covered up at the same length.
        masked = _ARITHMETIC.sub(lambda m: b"$((" + b"1" * len(m[1]) + b"))", source)
        masked = _BRACKET.sub(lambda m: b"=" + b"x" * (len(m[0]) - 1), masked)
        again = _tree(masked, name)
        root = root if again.has_error else again
    return root


def _trimmed(source: bytes) -> bytes:
    """A script without the blanks and continued lines at its end. A pattern would take time that grows with
    the square of their number."""
    end = len(source)
    while end:
        last = source[end - 1 : end]
        blank = last.isspace() and not source.endswith(b"\\", 0, end - 1)
        if source.endswith(b"\\\n", 0, end):
            end -= 2
        elif blank or (last == b"\\" and end == len(source)):
            end -= 1
        else:
            break
    return source[:end] + b"\n" if end < len(source) else source


def _tree(source: bytes, name: str) -> Node:
    start = time.process_time()
    try:
        tree = _parser().parse(
            lambda offset, _: source[offset : offset + 4096],
            progress_callback=lambda *_: time.process_time() - start > PARSE_SECONDS,
        )
    except ValueError:
        _parser().reset()
        raise too_much(f"{name} is too tangled to be read") from None
    return tree.root_node


@cache
def _parser() -> Any:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def first_error(root: Node) -> int:
    """The line of the first part that the grammar cannot take, counted from 1; 0 where there is none."""
    node = root
    while node.has_error:
        if node.type == "ERROR" or node.is_missing:
            break
        below = next((child for child in node.children if child.has_error or child.is_missing), None)
        if below is None:
            break
        node = below
    return int(node.start_point[0]) + 1 if root.has_error else 0
