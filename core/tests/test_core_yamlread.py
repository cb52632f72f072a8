"""What people write is read as OmegaConf reads it, with a line for every key and nothing dangerous."""

from __future__ import annotations

import datetime
import itertools
import math
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tuneport.errors import Invalid, NotFound
from tuneport.experiment import yamlread
from tuneport.experiment.yamlread import parse_yaml, read_yaml

from .core_support import SLOW

MEANS: list[tuple[str, Any]] = [
    # as PyYAML and OmegaConf read them
    ("", None), ("~", None), ("null", None), ("Null", None), ("NULL", None), ("nUll", "nUll"),
    ("yes", True), ("No", False), ("on", True), ("OFF", False), ("true", True), ("y", "y"), ("n", "n"),
    ("tRue", "tRue"), ("0", 0), ("-0", 0), ("+7", 7), ("007", 7), ("010", 8), ("08", "08"), ("0x1F", 31),
    ("-0x1f", -31), ("0b101", 5), ("0o17", "0o17"), ("1_000", 1000), ("1.5", 1.5), ("1.", 1.0), (".5", 0.5),
    ("1e+3", 1000.0), ("1.5e-3", 0.0015), (".inf", math.inf), ("-.Inf", -math.inf), ("+.inf", math.inf),
    ("inf", "inf"), ("nan", "nan"), ("1.2.3", "1.2.3"), ("0x", "0x"), ("1__0", 10), ("e5", "e5"),
    ('"1"', "1"), ("'no'", "no"), ("! 1", 1), ("!!str 1", "1"), ("!!float 1", 1.0), ("!!int 0x10", 16),
    ("!!null ~", None), ("!!bool yes", True), ("!!seq [1]", [1]), ("!!map {a: 1}", {"a": 1}),
    # where OmegaConf is kinder than YAML 1.1: what people write for a learning rate is a number
    ("1e-6", 1e-6), ("1E5", 1e5), ("-3e4", -3e4), ("1_0e2", 1000.0), ("2.5e3", 2500.0), (".5e1", 5.0),
    ("-.5", -0.5),
    # no dates, no base 60, no other magic
    ("2001-12-14", "2001-12-14"), ("1:30", "1:30"), ("1:30:15.5", "1:30:15.5"), ("=", "="), ("<<", "<<"),
    # not numbers, whatever a pattern that is too generous says
    ("._", "._"), ("0b_", "0b_"), ("0x_", "0x_"), ("9" * 401, "9" * 401),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), MEANS, ids=[repr(text)[:20] for text, _ in MEANS])
def test_plain_values_mean_what_the_releases_read(text: str, value: Any) -> None:
    document = parse_yaml(f"key: {text}\n")
    assert not document.findings
    read = document.data["key"]
    assert (read, type(read)) == (value, type(value))


def test_nan_is_read_and_large_numbers_do_not_cost_quadratic_time() -> None:
    began = time.monotonic()
    document = parse_yaml(f"a: .nan\nb: {'9' * 200_000}\nc: {'9' * 200_000}.5\n")
    assert math.isnan(document.data["a"])
    assert document.data["b"] == "9" * 200_000
    assert document.data["c"] == math.inf
    assert time.monotonic() - began < 2


REFUSED: list[tuple[str, str, int]] = [
    ("a: 1\na: 2\n", "yaml-duplicate-key", 2),
    ("a:\n  b: 1\n  c: 2\n  b: 3\n", "yaml-duplicate-key", 4),
    ("{a: 1, a: 1}", "yaml-duplicate-key", 1),
    ("a: 1\n'a': 2\n", "yaml-duplicate-key", 2),
    ("x: &x {p: 1}\nz:\n  <<: *x\n  <<: *x\n", "yaml-duplicate-key", 4),
    ("1: a\n", "yaml-key", 1),
    ("on: a\n", "yaml-key", 1),
    ("~: a\n", "yaml-key", 1),
    ("a: 1\n? [b]\n: c\n", "yaml-key", 2),
    ("a: 1\n? {b: c}\n: d\n", "yaml-key", 2),
    ("a: &a k\n*a : 1\n", "yaml-key", 2),
    ("a: b: c\n", "yaml-syntax", 1),
    ("a: [1\nb: 2\n", "yaml-syntax", 2),
    ("a: 'x\n", "yaml-syntax", 2),
    ("a:\n\tb: 1\n", "yaml-syntax", 2),
    ("a: *b\n", "yaml-syntax", 1),
    ("a: &a [*a]\n", "yaml-syntax", 1),
    ("a: %x\n", "yaml-syntax", 1),
    ("a: 1\x01\n", "yaml-syntax", 0),
    ("a: \ud800\n", "yaml-syntax", 0),
    ("{a: 1}\n\x01", "yaml-syntax", 0),
    ("a: 1\n---\nb: 2\n", "yaml-documents", 2),
    ('a: "\\0"\n', "yaml-nul", 1),
    ('"\\0": a\n', "yaml-nul", 1),
    ("a: !!python/object/apply:os.system [echo]\n", "yaml-tag", 1),
    ("a: !<tag:yaml.org,2002:python/name:os.system> x\n", "yaml-tag", 1),
    ("a: 1\nb: !custom {x: 1}\n", "yaml-tag", 2),
    ("a: !!set {x, y}\n", "yaml-tag", 1),
    ("a: !!binary aGk=\n", "yaml-tag", 1),
    ("a: !!timestamp 2001-01-01\n", "yaml-tag", 1),
    ("a: !!int x\n", "yaml-tag", 1),
    ("a: !!int true\n", "yaml-tag", 1),
    ("a: !!bool 1\n", "yaml-tag", 1),
    ("a: !!seq x\n", "yaml-tag", 1),
    ("a: !!str {b: 1}\n", "yaml-tag", 1),
    ("a: !!map [1]\n", "yaml-tag", 1),
    ("a:\n  <<: 5\n", "yaml-merge", 2),
    ("<<: [1]\n", "yaml-merge", 1),
    (f"a: {'x' * (yamlread.MAX_SCALAR + 1)}\n", "yaml-too-large", 1),
    ("a: " + "[" * 65 + "]" * 65, "yaml-too-deep", 1),
    ("- " * 70 + "a", "yaml-too-deep", 1),
    ("[" * 50_000, "yaml-syntax", 1),
    ("a: [" + "1," * (yamlread.MAX_NODES + 1) + "]", "yaml-too-many", 1),
]


@pytest.mark.parametrize(
    ("text", "code", "line"), REFUSED, ids=[f"{c}-{i}" for i, (_, c, _) in enumerate(REFUSED)]
)
def test_what_is_refused_has_a_code_and_the_line(text: str, code: str, line: int) -> None:
    found = parse_yaml(text, "config.yaml").findings
    assert [(f.code, f.severity, f.file, f.line) for f in found] == [(code, "error", "config.yaml", line)]
    assert found[0].message


def test_every_duplicate_is_named_with_both_lines() -> None:
    found = parse_yaml("a: 1\nb:\n  c: 1\n  c: 2\na: 2\n").findings
    assert [(f.key, f.line) for f in found] == [("b.c", 4), ("a", 5)]
    assert "first on line 3" in found[0].message
    assert found[0].hint == "delete one of them"


def bomb(levels: int, width: int = 10) -> str:
    rows = ["a0: &a0 [" + ",".join("x" * width) + "]"]
    rows += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(rows)


BOMBS = {
    "aliases": bomb(10),
    "aliases of mappings": "a: &a {p: 1, q: 2}\n" + "".join(
        f"{c}: &{c} {{p: *{p}, q: *{p}}}\n" for p, c in itertools.pairwise("abcdefghijklmnopqrs")
    ),
    "merges": "b: &b {" + ",".join(f"k{i}: 1" for i in range(15_000)) + "}\nl:\n" + "- {<<: *b}\n" * 20_000,
    "merges of merges": "b0: &b0 {" + ",".join(f"k{i}: 1" for i in range(3_000)) + "}\n" + "".join(
        f"b{n}: &b{n} {{<<: [{','.join([f'*b{n - 1}'] * 30)}], x{n}: 1}}\n" for n in range(1, 30)
    ),
    "one large list again and again": "a: &a [" + "1," * 12_000 + "]\nb: [*a, *a, *a]\n",
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_before_they_expand(name: str) -> None:
    began = time.monotonic()
    found = parse_yaml(BOMBS[name]).findings
    assert [f.code for f in found] == ["yaml-too-many"]
    assert time.monotonic() - began < 3


def test_modest_aliases_are_shared_and_fine() -> None:
    document = parse_yaml("base: &b {lr: 1e-3, deep: &d [1, 2]}\none: *b\ntwo: {x: *d, y: &s text, z: *s}\n")
    assert not document.findings
    assert document.data["one"] == {"lr": 0.001, "deep": [1, 2]}
    assert document.data["two"] == {"x": [1, 2], "y": "text", "z": "text"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: &a {p: 1, q: 2}\nb: {<<: *a, q: 3}", {"p": 1, "q": 3}),
        ("a: &a {p: 1, q: 2}\nb: {q: 3, <<: *a}", {"p": 1, "q": 3}),
        ("a: &a {p: 1}\nc: &c {p: 2, r: 1}\nb: {<<: [*a, *c]}", {"p": 1, "r": 1}),
        ("b: {<<: {p: 1}, q: 2}", {"p": 1, "q": 2}),
        ("b: {'<<': {p: 1}}", {"<<": {"p": 1}}),
    ],
)
def test_merge_keys_merge_as_in_pyyaml(text: str, value: Any) -> None:
    document = parse_yaml(text)
    assert not document.findings
    assert document.data["b"] == value == c_load(text)["b"]


def test_lines_are_those_of_the_keys_and_items() -> None:
    document = parse_yaml("# note\na: 1\n\nb:\n  c: x\n  d:\n    - 1\n    - e: 2\n      f: 3\n  'g.h': 4\n")
    assert document.line(("a",)) == 2
    assert document.line(("b",)) == 4
    assert document.line(("b", "c")) == 5
    assert document.line(("b", "d", 0)) == 7
    assert document.line(("b", "d", 1, "f")) == 9
    assert document.line(("b", "g.h")) == 10
    assert document.line(("b", "c", "deeper")) == 5, "the nearest ancestor"
    assert document.line(("nowhere",)) == 2, "the document"


def test_raw_text_is_kept_of_plain_values_that_are_not_text() -> None:
    document = parse_yaml("a: no\nb: 'no'\nc: 1e-6\nd: text\ne: [On]\n")
    assert document.raw == {("a",): "no", ("c",): "1e-6", ("e", 0): "On"}


def test_files_are_read_with_their_limits(tmp_path: Path) -> None:
    def file(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    assert read_yaml(file("bom.yaml", b"\xef\xbb\xbfa: \xc3\xa9\r\nb: 2\r\n")).data == {"a": "é", "b": 2}
    assert read_yaml(file("empty.yaml", b"")).data is None
    assert read_yaml(file("comment.yaml", b"# nothing\n")).data is None
    for name, content, code in [
        ("latin.yaml", b"a: \xe9\n", "file-encoding"),
        ("utf16.yaml", "a: 1".encode("utf-16"), "file-encoding"),
        ("large.yaml", b"#" * (yamlread.MAX_BYTES + 1), "file-too-large"),
    ]:
        with pytest.raises(Invalid) as caught:
            read_yaml(file(name, content))
        assert caught.value.code == code
        assert name in caught.value.message
    with pytest.raises(Invalid, match="not a regular file"):
        read_yaml(tmp_path)
    with pytest.raises(Invalid, match="not a regular file"):
        read_yaml(Path("/dev/zero"))
    (tmp_path / "dangling.yaml").symlink_to(tmp_path / "gone")
    with pytest.raises(Invalid, match="not a regular file"):
        read_yaml(tmp_path / "dangling.yaml")
    with pytest.raises(NotFound):
        read_yaml(tmp_path / "absent.yaml")
    with pytest.raises(NotFound):
        read_yaml(Path("a\0b"))


def c_load(text: str) -> Any:
    return yaml.load(text, Loader=yaml.CSafeLoader)


# What PyYAML reads and we read otherwise, on purpose: dates, base 60, exponents without a point or sign,
# a signed number without a first digit, and two words that it cannot construct at all.
_WORDS = [
    *[
        "a",
        "B-c",
        "yes",
        "off",
        "null",
        "~",
        "0",
        "-17",
        "010",
        "0x1f",
        "0b11",
        "1_0",
        "1.5",
        "1.e+1",
        ".5",
        "08",
    ],
    *["+.inf", "1.2.3", "é", "日本", "\U0001f600", "x y", "a:b", "a#b", "-x", "?x", "https://h/p?q=1", ""],
]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12).filter(
    lambda text: text[:1] not in tuple("+-.0123456789")  # numbers are in _WORDS
)
KEYS = st.one_of(TEXT, st.sampled_from(["lr", "model.name", "a b", "é", "#", "{", "-", "x" * 40]))
TREES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT, st.sampled_from(_WORDS)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=20,
)


@hypothesis_settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(
    tree=TREES,
    flow=st.sampled_from([None, True, False]),
    unicode=st.booleans(),
    width=st.sampled_from([20, 999]),
)
def test_what_pyyaml_writes_we_read_back(tree: Any, flow: bool | None, unicode: bool, width: int) -> None:
    text = yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=unicode, width=width, sort_keys=False)
    document = parse_yaml(text)
    assert not document.findings
    assert document.data == c_load(text)


_PARTS = st.sampled_from([
    *_WORDS[:-1], "[1, two, 'three']", "{p: 1, q: [x]}", '"\\u00e9\\n"', "!!str 5", "'it''s'",
    "|\n      a\n      b", ">-\n      folded\n      text", "plain that goes\n      on",
])  # fmt: skip
_NAMES = st.sampled_from(["lr{}", "'quoted{}'", '"double{}"', "dotted.key{}", "with space {}", "{}th"])


@st.composite
def hand_written(draw: st.DrawFn, depth: int = 0) -> str:
    """Block YAML with anchors, quotes and comments, as a person might leave it."""
    rows = []
    for number in range(draw(st.integers(1, 4))):
        key = "  " * depth + draw(_NAMES).format(number)
        if depth < 2 and draw(st.booleans()):
            rows.append(f"{key}:  # nested\n{draw(hand_written(depth=depth + 1))}")
        else:
            rows.append(f"{key}: {draw(_PARTS)}\n")
    return "".join(rows)


@hypothesis_settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(text=hand_written())
def test_what_people_write_is_read_as_pyyaml_reads_it(text: str) -> None:
    document = parse_yaml(text)
    assert not document.findings
    assert document.data == c_load(text)


@hypothesis_settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
@given(text=st.one_of(st.text(max_size=80), st.text("ab:- {}[]&*!|>'\"#%@`?,\n\t0", max_size=60)))
def test_no_text_breaks_the_reader(text: str) -> None:
    document = parse_yaml(text)
    for finding in document.findings:
        assert finding.code.startswith("yaml-")
    try:
        expected = c_load(text)
    except Exception:  # PyYAML refuses: a date that is none, a key that cannot be one, no YAML
        return
    if not document.findings:
        assert agrees(document.data, expected)


def agrees(ours: Any, theirs: Any) -> bool:
    """Whether two readings differ at most in what is listed above."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(agrees(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(agrees, ours, theirs))
    if isinstance(theirs, str) and isinstance(ours, float):
        return float(theirs.replace("_", "")) == ours  # 1e5
    if isinstance(ours, str) and isinstance(theirs, datetime.date | float | int):
        return ":" in ours or "-" in ours  # a date, base 60
    return type(ours) is type(theirs) and (ours == theirs or ours != ours)
