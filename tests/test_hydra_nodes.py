"""Plain interpolations are read as the whole grammar reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tuneport.dialects.hydra.grammar import GrammarError, parse_text
from tuneport.dialects.hydra.nodes import plain
from tuneport.registry import catalog, surfaces


def texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict | list):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from texts(item)
    elif isinstance(tree, str) and "${" in tree:
        yield tree


def test_what_the_releases_say_is_read_alike() -> None:
    count = 0
    for version in catalog.releases("verl"):
        for text in sorted(set(texts(surfaces.of("verl", version)))):
            read = plain(text)
            if read is not None:
                count += 1
                assert read == parse_text(text), text
    assert count > 200


WORDS = st.sampled_from(
    ["a", "b_1", "null", "True", "inf", "nan", "no-name", "1", "-3", "007", "1e3", "1.5", "[]", "{}", "''"]
)


@given(
    st.sampled_from(["", "oc.select:", "oc.env:", " "]),
    st.lists(WORDS, min_size=1, max_size=3).map(".".join),
    st.sampled_from(["", ",", ", ", " ,"]),
    st.one_of(st.just(""), WORDS, WORDS.map("${{{}}}".format), WORDS.map("${{oc.select:{},null}}".format)),
    st.sampled_from(["", " ", "x"]),
)
def test_what_anybody_may_write_is_read_alike(
    resolver: str, key: str, comma: str, word: str, end: str
) -> None:
    text = f"${{{resolver}{key}{comma}{word}}}{end}"
    read = plain(text)
    if read is None:
        return
    try:
        assert read == parse_text(text)
    except GrammarError as error:
        raise AssertionError(f"{text} is refused: {error}") from error
