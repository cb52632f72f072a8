"""Configurations that build on one another: what a release has of them, and what a user lays over them."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tuneport.checks.declared import accepted
from tuneport.dialects.hydra.chain import CONFIG, NO_FILE, chain_surface
from tuneport.errors import Invalid
from tuneport.experiment.overlays import Overlay, unroll
from tuneport.experiment.yamlread import read_yaml
from tuneport.upstream.chains import main

PROGRAM = """
import argparse, os
from pkg.train import MasterConfig, setup

raise SystemExit("this must never run")

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    args = parser.parse_args()
    if not args.config:
        args.config = os.path.join(os.path.dirname(__file__), "configs", "base.yaml")
"""
TRAIN = """
from typing import Any, Literal, NotRequired, TypedDict
from omegaconf import OmegaConf
from pydantic import BaseModel

OmegaConf.register_new_resolver("mul", lambda a, b: a * b)

class Off(TypedDict):
    enabled: Literal[False]

class On(TypedDict):
    enabled: Literal[True]
    size: int

class Policy(TypedDict):
    lr: float
    packing: On | Off
    extra: NotRequired[dict[str, Any]]

class MasterConfig(BaseModel, extra="forbid"):
    policy: Policy
    steps: int
    seed: int = 1

def setup(config):
    return config.policy["lr"], config.steps, config.policy["packing"]["enabled"]
"""
FILES = {
    "base.yaml": "policy:\n  lr: 0.1\n  unused: 3\n  packing: {enabled: false}\nsteps: ${mul:2, 3}\n",
    "longer.yaml": "defaults: base.yaml\nsteps: 10\npolicy: {packing: {enabled: true, size: 4}}\n",
    "other.yaml": "defaults: [base.yaml]\npolicy:\n  _override_: true\n  lr: 0.2\n",
    "notes.yaml": "anything: 1\n",
}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("tree")
    texts = {"programs/run.py": PROGRAM, "programs/tool.py": "print('no program')", "pkg/train.py": TRAIN}
    texts |= {f"programs/configs/{name}": text for name, text in FILES.items()} | {"pkg/__init__.py": ""}
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(textwrap.dedent(text), "utf-8")
    words = ["demo", "1", str(root), "--package", "pkg", "--programs", "programs", "--commit", "f" * 40]
    assert main([*words, "--out", str(root / "made.json")]) == 0
    made: dict[str, Any] = json.loads((root / "made.json").read_text("utf-8"))
    return made


def test_a_surface_holds_programs_files_and_classes(document: dict[str, Any]) -> None:
    assert set(document["entries"]) == {"programs.run"}
    assert set(document["files"]) == {f"programs/configs/{name}" for name in FILES if name != "notes.yaml"}
    assert document["entries"]["programs.run"]["config"] == "programs/configs/base.yaml"
    assert "unused" in document["entries"]["programs.run"]["unread"]
    assert "lr" not in document["entries"]["programs.run"]["unread"]
    assert document["resolvers"] == {"mul": "product"}
    assert document["classes"]["pkg.train.MasterConfig"]["closed"] is True


def compose(document: dict[str, Any], config: str = "") -> Any:
    values = {CONFIG: config} if config else {}
    return chain_surface(document, document["entries"]["programs.run"], values)


def test_the_last_file_wins_and_a_marked_section_replaces(document: dict[str, Any]) -> None:
    keys, composed = compose(document)
    assert keys["policy.lr"].default == 0.1 and keys["policy.lr"].types == ("float",)
    assert composed.closed == {""} and composed.chosen == {}
    longer, chosen = compose(document, "programs/configs/longer.yaml")
    assert longer["steps"].default == 10 and longer["policy.packing.size"].default == 4
    assert longer["policy.lr"].default == 0.1 and chosen.chosen[CONFIG].endswith("longer.yaml")
    other, _ = compose(document, "programs/configs/other.yaml")
    assert other["policy.lr"].default == 0.2 and "policy.unused" not in other
    assert "policy.packing" in composed.needed, "a class asks for it, whether it is there or not"
    nothing, bare = compose(document, NO_FILE)
    assert all(key.add for key in nothing.values()) and "steps" in bare.needed


def test_a_file_that_the_release_does_not_have_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as caught:
        compose(document, "programs/configs/none.yaml")
    assert caught.value.code == "config-unknown"


def test_files_in_a_circle_are_refused(document: dict[str, Any]) -> None:
    files = {"a.yaml": {"tree": {}, "defaults": ["b.yaml"]}, "b.yaml": {"tree": {}, "defaults": "a.yaml"}}
    with pytest.raises(Invalid) as caught:
        chain_surface(
            {**document, "files": files, " chains": {}},
            document["entries"]["programs.run"],
            {CONFIG: "a.yaml"},
        )
    assert caught.value.code == "config-circle"


def lay(folder: Path, document: dict[str, Any], **texts: str) -> Overlay:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, "utf-8")
    return unroll(read_yaml(folder / "config.yaml"), document["files"])


def test_own_files_are_laid_over_each_other(document: dict[str, Any], tmp_path: Path) -> None:
    found = lay(
        tmp_path, document,
        mine="defaults: longer.yaml\npolicy: {lr: 0.3, packing: {size: 8}}\n",
        config="defaults: mine.yaml\npolicy:\n  lr: 0.4\nsteps: 7\n",
    )  # fmt: skip
    assert not found.findings and found.base == ["programs/configs/longer.yaml"]
    assert found.document.data == {"policy": {"lr": 0.4, "packing": {"size": 8}}, "steps": 7}
    assert found.document.place(("policy", "packing", "size")).endswith("mine.yaml")
    assert found.document.lines["policy", "packing", "size"] == 2
    assert found.document.lines["steps",] == 4


def test_a_marked_section_forgets_what_is_below_it(document: dict[str, Any], tmp_path: Path) -> None:
    found = lay(tmp_path, document, config="defaults: base.yaml\npolicy: {_override_: true, lr: 0.4}\n")
    assert found.deleted == ["policy"] and found.document.data == {"policy": {"lr": 0.4}}


@pytest.mark.parametrize(
    ("config", "other", "code"),
    [
        ("defaults: bass.yaml\n", "", "config-unknown"),
        ("defaults: other1.yaml\n", "defaults: config.yaml\n", "config-circle"),
        ("defaults: {a: 1}\n", "", "config-defaults"),
        ("defaults: [other1.yaml, base.yaml]\n", "steps: 1\n", "config-order"),
        ("defaults: other1.yaml\n", "- a list\n", "yaml-root"),
        ("defaults: other1.yaml\n", "a: [\n", "yaml-syntax"),
    ],
)
def test_what_cannot_be_built_on_is_said(
    document: dict[str, Any], tmp_path: Path, config: str, other: str, code: str
) -> None:
    found = lay(tmp_path, document, config=config, other1=other)
    assert [finding.code for finding in found.findings] == [code]
    assert found.findings[0].file and found.findings[0].severity == "error"


def test_an_unchanged_copy_of_a_file_of_the_release_is_that_file(
    document: dict[str, Any], tmp_path: Path
) -> None:
    found = lay(tmp_path, document, base=FILES["base.yaml"], config="defaults: base.yaml\n")
    assert found.base == ["programs/configs/base.yaml"] and not found.document.data
    changed = lay(tmp_path, document, base="steps: 1\n", config="defaults: base.yaml\n")
    assert changed.base == [] and changed.document.data == {"steps": 1}


@pytest.mark.parametrize(
    ("value", "types", "taken"),
    [
        (1, ("int",), True), ("1", ("int",), True), (1.0, ("int",), True), (1.5, ("int",), False),
        ("x", ("int",), False), (True, ("int",), True), (1, ("float",), True), ("1e-5", ("float",), True),
        (1, ("str",), False), ("yes", ("bool",), True), (2, ("bool",), False), (0.0, ("bool",), True),
        (None, ("int",), False), (None, ("int", "null"), True), ([1], ("list",), True), ({}, ("any",), True),
        ("maybe", ("bool",), False),
    ],
)  # fmt: skip
def test_values_are_converted_where_nothing_is_lost(value: Any, types: tuple[str, ...], taken: bool) -> None:
    assert accepted(value, types) is taken
