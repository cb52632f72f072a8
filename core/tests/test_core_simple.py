"""Comparisons that are decided without the CEL engine, against the engine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuneport.checks import simple
from tuneport.checks.cel import Rules, Undecided
from tuneport.registry import catalog
from tuneport.types import Ref

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    8,
    2**53,
    2**70,
    0.0,
    0.5,
    1.0,
    float("inf"),
    "",
    "adam",
    "8",
    "true",
    [],
    ["adam"],
    {},
    {"x": 1},
    Ref("output_dir"),
]
LITERALS = ["null", "true", "false", "0", "1", "-1", "8", "0.5", "1.0", "''", "'adam'", '"8"']


def plain() -> st.SearchStrategy[str]:
    path = st.sampled_from(["cfg.a", "cfg.b.c", "topology.gpus", "request.image", "cfg.absent"])
    bare = st.builds("{}{}".format, st.sampled_from(["", "!"]), path)
    compared = st.builds(
        "{} {} {}".format,
        path,
        st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
        st.sampled_from(LITERALS),
    )
    listed = st.builds("{} in ['adam', \"8\"]".format, path)
    return st.one_of(bare, compared, listed)


def asked(source: str, variables: dict[str, Any]) -> tuple[bool | None, bool | None]:
    """(what is decided without the engine, what the engine says; None where it cannot)."""
    try:
        engine = Rules(variables)._evaluated(source)
    except Undecided:
        engine = None
    return simple.decided(simple.split(source), Rules(variables)._given), engine


@given(
    st.lists(plain(), min_size=1, max_size=4),
    st.sampled_from(VALUES),
    st.sampled_from(VALUES),
    st.sampled_from(VALUES),
)
def test_a_decision_is_the_engines(parts: list[str], a: Any, c: Any, gpus: Any) -> None:
    source = " && ".join(parts)
    variables = {"cfg": {"a": a, "b": {"c": c}}, "topology": {"gpus": gpus}, "request": {"image": "adam"}}
    decided, engine = asked(source, variables)
    # A comparison that fails settles the whole, also where the engine stops at one that it cannot make.
    assert decided is None or decided == engine or (decided is False and engine is None)


@pytest.mark.parametrize(
    "source",
    [
        "cfg.a == 'x' || cfg.b",
        "cfg.a ? true : false",
        "cfg.a == cfg.b",
        "!cfg.a == true",
        "cfg['a'] == 1",
        "cfg.a == 'it\\'s'",
        "has(cfg.a)",
        "'x' in own",
        "cfg.a in [1, 2]",
        "cfg.a.all(one, one == 1)",
    ],
)
def test_what_is_not_plain_is_left_to_the_engine(source: str) -> None:
    assert simple.decided(simple.split(source), {"cfg": {"a": 1, "b": True}}) is None


def test_text_that_looks_like_an_operator_parts_nothing() -> None:
    assert simple.decided(simple.split("cfg.a == 'x && y || z'"), {"cfg": {"a": "x && y || z"}}) is True
    brackets = simple.split("cfg.a == 'x' && cfg.b == ']'")
    assert simple.decided(brackets, {"cfg": {"a": "x", "b": "("}}) is False


def test_shipped_expressions_are_decided_as_the_engine_decides_them() -> None:
    """Each expression of each shipped rule, with values that make its comparisons true, false and odd."""
    count = 0
    for framework in catalog.frameworks():
        for source in sorted(_expressions(framework)):
            comparisons = simple.split(source)
            if comparisons is None:
                continue
            for number in range(4):
                variables: dict[str, Any] = {}
                for place, comparison in enumerate(comparisons):
                    if comparison:
                        _put(variables, comparison[1], _value(comparison[3], number + place))
                decided, engine = asked(source, variables)
                assert decided is None or decided == engine or (decided is False and engine is None), source
                count += decided is not None
    assert count > 1000


def _expressions(framework: str) -> set[str]:
    found = set()
    for topic in catalog._index(framework)["rules"].values():
        for rule in (*topic["doc"].get("rules", ()), *topic["doc"].get("inert", ())):
            found |= {rule[part] for part in ("when", "require", "unless") if part in rule}
    return found


def _value(literal: Any, number: int) -> Any:
    like = literal[0] if isinstance(literal, list) else literal
    return [like, not like if isinstance(like, bool) else f"{like}x", None, 3][number % 4]


def _put(variables: dict[str, Any], path: list[str], value: Any) -> None:
    here = variables
    for part in path[:-1]:
        below = here.setdefault(part, {})
        if not isinstance(below, dict):
            return
        here = below
    here[path[-1]] = value
