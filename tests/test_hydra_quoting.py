"""What is quoted arrives: through a real shell, Hydra's parser and OmegaConf, value and key alone.

HYPOTHESIS_PROFILE=long runs 20,000 examples of each property; otherwise a few hundred.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from tuneport.dialects.hydra.parse import OverrideError, parse_override
from tuneport.dialects.hydra.quote import override
from tuneport.errors import Invalid

sys.path.insert(0, str(Path(__file__).parent))
from hydra_reference import Reference, same, value

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
EXAMPLES = 20_000 if LONG else 300
PROFILE = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)
NASTY = "\\'\"${}[](),:= \t\n#a1.?-é/&;|*@%+~"
WORDS = [
    "",
    "null",
    "true",
    "1",
    "1e5",
    "nan",
    "${a}",
    "\\${a}",
    "\\\\${a}",
    "a\\",
    "'",
    "$",
    "${",
    "-1",
    "--x",
]
WORDS += [
    "a,b",
    " x ",
    "a=b",
    "1_000",
    "+1",
    ".5",
    "1.",
    "\r\n",
    "0x10",
    "on",
    "no",
    "~",
    "a: b",
    "日本",
    "\u2028",
]
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    st.text(NASTY, max_size=12),
    st.sampled_from(WORDS),
)
SCALAR = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT)
INNER = st.one_of(st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-/ :,=(){}\[\]$\\]{0,8}", fullmatch=True), TEXT)
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(INNER, inner, max_size=3)),
    max_leaves=6,
)
KEY = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,6}(\.[A-Za-z_][A-Za-z0-9_]{0,6}){0,3}", fullmatch=True)


@pytest.fixture(scope="module")
def hydra() -> Iterator[Reference]:
    process = Reference()
    yield process
    process.close()


@pytest.mark.upstream
def test_every_value_arrives_through_a_shell_and_hydra(hydra: Reference) -> None:
    seen = {"said": 0, "refused": 0}

    @PROFILE
    @given(KEY, VALUE)
    @example("a.b", "it's ${not} one\\")
    @example("a", {"k": [1, "1", None, {"x": "\n"}]})
    @example("a", "???")
    def arrives(key: str, wanted: Any) -> None:
        try:
            word = override(key, wanted, "+")
        except Invalid:
            seen["refused"] += 1
            return
        seen["said"] += 1
        got = hydra.ask("set", text=through_shell(word))
        assert got is not None, f"{word!r}: {hydra.reason}"
        assert got["key"] == key
        tree: Any = value(got["value"])
        for part in key.split("."):
            assert list(tree) == [part], f"{word!r} wrote something else too"
            tree = tree[part]
        assert same(tree, nan_named(wanted)), f"{word!r} arrived as {tree!r}"

    arrives()
    assert seen["said"] > EXAMPLES * 0.5, seen


@pytest.mark.upstream
def test_our_reader_agrees_with_hydras(hydra: Reference) -> None:
    seen = {"accepted": 0, "refused": 0}
    piece = st.sampled_from(
        [
            *WORDS,
            *NASTY,
            "[",
            "]",
            "{",
            "}",
            "a",
            "b.c",
            "true",
            "NULL",
            "1e-6",
            "inf",
            "-0.5",
            "\\,",
            "\\ ",
            "\\\\",
        ]
    )
    value_text = st.lists(piece, max_size=8).map("".join)
    head = st.sampled_from(
        ["a=", "+a.b=", "++a=", "~a", "~a=", "a/b=", "a@b.c=", "=", "a.1=", "$x=", "1=", "a b="]
    )
    line = st.builds(str.__add__, head, value_text)

    @PROFILE
    @given(line)
    @example("a=[x, 'y z', {k: 1}]")
    @example("a='\\\\'")
    @example("a={1: 2, true: 3, a b: c}")
    @example("a=[a")
    @example("a=a b  c ")
    @example("a=${x}")
    @example("a=${x:${y}}")
    @example("a=1_0.5e+1_0")
    @example("a=01")
    @example("a='x' ")
    @example("a=@b")
    def agree(text: str) -> None:
        real = hydra.ask("parse", text=text)
        try:
            ours = parse_override(text)
        except OverrideError as error:
            assert real is None, f"{text!r}: Hydra reads {real}; we say {error}"
            seen["refused"] += 1
            return
        if ours.kind == "call":
            return
        assert real is not None, f"{text!r}: we read {ours}; Hydra says {hydra.reason}"
        seen["accepted"] += 1
        kinds = {"": "CHANGE", "+": "ADD", "++": "FORCE_ADD", "~": "DEL"}
        assert (kinds[ours.sign], ours.key, ours.package) == (real["type"], real["key"], real["package"])
        assert (ours.kind == "sweep") == (real["kind"] not in (None, "ELEMENT"))
        if ours.kind != "sweep":
            assert same(nan_named(ours.value), value(real["value"])), f"{text!r}"

    agree()
    assert min(seen.values()) > EXAMPLES * 0.1, seen


@PROFILE
@given(KEY, VALUE)
def test_our_reader_reads_what_we_write(key: str, wanted: Any) -> None:
    try:
        word = override(key, wanted, literal=False)
    except Invalid:
        return
    read = parse_override(word)
    assert (read.key, read.sign, read.kind) == (key, "", "value")
    assert same(nan_named(read.value), nan_named(wanted))


@pytest.mark.parametrize(
    "wanted", ["???", {"": 1}, {"1": 1}, {"true": 1}, {"é": 1}, {"a'b": 1}, {1: 1}, [10**5000], {"x": b""}]
)
def test_what_has_no_spelling_is_refused(wanted: Any) -> None:
    with pytest.raises(Invalid):
        override("a", wanted)


@pytest.mark.parametrize("key", ["", "a b", "a.", ".a", "é", "a=b", "1", "a..b", "a/b"])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(Invalid):
        override(key, 1)


def through_shell(word: str) -> str:
    """The word as a program gets it that a shell starts."""
    script = f"printf '%s\\0' {shlex.quote(word)}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    text, _, rest = done.stdout.decode().partition("\0")
    assert not rest
    return text


def nan_named(item: Any) -> Any:
    if isinstance(item, float) and item != item:
        return "<nan>"
    if isinstance(item, list):
        return [nan_named(part) for part in item]
    return {nan_named(k): nan_named(v) for k, v in item.items()} if isinstance(item, dict) else item
