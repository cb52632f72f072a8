"""Text for terminals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache


def table(rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> str:
    """Left-aligned columns two spaces apart; control characters are shown, not obeyed."""
    lines = [[printable(cell) for cell in row] for row in rows]
    if header and lines:
        lines.insert(0, [name.upper() for name in header])
    if not lines:
        return ""
    widths = [max(len(row[i]) for row in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in lines
    )


def printable(text: str) -> str:
    """`text` with control characters (terminal escapes among them) written out."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def closest_key(key: str, keys: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The dotted key most like `key`: one beside it that is spelt alike, then one of the same last name
    elsewhere, then one whose last name is spelt alike; empty where there is none."""
    parent, _, leaf = key.rpartition(".")
    named, below = _sorted(tuple(keys))
    near = closest(leaf, below.get(parent, ()), cutoff=cutoff)
    if near:
        return f"{parent}.{near}" if parent else near
    if leaf not in named:
        leaf = closest(leaf, named, cutoff=max(cutoff, 0.8))
    common = set(key.split("."))
    return max(named.get(leaf, ()), key=lambda known: len(common & set(known.split("."))), default="")


@lru_cache(maxsize=8)
def _sorted(keys: tuple[str, ...]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """(dotted keys by their last name, last names by what stands before them); not to be changed."""
    named: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for known in keys:
        above, _, last = known.rpartition(".")
        named.setdefault(last, []).append(known)
        below.setdefault(above, []).append(last)
    return named, below


def closest(word: str, options: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The option most like `word`; empty where none is like it enough, or where too much was guessed
    already: a file with thousands of unknown keys is not a file with thousands of typos."""
    global _compared
    from difflib import get_close_matches  # late: most commands have nothing to guess

    choices = list(options)
    _compared += len(choices)
    if len(word) > 200 or _compared > MAX_COMPARED:
        return ""
    return next(iter(get_close_matches(word, choices, n=1, cutoff=cutoff)), "")


def guess_anew() -> None:
    """Begin to count again: one command, or one request of the Python API, has one allowance."""
    global _compared
    _compared = 0


MAX_COMPARED = 40_000
_compared = 0
