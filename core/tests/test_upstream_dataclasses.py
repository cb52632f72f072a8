"""The scanner reads keys out of source text alone: nothing that it reads is ever run."""

from __future__ import annotations

import hashlib
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tuneport.errors import Invalid
from tuneport.upstream.__main__ import main
from tuneport.upstream.dataclasses import scan_entry
from tuneport.upstream.sources import Sources

SCRIPT = """
raise SystemExit("this must never run")

def make_parser():
    from tool import Config, Data
    kinds = (Data, Config)
    return FancyParser(kinds, prog="x")
"""
PACKAGE = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from .config import Config
    from .data import Data as Data
"""
BASE = """
import logging
from dataclasses import dataclass, field
from enum import Enum
from .names import get_levels, MODES

class Text(str, Enum):
    pass

class Kind(Text):
    ONE = "one"
    TWO = "two"
    ALSO_ONE = "one"

log_levels = dict(**get_levels(), passive=-1)

@dataclass
class Arguments:
    known: int = 3
    overridden: float = 0.5
    kind: Kind | str = "one"
    default_kind: Kind = field(default=Kind.TWO)
    level: str = field(default="passive", metadata={"help": "a" "b", "choices": log_levels.keys()})
    mode: str = field(default=MODES[0] if MODES else "", metadata={"choices": list(MODES)})
    speed = "slow"
    if is_fast():
        from nowhere import is_very_fast
        if is_very_fast:
            speed = "fast"
    speed_of: str = field(default=speed)
"""
NAMES = """
import logging
MODES = ["a", "b"]
levels = {"debug": logging.DEBUG, "info": logging.INFO}
def get_levels():
    "The levels."
    return levels
"""
CONFIG = """
from dataclasses import dataclass, field, KW_ONLY
from typing import Any, ClassVar, Literal, Optional, Union
from base import Arguments

@dataclass
class Config(Arguments):
    _names: ClassVar[list[str]] = []
    overridden: float = 0.25
    needed: str = field()
    also_needed: int
    flag: bool
    maybe: Optional[bool] = None
    switch: str | None = field(default=None, metadata={"nargs": "?", "const": True})
    many: list[str] = field(default_factory=lambda: ["x"])
    plain_list: list[str] | str = ""
    table: dict[str, Any] | str | None = None
    choice: Literal["x", "y", 3] = "x"
    either: Union[str, bool] = "no"
    hidden: int = field(default=1, init=False)
    made: dict = field(default_factory=dict)
    unknown: int = 2 ** 3
    negative: int = -1
    "quoted": int = 1 if False else 2
""".replace('    "quoted": int = 1 if False else 2\n', "    quoted: 'int | None' = None\n")
DATA = """
from dataclasses import dataclass
@dataclass
class Data:
    path: str = "here"
"""


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    files = {
        "one/tool/__init__.py": PACKAGE,
        "one/tool/config.py": CONFIG,
        "one/tool/data.py": DATA,
        "one/tool/scripts/__init__.py": "",
        "one/tool/scripts/train.py": SCRIPT,
        "two/base/__init__.py": "from .arguments import *\n",
        "two/base/arguments.py": BASE,
        "two/base/names.py": NAMES,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")
    return Sources([tmp_path / "one", tmp_path / "two"])


def keys(sources: Sources, **assume: bool) -> dict[str, dict[str, Any]]:
    return scan_entry(sources, "tool.scripts.train", assume).keys


def test_order_and_inheritance_follow_the_dataclasses(sources: Sources) -> None:
    names = list(keys(sources))
    assert names[:4] == ["path", "known", "overridden", "kind"]
    assert "_names" not in names
    assert "hidden" not in names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("known", {"types": ["int"], "default": 3, "source": "base/arguments.py:19"}),
        ("overridden", {"types": ["float"], "default": 0.25, "source": "tool/config.py:9"}),
        ("kind", {"types": ["str"], "default": "one", "choices": ["one", "two"]}),
        ("default_kind", {"types": ["str"], "default": "two", "choices": ["one", "two"]}),
        ("level", {"types": ["str"], "default": "passive", "choices": ["debug", "info", "passive"]}),
        ("mode", {"types": ["str"], "choices": ["a", "b"]}),
        ("needed", {"types": ["str"], "required": True}),
        ("also_needed", {"types": ["int"], "required": True}),
        ("flag", {"types": ["bool"], "default": False}),
        ("maybe", {"types": ["bool", "null"], "default": None}),
        ("switch", {"types": ["bool", "null", "str"], "default": None, "reads": "str", "bare": True}),
        ("many", {"types": ["list"], "default": ["x"]}),
        ("plain_list", {"types": ["list", "null", "str"], "default": None, "reads": "list"}),
        ("table", {"types": ["dict", "null", "str"], "default": None, "reads": "str"}),
        ("choice", {"types": ["int", "str"], "default": "x", "choices": ["x", "y", 3], "reads": "str"}),
        ("either", {"types": ["bool"], "default": False}),
        ("made", {"types": ["dict"], "default": {}, "reads": "nothing"}),
        ("unknown", {"types": ["int"]}),
        ("negative", {"types": ["int"], "default": -1}),
        ("quoted", {"types": ["int", "null"], "default": None}),
    ],
)
def test_key(sources: Sources, name: str, expected: dict[str, Any]) -> None:
    found = dict(keys(sources)[name])
    if "source" not in expected:
        found.pop("source")
    assert found == expected


def test_what_the_host_decides_is_unknown_unless_assumed(sources: Sources) -> None:
    assert "default" not in keys(sources)["speed_of"]
    assert scan_entry(sources, "tool.scripts.train").unknown == ["mode", "speed_of", "unknown"]
    assert keys(sources, is_fast=True)["speed_of"].get("default") is None
    assert keys(sources, is_fast=True, is_very_fast=True)["speed_of"]["default"] == "fast"
    assert keys(sources, is_fast=False)["speed_of"]["default"] == "slow"


def test_a_missing_base_class_or_entry_is_named(sources: Sources) -> None:
    alone = Sources(sources.roots[:1])
    with pytest.raises(Invalid, match=r"Config in tool\.config inherits Arguments") as caught:
        keys(alone)
    assert caught.value.code == "base-not-found"
    with pytest.raises(Invalid, match=r"tool\.scripts\.nothing"):
        scan_entry(sources, "tool.scripts.nothing")


def test_an_import_circle_ends(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from b import Config\nP = XParser((Config,))\n")
    (tmp_path / "b.py").write_text("from a import Config\n")
    with pytest.raises(Invalid) as caught:
        scan_entry(Sources([tmp_path]), "a")
    assert caught.value.code == "class-not-found"


def test_command_writes_a_surface_with_the_digest_of_the_artefact(
    sources: Sources, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "tool-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    out = tmp_path / "surfaces" / "1.0.json"
    roots = [str(root) for root in sources.roots]
    rest = ["--entry", "tool.scripts.train", "--out", str(out)]
    assert main(["tool", "1.0", *roots, *rest, "--artefact", str(wheel), "--assume", "is_fast"]) == 0
    surface = json.loads(out.read_text("utf-8"))
    digest = hashlib.sha256(b"wheel").hexdigest()
    assert surface["artefacts"] == [{"name": "tool", "version": "1.0", "sha256": digest}]
    assert surface["entries"]["tool.scripts.train"]["keys"] == keys(sources, is_fast=True)
    assert "tool.scripts.train: speed_of" in capsys.readouterr().err
    assert main(["tool", "1.0", roots[0], *rest]) == 3
