"""An argument list means to us what it means to Hydra: the same words are refused, the rest arrive alike."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from tuneport.checks.rules import nested
from tuneport.dialects.hydra.compose import compose
from tuneport.dialects.hydra.defaults import Choices, ComposeError, Tree
from tuneport.dialects.hydra.read import Applied, apply, choices, take_apart
from tuneport.dialects.hydra.surface import choices_of
from tuneport.upstream.hydra_tree import read_folder

sys.path.insert(0, str(Path(__file__).parent))
from hydra_reference import Reference, same, value

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
EXAMPLES = 3_000 if LONG else 120
FILES = {
    "main.yaml": """
defaults:
  - engine: small
  - optim@trainer.optim: adam
  - _self_
trainer: {steps: 10, name: run, nothing: null, logger: [console], extra: {}, deep: {a: {b: 1}}}
link: ${trainer.deep}
must: ???
""",
    "engine/small.yaml": "# @package _global_\nengine: small\nsize: 1\n",
    "engine/large.yaml": "# @package _global_\nengine: large\nsize: 100\nsharded: true\n",
    "optim/adam.yaml": "betas: [0.9, 0.999]\nkind: adam\n",
    "optim/sgd.yaml": "kind: sgd\nmomentum: 0.9\n",
}
KEYS = [
    "trainer.steps",
    "trainer.name",
    "trainer.nothing",
    "trainer.nothing.x",
    "trainer.logger",
    "trainer.logger.0",
]
KEYS += [
    "trainer.logger.3",
    "trainer.extra",
    "trainer.extra.x",
    "trainer.deep",
    "trainer.deep.a",
    "trainer.deep.a.b",
]
KEYS += [
    "trainer.deep.a.c",
    "trainer.new",
    "trainer.new.sub",
    "must",
    "must.x",
    "size",
    "sharded",
    "trainer",
    "fresh",
]
KEYS += ["link", "link.a.b", "link.x", "link.a.c", "trainer.deep.x"]
KEYS += ["trainer.optim.kind", "trainer.optim.momentum", "trainer.steps.x", "nope.x.y", "trainer.optim"]
VALUES = [
    "1",
    "x",
    "null",
    "[a,b]",
    "{}",
    "{x: 1}",
    "{a: {b: 2}}",
    "{a: {c: 3}}",
    "'it''s'",
    "a,b",
    "[",
    "'q'",
    "2.5",
]
CHOICES = [
    "engine=large",
    "engine=small",
    "optim@trainer.optim=sgd",
    "optim=sgd",
    "+optim=sgd",
    "~engine",
    "engine=no",
]
CHOICES += [
    "+optim@other=adam",
    "~optim@trainer.optim",
    "~optim@trainer.optim=sgd",
    "engine@x=large",
    "a@b=1",
]
WORD = st.one_of(
    st.builds(
        lambda s, k, v: f"{s}{k}={v}",
        st.sampled_from(["", "", "+", "++"]),
        st.sampled_from(KEYS),
        st.sampled_from(VALUES),
    ),
    st.builds(lambda k: f"~{k}", st.sampled_from(KEYS)),
    st.sampled_from(CHOICES),
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


def read(tree: Path, words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """(messages of errors, the configuration that results) as we see it."""
    surface = {"files": dict(read_folder(tree, "conf")), "classes": {}}
    parsed = take_apart(words)
    files = Tree(surface["files"], ["conf"])
    chosen, overrides, findings = choices(parsed, files)
    findings = [*parsed.findings, *findings]
    try:
        made = compose(surface, {"config": "main", "path": ["conf"]}, choices_of(files, chosen))
    except ComposeError as error:
        return [error.message], {}
    applied = apply(overrides, made.keys)
    findings += applied.findings
    defaults = {name: "???" if key.required else key.default for name, key in made.keys.items()}
    return [f.message for f in findings if f.severity == "error"], result(defaults, applied)


def result(defaults: dict[str, Any], applied: Applied) -> dict[str, Any]:
    kept = dict(defaults)
    for gone in applied.deleted:
        kept = {name: item for name, item in kept.items() if name != gone and not name.startswith(gone + ".")}
    for name in applied.own:
        while "." in name:
            name = name.rpartition(".")[0]
            if name in kept and not isinstance(kept[name], dict):
                del kept[name]
    return nested({**kept, **applied.own})


@pytest.mark.upstream
def test_words_are_refused_or_arrive_as_in_hydra(hydra: Reference, tree: Path) -> None:
    seen = {"accepted": 0, "refused": 0}

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )
    @given(st.lists(WORD, min_size=1, max_size=3))
    @example(["trainer.steps=1", "trainer.steps=2"])
    @example(["+trainer.steps=1"])
    @example(["+trainer.nothing=1"])
    @example(["+trainer.extra.x=1", "trainer.extra.x=2"])
    @example(["++trainer.new.sub=1", "~trainer.deep"])
    @example(["engine=large", "sharded=false"])
    @example(["+link.x=1"])
    @example(["++link.x=1", "+link.y=1"])
    @example(["+trainer.deep.x=1", "+link.x=1"])
    @example(["link.a.b=1"])
    @example(["++link.a.b=1", "~link.a.b"])
    @example(["++link.a.b=1", "++link.a.c=2", "~link.a.b"])
    @example(["++link.a.b=1", "~link.a.b", "+link.a.b=3"])
    @example(["++link.a.b=1", "~link.a"])
    @example(["trainer.steps=1", "trainer={}"])
    @example(["trainer.steps=1", "trainer=5"])
    @example(["trainer.steps=1", "trainer.deep={}"])
    @example(["trainer.deep.a.b=2", "trainer.deep.a={}"])
    @example(["trainer.steps=1", "+trainer.steps.x=1"])
    @example(["+trainer.steps.x=1", "trainer.steps=1"])
    @example(["+trainer.steps={x: 1}", "+trainer.steps.y=1"])
    @example(["++trainer.steps.x.y=1", "trainer.steps={x: 2}"])
    def agrees(words: list[str]) -> None:
        real = hydra.ask("compose", folder=str(tree / "conf"), config="main", overrides=words, tree=True)
        errors, ours = read(tree, words)
        assert bool(errors) == (real is None), f"{words}: we say {errors}; Hydra: {hydra.reason}"
        seen["refused" if errors else "accepted"] += 1
        if not errors:
            assert same_tree(prune(ours), prune(value(real))), f"{words}: {ours}, {value(real)}"

    agrees()
    assert min(seen.values()) > EXAMPLES * 0.1, seen


def prune(item: Any) -> Any:
    """Without empty mappings: whether one is left behind after a deletion matters to nobody."""
    if isinstance(item, dict):
        kept = {key: prune(below) for key, below in item.items()}
        return {key: below for key, below in kept.items() if below != {}}
    return item


def same_tree(left: Any, right: Any) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_tree(left[key], right[key]) for key in left)
    return same(left, right)


def test_flags_are_read_as_hydras_parser_reads_them() -> None:
    assert take_apart(["--config-name", "other.yaml", "a=1", "b=2"]).flags == {"config_name": "other.yaml"}
    assert [o.key for o in take_apart(["--config-name=x", "a=1", "b=2"]).overrides] == ["a", "b"]
    late = take_apart(["a=1", "--config-name", "x", "b=2"])
    assert [f.code for f in late.findings] == ["hydra-flag"]
    assert [f.code for f in take_apart(["-x", "a=1"]).findings] == ["hydra-flag"]


def test_what_is_said_names_the_key_and_the_way_out(tree: Path) -> None:
    def said(*words: str) -> list[tuple[str, str, str]]:
        surface = {"files": dict(read_folder(tree, "conf")), "classes": {}}
        made = compose(surface, {"config": "main", "path": ["conf"]}, Choices())
        return [(f.code, f.key, f.hint) for f in apply(take_apart(words).overrides, made.keys).findings]

    assert said("trainer.step=1") == [("key-unknown", "trainer.step", "did you mean `trainer.steps`?")]
    assert said("+trainer.steps=1") == [("key-exists", "trainer.steps", "write trainer.steps=… without +")]
    assert said("trainer.extra.x=1") == [("key-unknown", "trainer.extra.x", "write +trainer.extra.x=…")]
    assert said("trainer.steps=1", "trainer.steps=2")[0][0] == "key-repeated"
    assert said("trainer.name=a,b")[0][0] == "hydra-sweep"


def test_hydras_own_keys_are_left_alone(tree: Path) -> None:
    words = take_apart(["hydra.run.dir=.", "hydra/job_logging=disabled", "hydra.verbose=true"])
    chosen, overrides, findings = choices(words, Tree(dict(read_folder(tree, "conf")), ["conf"]))
    assert (chosen, overrides, findings) == ({}, [], [])
