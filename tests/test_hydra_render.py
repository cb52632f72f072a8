"""A configuration becomes overrides that real Hydra composes back to exactly that configuration."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st
from tuneport.checks.rules import nested
from tuneport.dialects.hydra.compose import compose
from tuneport.dialects.hydra.defaults import Choices, ComposeError
from tuneport.dialects.hydra.quote import is_path
from tuneport.dialects.hydra.render import equal, render_overrides
from tuneport.errors import Invalid
from tuneport.fleets.refs import filled
from tuneport.types import Composed, Context, Method, Origin, Ref, Release, Request, Topology
from tuneport.upstream.hydra_tree import read_folder

sys.path.insert(0, str(Path(__file__).parent))
from hydra_reference import Reference, same, value

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
EXAMPLES = 5_000 if LONG else 100
FILES = {
    "main.yaml": """
defaults:
  - engine: small
  - optim@trainer.optim: adam
  - part@: one
  - optional nothing: here
  - _self_
trainer:
  steps: 10
  lr: 1.0e-3
  name: run
  nothing: null
  logger: [console]
  extra: {}
  deep: {a: {b: 1}}
  link: ${trainer.name}/out
  way: ${trainer.deep}
must: ???
""",
    "other.yaml": """
defaults:
  - main
  - override engine: large
  - _self_
trainer:
  steps: 20
""",
    "engine/small.yaml": "# @package _global_\nengine: small\nsize: 1\n",
    "engine/large.yaml": "# @package _global_\nengine: large\nsize: 100\nsharded: true\n",
    "optim/adam.yaml": "defaults:\n  - ../base@base: plain\nbetas: [0.9, 0.999]\nkind: adam\n",
    "optim/sgd.yaml": "kind: sgd\nmomentum: 0.9\n",
    "base/plain.yaml": "eps: 1.0e-8\n",
    "part/one.yaml": "part_key: 1\n",
    "part/two.yaml": "# @package trainer\npart_key: 2\n",
}
KEYS = [
    "trainer.way.a.b",
    "trainer.way.x",
    "trainer.steps",
    "trainer.lr",
    "trainer.name",
    "trainer.nothing",
    "trainer.logger",
    "trainer.extra",
]
KEYS += [
    "trainer.deep.a.b",
    "must",
    "size",
    "trainer.optim.betas",
    "trainer.new",
    "trainer.extra2.sub",
    "fresh",
]
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
    st.text("\\'\"${}[](),:= \t\n#a1.?-é", max_size=8),
    st.sampled_from(["", "null", "1", "${a}", "1e-3", "a,b", "run", "-x"]),
)
SCALAR = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT)
NAME = st.sampled_from(["a", "b", "x-y", "k1", "a.b", "with blank", "q:r"])
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAME, inner, max_size=3)),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for name, text in FILES.items():
        path = root / "conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return root


@pytest.fixture(scope="module")
def hydra() -> Iterator[Reference]:
    process = Reference()
    yield process
    process.close()


def surface(tree: Path) -> dict[str, Any]:
    return {"files": dict(read_folder(tree, "conf")), "classes": {}}


def context(
    tree: Path, own: Mapping[str, Any], layer: str = "request", chosen: Mapping[str, str] | None = None
) -> Context:
    made = compose(surface(tree), {"config": "main", "path": ["conf"]}, Choices(chosen or {}))
    composed = Composed("hydra", chosen or {}, made.groups)
    return Context(
        method=Method("acme/tune", "acme", "", {}, {}, ""),
        release=Release("acme", "1", {}, made.keys, composed),
        request=Request(),
        topology=Topology(()),
        facts={},
        config={},
        own=own,
        origins=dict.fromkeys(own, Origin(layer)),
        files={},
    )


@pytest.mark.upstream
def test_hydra_composes_back_what_was_rendered(hydra: Reference, tree: Path) -> None:
    seen = {"said": 0, "refused": 0}

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )
    @given(
        st.dictionaries(st.sampled_from(KEYS), VALUE, max_size=5), st.sampled_from([{}, {"engine": "large"}])
    )
    @example({"trainer.extra": {"a": {"b": 1}, "with blank": [1]}, "trainer.nothing": {"k": "${x}"}}, {})
    @example({"trainer.deep.a.b": {"c": 1}, "must": "-", "trainer.new": {}}, {"engine": "large"})
    def back(own: dict[str, Any], chosen: dict[str, str]) -> None:
        assume(not any("???" in repr(item) for item in own.values()))
        made = context(tree, own, chosen=chosen)
        try:
            words = render_overrides({}, made).argv
        except Invalid:
            seen["refused"] += 1
            return
        seen["said"] += 1
        folder = str(tree / "conf")
        got = hydra.ask("compose", folder=folder, config="main", overrides=words, resolve=True)
        assert got is not None, f"{words}: {hydra.reason}"
        keys = made.release.keys
        defaults = {n: "???" if k.required else k.default for n, k in keys.items()}
        if any(name.startswith("trainer.way.") for name in own):
            del defaults["trainer.way"]
        expected = nested({**defaults, **own})
        arrived = value(got)
        del arrived["trainer"]["link"], expected["trainer"]["link"]
        if not any(name.startswith("trainer.way") for name in own):
            expected["trainer"]["way"] = expected["trainer"]["deep"]
        assert same_tree(arrived, expected), f"{words}: {arrived} is not {expected}"

    back()
    assert seen["said"] > EXAMPLES * 0.5, seen


def same_tree(left: Any, right: Any) -> bool:
    """Equal, of equal types, whatever the order of keys."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_tree(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_tree, left, right))
    return same(left, right)


def test_only_what_differs_is_said(tree: Path) -> None:
    own = {"trainer.steps": 10, "trainer.lr": 0.001, "trainer.name": "run", "trainer.logger": ["console"]}
    assert render_overrides({}, context(tree, own)).argv == ()
    own = {"trainer.steps": 10.0, "trainer.extra": {"a": 1}, "trainer.nothing": {"a": 1}, "size": None}
    assert render_overrides({}, context(tree, own, chosen={"optim@trainer.optim": "sgd"})).argv == (
        "optim@trainer.optim=sgd",
        "size=null",
        "+trainer.extra.a=1",
        "trainer.nothing={a:1}",
        "trainer.steps=10.0",
    )


def test_interpolation_is_kept_where_its_author_writes_the_native_language(tree: Path) -> None:
    own = {"trainer.name": "${size}"}
    assert render_overrides({}, context(tree, own, "config.yaml")).argv == ("trainer.name='${size}'",)
    assert render_overrides({}, context(tree, own, "--set")).argv == ("trainer.name='\\${size}'",)


def test_a_reference_becomes_the_word(tree: Path) -> None:
    own = {"trainer.name": Ref("output_dir", "/a'b"), "trainer.extra": {"dir": [Ref("dataset", "", "o/n@v")]}}
    first, second = render_overrides({}, context(tree, own)).argv
    assert first == Ref("dataset", "']", "o/n@v", "+trainer.extra.dir=['", plain=True)
    assert second == Ref("output_dir", "/a\\'b'", "", "trainer.name='", plain=True)
    assert isinstance(second, Ref)
    assert filled(second, "/jobs/run 1/out") == "trainer.name='/jobs/run 1/out/a\\'b'"
    for path in ("/it's", "/back\\slash", "/$HOME", "/two\nlines", '/q"uote', "/${x}"):
        with pytest.raises(Invalid):
            filled(second, path)
    two = {"trainer.logger": [Ref("output_dir"), Ref("log_dir")]}
    with pytest.raises(Invalid):
        render_overrides({}, context(tree, two))


@pytest.mark.upstream
def test_every_choice_of_a_small_tree_composes_as_in_hydra(hydra: Reference, tree: Path) -> None:
    cases: list[tuple[str, dict[str, str]]] = [("main", {}), ("other", {}), ("other", {"engine": "small"})]
    cases += [("main", {"engine": "large"}), ("main", {"optim@trainer.optim": "sgd"})]
    cases += [("main", {"part@_global_": "two"}), ("main", {"engine": "none"}), ("main", {"optim": "sgd"})]
    for config, chosen in cases:
        words = [f"{key}={option}" for key, option in chosen.items()]
        real = hydra.ask("compose", folder=str(tree / "conf"), config=config, overrides=words)
        try:
            made = compose(surface(tree), {"config": config, "path": ["conf"]}, Choices(chosen))
        except ComposeError as error:
            assert real is None, f"{config} {words}: we say {error.message}"
            continue
        assert real is not None, f"{config} {words}: {hydra.reason}"
        ours = {name: "???" if key.required else key.default for name, key in made.keys.items()}
        assert equal(ours, {name: value(item) for name, item in real}), f"{config} {words}"


def test_keys_of_the_property_are_keys() -> None:
    assert all(map(is_path, KEYS))
