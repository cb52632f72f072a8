"""What a dialect writes, the parser that it speaks to reads back as the same values."""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tuneport import dialects
from tuneport.errors import Invalid
from tuneport.experiment import values
from tuneport.experiment.scripts import read_flags
from tuneport.experiment.yamlread import parse_yaml
from tuneport.fleets.files import render as file_bytes
from tuneport.types import Context, Key, Method, Ref, Release, Request, Topology

from .core_support import MANIFESTS, SLOW

SCRIPT = (MANIFESTS / "acme" / "templates" / "script" / "train.py").read_text("utf-8")
PLAIN = ("flags", "dataclass-cli", "yaml-file", "env")
"""The dialects of plain keys; those that compose a configuration have tests of their own."""
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
NUMBER = st.one_of(st.integers(), FLOAT)
# A parser that makes floats of them keeps these integers as they are.
EXACT = st.one_of(st.integers(-(2**53), 2**53), FLOAT)


def context(own: Mapping[str, Any], keys: Mapping[str, Key] | None = None, script: str = "") -> Context:
    spec = {"surface": {"script": "train.py"}} if script else {}
    facts = {"scripts": {"train.py": read_flags(script)}} if script else {}
    return Context(
        method=Method("acme/x", "acme", "", spec, {}, ""),
        release=Release("acme", "1", {}, keys or {}),
        request=Request(),
        topology=Topology(()),
        facts=facts,
        config=own,
        own=own,
        origins={},
        files={},
    )


def parser() -> argparse.ArgumentParser:
    """The one that the script builds."""
    namespace: dict[str, Any] = {}
    exec(SCRIPT.rpartition("print(")[0], namespace)
    found: argparse.ArgumentParser = namespace["parser"]
    return found


@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
@given(
    own=st.fixed_dictionaries(
        {"epochs": st.integers()},
        optional={
            "lr": EXACT, "name": TEXT, "out": TEXT, "shuffle": st.booleans(), "resume": st.booleans(),
            "dry_run": st.booleans(), "mode": st.sampled_from(["fast", "slow"]),
            "layers": st.lists(st.integers(min_value=0), max_size=3),
        },
    )
)  # fmt: skip
def test_flags_are_read_back_by_the_scripts_own_parser(own: dict[str, Any]) -> None:
    rendered = dialects.render({"name": "flags"}, context(own, script=SCRIPT))
    read = vars(parser().parse_args([str(word) for word in rendered.argv]))
    assert {name: read[name] for name in own} == own
    assert not rendered.env and not rendered.files


def test_flags_say_what_they_cannot_say() -> None:
    for own, code in [
        ({"lr": None}, "dialect-null"),
        ({"layers": ["-1x", "a"]}, "dialect-dash"),
        ({"layers": ["a", "--out"]}, "dialect-dash"),
    ]:
        with pytest.raises(Invalid) as caught:
            dialects.render({"name": "flags"}, context(own, script=SCRIPT))
        assert caught.value.code == code
        assert caught.value.hint


def test_flags_of_a_surface_and_their_spelling() -> None:
    keys = {"amp": Key("amp", ("bool",)), "use_it": Key("use_it", ("bool", "str"))}
    own = {"amp": True, "use_it": False, "batch_size": 4, "out": Ref("output_dir", "/x"), "m": {"a": "é"}}
    assert dialects.render({"name": "flags", "dashes": True}, context(own, keys)).argv == (
        "--amp", "--batch-size=4", '--m={"a": "é"}', "--out", Ref("output_dir", "/x"), "--use-it=false",
    )  # fmt: skip
    assert dialects.render({"name": "flags"}, context({"amp": False}, keys)).argv == ()


TREES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBER, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)
WORD = st.text("abcdefgh_", min_size=1, max_size=5)


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(
    own=st.dictionaries(st.one_of(WORD, st.builds("{}.{}".format, WORD, WORD)), TREES, max_size=5),
    flat=st.booleans(),
)
def test_yaml_files_are_read_back_by_every_yaml_reader(own: dict[str, Any], flat: bool) -> None:
    parents = {name.partition(".")[0] for name in own if "." in name}
    own = {name: value for name, value in own.items() if name not in parents}  # a key and one below it
    rendered = dialects.render({"name": "yaml-file", "file": "c.yaml", "nested": not flat}, context(own))
    assert rendered.argv == ("--config", "c.yaml")
    content = file_bytes(rendered.files["c.yaml"])
    expected: dict[str, Any] = {}
    for name, value in own.items():
        head, dot, tail = name.partition(".")
        if dot and not flat:
            expected.setdefault(head, {})[tail] = value
        else:
            expected[name] = value
    document = parse_yaml(content.decode())
    assert not document.findings
    assert document.data == expected, "YAML 1.1 as OmegaConf reads it"
    assert yaml.load(content, Loader=yaml.CSafeLoader) == expected, "YAML 1.1"
    assert parse_yaml(content.decode(), plain=values._scalar).data == expected, "YAML 1.2"


def test_references_stay_open_inside_files() -> None:
    own = {"out.dir": Ref("output_dir"), "list": [Ref("job_id")], "text": "{output_dir}"}
    rendered = dialects.render({"name": "yaml-file", "flag": ""}, context(own))
    assert rendered.argv == ("tuneport-config.yaml",)
    assert rendered.files["tuneport-config.yaml"].content == {
        "out": {"dir": Ref("output_dir")}, "list": [Ref("job_id")], "text": "{output_dir}",
    }  # fmt: skip


def test_environment_variables_arrive_as_they_are() -> None:
    own = {
        "optim.lr": 1e-6, "name": "a\nb $(id) 'x' \"y\" \U0001f600 ", "empty": "", "none": None, "yes": True,
        "list": ["a b", 1, None], "map": {"k": "é"}, "weird-key!": 1, "-x": "--y",
    }  # fmt: skip
    rendered = dialects.render({"name": "env", "prefix": "ACME_"}, context(own))
    env = {**os.environ, **{name: str(value) for name, value in rendered.env.items()}}
    code = "import os, json; print(json.dumps({k: v for k, v in os.environ.items() if k[:5] == 'ACME_'}))"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {
        "ACME_OPTIM__LR": "1e-06", "ACME_NAME": own["name"], "ACME_EMPTY": "", "ACME_NONE": "",
        "ACME_YES": "true",
        "ACME_LIST": '["a b", 1, null]', "ACME_MAP": '{"k": "é"}', "ACME_WEIRD_KEY_": "1", "ACME__X": "--y",
    }  # fmt: skip
    assert json.loads(env["ACME_LIST"]) == own["list"]
    assert not rendered.argv and not rendered.files
    reference = dialects.render({"name": "env"}, context({"o": Ref("output_dir")}))
    assert reference.env == {"CONFIG_O": Ref("output_dir")}


def test_two_keys_that_become_one_variable_are_refused() -> None:
    with pytest.raises(Invalid) as caught:
        dialects.render({"name": "env"}, context({"a.b": 1, "a__b": 2}))
    assert caught.value.code == "dialect-env-clash"


def test_unknown_dialects_are_named_with_those_that_exist() -> None:
    with pytest.raises(Invalid) as caught:
        dialects.render({"name": "os"}, context({}))
    assert caught.value.code == "dialect-unknown"
    for name in dialects.NAMES:
        assert name in caught.value.hint


def test_order_does_not_depend_on_how_the_configuration_was_put_together() -> None:
    forwards, backwards = {"a": 1, "b": "x", "c": [1]}, {"c": [1], "b": "x", "a": 1}
    for name in ("flags", "env"):
        assert dialects.render({"name": name}, context(forwards)) == dialects.render(
            {"name": name}, context(backwards)
        )


def test_a_dialect_never_changes_its_context() -> None:
    own = {"a": [1, "x"], "c.d": {"e": [1]}, "f": True}
    before = copy.deepcopy(own)
    for name in PLAIN:
        dialects.render({"name": name, "config_flag": "--config"}, context(own))
    assert own == before


def test_paths_of_the_package_name_every_dialect() -> None:
    folder = Path(dialects.__file__).parent
    found = {path.stem.replace("_", "-") for path in folder.iterdir() if path.stem[0] != "_"}
    assert found >= set(dialects.NAMES) >= set(PLAIN)
    for name in PLAIN:
        assert dialects.render({"name": name}, context({})).argv is not None
