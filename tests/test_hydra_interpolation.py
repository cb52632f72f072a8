"""Interpolations resolve as OmegaConf resolves them: random configurations, every key compared."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from tuneport.dialects.hydra.grammar import GrammarError, parse_text
from tuneport.dialects.hydra.interpolate import Resolver, Unresolved, resolved

sys.path.insert(0, str(Path(__file__).parent))
from hydra_reference import Reference, same, value

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
EXAMPLES = 20_000 if LONG else 400
PROFILE = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)
ENV = {"TP_A": "seven", "TP_N": "7", "TP_E": ""}
NAMES = ("a", "b", "c", "d")
PATHS = [
    "a",
    "b",
    "c.a",
    "c.b",
    "d.c.a",
    "d.b",
    ".a",
    ".b",
    "..a",
    "..b",
    "...a",
    "c",
    "d",
    "d.l",
    "d.l[0]",
    "d.l.1",
]
PATHS += ["nope", "c.nope", ".nope", "c[a]", "[c].b", "a.b", "${b}", "c.${a}", "${c}"]
PIECES = [f"${{{path}}}" for path in PATHS] + [
    "${oc.env:TP_A}",
    "${oc.env:TP_X}",
    "${oc.env:TP_X,dflt}",
    "${oc.env:TP_X,null}",
    "${oc.env:TP_X,3}",
    "${oc.env:${a},'q ${b}'}",
    "${oc.select:a}",
    "${oc.select:nope}",
    "${oc.select:nope,5}",
    "${oc.select:nope, null}",
    "${oc.select:nope,[1,x,'y z']}",
    "${oc.select:nope,{k: 1.5}}",
    "${oc.select:nope,${b}}",
    "${oc.select:.a,none}",
    "${oc.select:..a,2}",
    "${oc.select:m,2}",
    "${oc.select:c.a.b,2}",
    "${oc.select:d.c,2}",
    "${oc.select:${a},x y}",
    "${oc.decode:${oc.env:TP_N}}",
    "${oc.decode:'[1, 2]'}",
    "${oc.decode:null}",
    "${oc.create:[1]}",
    "${unknown:x}",
    "${m}",
    "\\${a}",
    "\\\\${a}",
    "\\\\\\${a}",
    "\\",
    "x",
    " ",
    "$",
    "}",
    "{",
    "'",
    "${",
    "${}",
    "${ a }",
    "${a:}",
    "${oc.env:,}",
    "${oc.env:}",
    "${a b}",
    "${a${b}}",
    "${oc.select: nope , true }",
    "${oc.select:nope,1_0}",
    "${oc.select:nope,a\\,b}",
    "${oc.select:nope,a: b}",
    '${oc.select:nope,"it\'s"}',
    "${oc.select:nope,'it\\'s \\${b} \\\\'}",
]
TEXT = st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map("".join)
PLAIN = st.sampled_from(["a", "b", "c", "c.a", 0, 1, 2.5, True, None, "", "???"])
SCALAR = st.one_of(PLAIN, st.sampled_from(PIECES), TEXT)
BRANCH = st.dictionaries(st.sampled_from(NAMES), SCALAR, max_size=3)
CONFIG = st.fixed_dictionaries(
    {
        "a": SCALAR,
        "b": SCALAR,
        "c": BRANCH,
        "d": st.fixed_dictionaries(
            {"b": SCALAR, "c": BRANCH, "l": st.lists(SCALAR, max_size=3)}, optional={"a": SCALAR}
        ),
        "m": st.just("???"),
    }
)
KEYS = ["a", "b", "c.a", "c.b", "c.d", "d.a", "d.b", "d.c.a", "d.c.b", "d.l", "c", "d.c"]


@pytest.fixture(scope="module")
def omegaconf() -> Iterator[Reference]:
    process = Reference()
    yield process
    process.close()


@pytest.mark.upstream
def test_every_key_resolves_as_omegaconf_resolves_it(omegaconf: Reference) -> None:
    seen = {"value": 0, "error": 0, "refused": 0}

    @PROFILE
    @given(CONFIG)
    @example(
        {
            "a": "${c.b}",
            "b": 1,
            "c": {"b": "${..b}"},
            "d": {"b": "${oc.select:d.c,null}", "c": {"a": "${..b}"}},
        }
    )
    @example({"a": "x", "b": "${d.l}", "d": {"b": "${a}${oc.select:nope,${b}}", "l": ["${b}"]}})
    @example({"a": "x", "d": {"a": "${a.b}", "b": "${oc.select:.a,none}"}})
    @example({"a": "x", "b": "${d.l}", "d": {"b": "${oc.env:NOPE,${b}}", "l": ["${a}"]}})
    def agrees(config: dict[str, Any]) -> None:
        keys = [key for key in KEYS if is_there(config, key)]
        answer = omegaconf.ask("resolve", config=config, keys=keys, env=ENV)
        if answer is None:
            assert any(map(malformed, texts(config))), f"{config}: {omegaconf.reason}"
            seen["refused"] += 1
            return
        assert not any(map(malformed, texts(config))), f"{config} is read by OmegaConf"
        resolver = Resolver(config, ENV)
        for key in keys:
            try:
                ours = {"value": resolver.select(key)}
            except Unresolved as reason:
                ours = {"error": str(reason)}
            theirs = answer[key]
            assert ours.keys() == theirs.keys(), f"{key} of {config}: {ours}, {theirs}"
            kind = next(iter(ours))
            seen[kind] += 1
            if kind == "value":
                assert same(ours["value"], value(theirs["value"])), f"{key} of {config}: {ours}, {theirs}"

    agrees()
    assert min(seen.values()) > EXAMPLES * 0.1, seen


def texts(item: Any) -> Iterator[str]:
    for inner in item.values() if isinstance(item, dict) else item:
        if isinstance(inner, dict | list):
            yield from texts(inner)
        elif isinstance(inner, str) and "${" in inner:
            yield inner


def malformed(text: str) -> bool:
    try:
        parse_text(text)
    except GrammarError:
        return True
    return False


def is_there(config: Mapping[str, Any], key: str) -> bool:
    here: Any = config
    for part in key.split("."):
        if not isinstance(here, Mapping) or part not in here:
            return False
        here = here[part]
    return True


def test_unknown_things_are_left_out_and_literal_text_stays() -> None:
    flat = {
        "a.b": "${oc.env:SOME_VARIABLE}",
        "a.c": "${a.b}",
        "a.d": "${.e}/x",
        "a.e": "here",
        "a.f": "${a.d}",
        "a.g": "costs ${5}",
        "a.h": "${a.g}",
        "a.i": "${hydra:runtime.cwd}",
        "a.j": {"k": "${a.e}"},
    }
    found = resolved(flat, literal={"a.g"})
    assert found == {
        "a.d": "here/x",
        "a.e": "here",
        "a.f": "here/x",
        "a.g": "costs ${5}",
        "a.h": "costs ${5}",
        "a.j": {"k": "here"},
    }
    assert resolved(flat, {"a.g"}, {"SOME_VARIABLE": "v"})["a.c"] == "v"


@pytest.mark.parametrize(
    "text", ["${a}", "${b}", "${c.a}", "${" * 2000, "${oc.select:a,${a}}", "${a" + "[a" * 999]
)
def test_circles_and_depth_are_refused(text: str) -> None:
    tree = {"a": text, "b": "${a}", "c": {"a": "${b}"}}
    with pytest.raises(Unresolved):
        Resolver(tree).select("a")
