"""Expressions that are decided without the CEL engine, against the engine."""

from __future__ import annotations

import copy
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuneport.checks import simple
from tuneport.checks.cel import VARIABLES, Rules, Undecided
from tuneport.checks.simple_syntax import read
from tuneport.registry import catalog
from tuneport.types import Ref

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    3,
    8,
    2**53,
    -(2**63),
    2**70,
    0.0,
    0.5,
    1.0,
    -7.5,
    float("inf"),
    float("nan"),
    "",
    "adam",
    "adam/8",
    "8",
    "true",
    [],
    ["adam"],
    [1, None, "8"],
    {},
    {"c": 1},
    {"c": {"d": "adam"}},
    Ref("output_dir"),
]
UNDECIDED = "undecided"


def value(nodes: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Expressions that come to a value of any kind."""
    return st.one_of(
        st.builds("({} {} {})".format, nodes, st.sampled_from(["+", "-", "*", "/", "%"]), nodes),
        st.builds("{}({})".format, st.sampled_from(["size", "double", "int"]), nodes),
        st.builds("({} ? {} : {})".format, truth(nodes), nodes, nodes),
        st.builds("[{}, {}]".format, nodes, nodes),
    )


def truth(nodes: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Expressions that come to true or false, unless they cannot be evaluated."""
    relation = st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in"])
    kind = st.sampled_from(["list", "string", "int", "double", "bool", "map", "null_type"])
    asked = st.sampled_from(["startsWith", "endsWith", "contains"])
    return st.one_of(
        st.builds("{} {} {}".format, nodes, relation, nodes),
        st.builds("type({}) == {}".format, nodes, kind),
        st.builds("{}.{}({})".format, paths(), asked, st.sampled_from(["'ad'", "'8'", "1", "cfg.a"])),
        st.builds("has({})".format, st.sampled_from(["cfg.a", "cfg.b.c", "cfg.absent", "cfg.absent.x"])),
        st.builds("{}.{}(one, one {} {})".format, nodes, st.sampled_from(["all", "exists"]), relation, nodes),
    )


def paths() -> st.SearchStrategy[str]:
    return st.sampled_from(["cfg.a", "cfg.b.c", "topology.gpus", "request.image", "cfg.absent", "cfg.a.c"])


def expressions() -> st.SearchStrategy[str]:
    literals = st.sampled_from(
        [
            "null",
            "true",
            "false",
            "0",
            "1",
            "-1",
            "8",
            "0.5",
            "1.0",
            "''",
            "'adam'",
            '"8"',
            "[]",
            "[1, 'adam']",
        ]
    )
    nodes = st.recursive(st.one_of(paths(), literals), value, max_leaves=4)
    return st.recursive(
        st.one_of(truth(nodes), paths()),
        lambda inner: st.one_of(
            st.builds("{} {} {}".format, inner, st.sampled_from(["&&", "||"]), inner),
            st.builds("!({})".format, inner),
            st.builds("({})".format, inner),
        ),
        max_leaves=5,
    )


def asked(source: str, variables: dict[str, Any]) -> tuple[Any, Any]:
    """(what is decided without the engine, what the engine says); `UNDECIDED` where neither is possible."""
    rules = Rules(variables)
    said = simple.decided(read(source), rules._given)
    if isinstance(said, simple.Missing):
        said = UNDECIDED
    try:
        return said, rules._evaluated(source)
    except Undecided:
        return said, UNDECIDED


def agree(said: Any, engine: Any) -> bool:
    return (
        engine is said or (said == engine == UNDECIDED) or not (isinstance(said, bool) or said == UNDECIDED)
    )


@given(expressions(), st.sampled_from(VALUES), st.sampled_from(VALUES), st.sampled_from(VALUES))
def test_a_decision_is_the_engines(source: str, a: Any, c: Any, gpus: Any) -> None:
    variables = {"cfg": {"a": a, "b": {"c": c}}, "topology": {"gpus": gpus}, "request": {"image": "adam"}}
    said, engine = asked(source, variables)
    assert agree(said, engine), (said, engine)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("cfg.a == 'x' || cfg.b", True),
        ("cfg.n ? true : false", simple.OPEN),
        ("cfg.a == cfg.c", False),
        ("1 + 2 * 3 == 7 && -1 < 0 && !(cfg.a == 2)", True),
        ("(cfg.a + 3) % 2 == 0 && 7 / 2 == 3", True),
        ("has(cfg.a) && !has(cfg.z)", True),
        ("has(cfg.z.y)", simple.Missing("z")),
        ("cfg.z.y > 1 || cfg.b", True),
        ("cfg.b && cfg.z", simple.Missing("z")),
        ("'x' in own", True),
        ("cfg.a in [1, 2] && !(cfg.a in ['1'])", True),
        ("own.all(one, one.startsWith('x') && size(one) == 1)", True),
        ("type(own) == list && type(cfg.b) != list", True),
        ("cfg.a == 'x && y || z'", False),
    ],
)
def test_what_it_can_decide(source: str, expected: Any) -> None:
    given_ = {"cfg": {"a": 1, "b": True, "c": 2, "n": 1}, "own": ["x"]}
    assert simple.decided(read(source), given_) == expected


@pytest.mark.parametrize(
    "source",
    [
        "cfg['a'] == 1",
        r"cfg.a == 'it\'s'",
        "cfg.a.matches('x')",
        "string(cfg.a) == '1'",
        "cfg.a == 1u",
        "cfg.a == {}",
        "r'x' == cfg.a",
        "cfg.a == 1e3",
        "cfg.a ==",
        "type(cfg.a) == 'int'",
        "-7 / 2 == -3",
        "7 % cfg.zero == 0",
        "cfg.most + 1 > 0",
    ],
)
def test_what_it_cannot_is_the_engines(source: str) -> None:
    assert simple.decided(read(source), {"cfg": {"a": 1, "zero": 0, "most": 2**63 - 1}}) is simple.OPEN


def test_shipped_expressions_are_decided_as_the_engine_decides_them() -> None:
    """Each expression of each shipped rule, with values that make its comparisons true, false and odd."""
    draw = random.Random(20261130)
    count = 0
    for framework in catalog.frameworks():
        for source in sorted(_expressions(framework)):
            likely = [*_literals(source), *VALUES]
            for _ in range(4):
                variables: dict[str, Any] = {}
                for path in sorted(set(re.findall(r"\b(?:\w+\.)+\w+\b(?!\()", source))):
                    if draw.random() < 0.9:
                        _put(variables, path.split("."), copy.deepcopy(draw.choice(likely)))
                said, engine = asked(source, variables)
                assert agree(said, engine), (source, variables, said, engine)
                count += isinstance(said, bool)
    assert count > 1000


def _expressions(framework: str) -> set[str]:
    found = set()
    for topic in catalog.index_of(framework)["rules"].values():
        for rule in (*topic["doc"].get("rules", ()), *topic["doc"].get("inert", ())):
            found |= {rule[part] for part in ("when", "require", "unless") if part in rule}
    return found


def _literals(source: str) -> list[Any]:
    """What an expression compares with, several times over: what else there is seldom makes it true."""
    texts = [first or second for first, second in re.findall(r"""'([^'\\]*)'|"([^"\\]*)\"""", source)]
    numbers = [int(word) for word in re.findall(r"(?<![\w.])\d+(?![\w.])", source)]
    return [*texts, *numbers, True, False, None, texts] * 3


def _put(variables: dict[str, Any], path: list[str], item: Any) -> None:
    here = variables
    for part in path[:-1] if path[0] in VARIABLES else ():
        below = here.setdefault(part, {})
        if not isinstance(below, dict):
            return
        here = below
    here[path[-1]] = item
