"""Flags both ways against argparse: what is written for a surface, how an argument list is read."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuneport import dialects
from tuneport.checks.undecided import UNDECIDED
from tuneport.dialects.flags_read import Read, read
from tuneport.errors import Invalid
from tuneport.shell.gaps import Gap, Gaps, word
from tuneport.types import Key
from tuneport.upstream.__main__ import main
from tuneport.upstream.argparse_flags import scan_parser
from tuneport.upstream.sources import Sources

from .core_support import SLOW
from .test_core_dialects import context

TYPES = {"int": int, "float": float, "str": str}
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


class Refused(Exception):
    pass


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message)


def key(name: str, kind: str, default: Any = None, **flag: Any) -> Key:
    return Key(name, (kind, "list") if "nargs" in flag else (kind, "null"), default, flag=flag)


KEYS = {
    item.name: item
    for item in (
        key("ckpt.path", "str", "./ckpt"),
        key("ckpt.save_steps", "int", -1),
        key("ckpt.save", "bool", False, action="store_true"),
        key("adam.lr", "float", 1e-6),
        key("adam.betas", "float", [0.9, 0.95], nargs=2),
        key("targets", "str", "all", nargs="*"),
        key("threshold", "float", [0.5, 5.0], nargs="+"),
        key("nesterov", "bool", True, action="store_true"),
        key("no_nesterov", "bool", False, action="store_false", dest="nesterov"),
        key("batch_size", "int", 8, style="--batch-size"),
        key("item", "str", None, action="append"),
    )
}


def parser(keys: Mapping[str, Key]) -> Parser:
    """The parser that a surface describes."""
    made = Parser(prog="x")
    for item in keys.values():
        words: dict[str, Any] = {"dest": item.flag.get("dest", item.name), "default": item.default}
        if "action" in item.flag:
            words["action"] = item.flag["action"]
        if item.types[0] != "bool":
            words["type"] = TYPES[item.types[0]]
        if "nargs" in item.flag:
            words["nargs"] = item.flag["nargs"]
        if item.flag.get("action") == "store_false":
            words["default"] = True
        made.add_argument(item.flag.get("style") or f"--{item.name}", **words)
    return made


FLOAT = st.floats(allow_nan=False, allow_infinity=False)
OWN = st.fixed_dictionaries(
    {},
    optional={
        "ckpt.path": TEXT,
        "ckpt.save_steps": st.integers(),
        "ckpt.save": st.booleans(),
        "adam.lr": FLOAT,
        "adam.betas": st.lists(FLOAT, min_size=2, max_size=2),
        "targets": st.lists(TEXT.filter(lambda text: not text.startswith("-")), max_size=3),
        "threshold": st.lists(FLOAT, min_size=1, max_size=2),
        "nesterov": st.booleans(),
        "batch_size": st.integers(),
        "item": st.lists(TEXT, min_size=1, max_size=3),
    },
)


def written(own: Mapping[str, Any]) -> list[str]:
    return [str(text) for text in dialects.render({"name": "flags"}, context(own, KEYS)).argv]


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(own=OWN)
def test_argparse_gets_every_value_as_it_was_set(own: dict[str, Any]) -> None:
    got = vars(parser(KEYS).parse_args(written(own)))
    assert {name: got[name] for name in own} == own


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(own=OWN)
def test_what_is_written_is_read_back(own: dict[str, Any]) -> None:
    found = read(written(own), KEYS).applied
    assert not found.findings
    said = {name: value for name, value in own.items() if value is not False}
    if own.get("nesterov") is False:
        said["no_nesterov"] = True
    off = {"no_nesterov": False} if said.pop("no_nesterov", None) else {}
    values = {**found.own}
    if off:
        assert values.pop("no_nesterov") is True
    assert values == said


STRANGE = """
--ckpt.path --ckpt.save_steps --ckpt.save --ckpt.sav --ckpt --adam.lr --adam.betas --targets --target
--threshold --nesterov --no_nesterov --no --batch-size --item --unknown --unknown=1 --ckpt.path=
--ckpt.path=-x --adam.lr=1e-5 --ckpt.save=true --adam.betas=1 --targets=a
--item=-1 -x - -1 -.5 -1e-5 1 0.5 nan true x inf 1_000
"""
WORDS = st.one_of(st.sampled_from([*STRANGE.split(), "a b", "--a b", "", " 7 "]), TEXT)


@settings(max_examples=1500, deadline=None, suppress_health_check=SLOW)
@given(words=st.lists(WORDS, max_size=7))
def test_argument_lists_are_read_as_argparse_reads_them(words: list[str]) -> None:
    if any(text.startswith(("-h", "--help", "--h", "--he")) for text in words):
        return
    found = read(words, KEYS)
    wrong = [f for f in found.applied.findings if f.severity == "error"]
    wrong += [name for name in found.applied.own if name not in KEYS]  # which the surface refuses
    try:
        got = vars(parser(KEYS).parse_args(words))
    except Refused as refusal:
        assert wrong, refusal
        return
    assert not wrong, wrong
    for name, value in found.applied.own.items():
        if name not in ("nesterov", "no_nesterov"):
            assert same(got[name], value), name


def same(left: Any, right: Any) -> bool:
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and math.isnan(left):
        return bool(math.isnan(right))
    return type(left) is type(right) and bool(left == right)


def said(words: Sequence[str]) -> dict[str, str]:
    return {f.code: f.severity for f in read(words, KEYS).applied.findings}


@pytest.mark.parametrize(
    ("words", "code", "severity", "hint"),
    [
        (["--ckpt.sa"], "flag-ambiguous", "error", "in full"),
        (["--ckpt.pat", "x"], "flag-short", "note", "--ckpt.path"),
        (["--ckpt.save=true"], "flag-value", "error", "--ckpt.save alone"),
        (["--ckpt.save", "true"], "flag-stray", "error", "takes no value"),
        (["--adam.betas", "1"], "key-values", "error", ""),
        (["--threshold"], "key-values", "error", ""),
        (["--ckpt.path", "-x"], "key-values", "error", "--ckpt.path=-x"),
        (["--adam.lr", "fast"], "key-type", "error", ""),
        (["--help"], "flag-help", "note", ""),
        (["--", "--adam.lr"], "flag-stray", "error", ""),
        (["--adam.lr", "1", "--adam.lr", "2"], "key-repeated", "note", ""),
        (["ckpt.path=x"], "flag-stray", "error", "--ckpt.path"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], code: str, severity: str, hint: str) -> None:
    (finding,) = read(words, KEYS).applied.findings
    assert (finding.code, finding.severity) == (code, severity)
    assert hint in finding.hint


def test_a_flag_that_is_not_there_is_set_for_whoever_knows_where_it_went() -> None:
    assert read(["--old", "1", "--older=2", "--oldest"], KEYS).applied.own == {
        "old": "1", "older": "2", "oldest": True,
    }  # fmt: skip


def gaps() -> tuple[Gaps, str]:
    made = Gaps()
    return made, made.new(Gap("$X is not set", "X", "run.sh", 3))


def test_a_value_that_nobody_knows_leaves_the_others_known() -> None:
    _, hole = gaps()
    words = ["--adam.lr", word(hole, "run.sh", 3), "--ckpt.path=a" + hole, "--batch-size", "4"]
    found: Read = read(words, KEYS)
    assert found.applied.own == {"adam.lr": UNDECIDED, "ckpt.path": UNDECIDED, "batch_size": 4}
    assert not found.applied.findings
    assert found.words == [f"adam.lr={hole}", f"ckpt.path=a{hole}", "batch_size=4"]


def test_words_of_a_script_are_plain_values_with_their_place() -> None:
    words = [word(text, "run.sh", 7) for text in ("--ckpt.path", "here", "--old", "x", "--targets", "a", "b")]
    found = read(words, KEYS).applied
    assert found.own == {"ckpt.path": "here", "old": "x", "targets": ["a", "b"]}
    assert [type(found.own[name]) for name in ("ckpt.path", "old")] == [str, str]
    assert all(type(text) is str for text in found.own["targets"])
    assert found.places["ckpt.path"].line == 7


def test_words_that_nobody_knows_are_kept_as_they_are() -> None:
    _, hole = gaps()
    found = read(["--ckpt.save", hole, "x", "--adam.lr", "1"], KEYS)
    assert found.words == ["ckpt.save=True", hole, "adam.lr=1.0"]
    assert not found.applied.findings, "x may belong to the unknown word"


def test_many_strange_words_are_few_findings() -> None:
    findings = read([f"word{number}" for number in range(100_000)], KEYS).applied.findings
    assert len(findings) <= 50


def test_a_switch_that_nothing_turns_off() -> None:
    keys = {"on": key("on", "bool", True, action="store_true")}
    with pytest.raises(Invalid) as caught:
        dialects.render({"name": "flags"}, context({"on": False}, keys))
    assert caught.value.code == "dialect-switch"


SCRIPT = """
import argparse, nowhere
raise SystemExit("this must never run")
def train(args): pass
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for role in ("actor", "critic"):
        parser.add_argument(f"--{role}.lr", type=float, default=1e-6 if role == "actor" else 9e-6)
    parser.add_argument("--max_mem", type=int, default=int(1e8))
    parser.add_argument("--nesterov", action="store_true", default=True)
    parser.add_argument("--no_nesterov", dest="nesterov", action="store_false")
    parser.add_argument("--betas", type=float, nargs=2, default=(0.9, 0.95))
    parser.add_argument("--kind", choices=["a", "b"], required=True)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--name", type=str, default="run_%s" % nowhere.now())
    args = parser.parse_args()
    train(args)
"""


def test_a_parser_is_scanned_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "train.py").write_text(SCRIPT, "utf-8")
    scan = scan_parser(Sources([tmp_path]), "tool.train")
    assert scan.keys == {
        "actor.lr": {"types": ["float"], "default": 1e-6, "source": "tool/train.py:8"},
        "critic.lr": {"types": ["float"], "default": 9e-6, "source": "tool/train.py:8"},
        "max_mem": {"types": ["int"], "default": 100_000_000, "source": "tool/train.py:9"},
        "nesterov": {
            "types": ["bool"], "default": True, "action": "store_true", "source": "tool/train.py:10",
        },
        "no_nesterov": {
            "types": ["bool"], "default": False, "action": "store_false", "dest": "nesterov",
            "source": "tool/train.py:11",
        },
        "betas": {
            "types": ["float", "list"], "default": [0.9, 0.95], "nargs": 2, "source": "tool/train.py:12",
        },
        "kind": {"types": ["str"], "required": True, "choices": ["a", "b"], "source": "tool/train.py:13"},
        "batch_size": {"types": ["int"], "default": 8, "style": "--batch-size", "source": "tool/train.py:14"},
        "name": {"types": ["str"], "source": "tool/train.py:15"},
    }  # fmt: skip
    assert scan.unknown == ["name"]
    out = tmp_path / "s.json"
    assert main(["acme", "1", str(tmp_path), "--parser", "tool.train", "--out", str(out)]) == 0
    assert '"parser": "argparse"' in out.read_text("utf-8")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("parser.add_argument('folder')", "the argument folder"),
        ("parser.add_argument(compute())", "the name of a flag is computed"),
        ("args, rest = parser.parse_known_args()", "does not know"),
        ("parser = argparse.ArgumentParser(allow_abbrev=False)", "abbreviations"),
        ("x = (", "was never closed"),
    ],
)
def test_a_parser_that_cannot_be_told_in_full_is_refused(tmp_path: Path, line: str, why: str) -> None:
    text = f"import argparse\nparser = argparse.ArgumentParser()\n{line}\nparser.parse_args()\n"
    (tmp_path / "train.py").write_text(text, "utf-8")
    with pytest.raises(Invalid) as caught:
        scan_parser(Sources([tmp_path]), "train")
    assert why in caught.value.message


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        scan_parser(Sources([tmp_path]), "tool.train")
    assert caught.value.code == "entry-missing"
