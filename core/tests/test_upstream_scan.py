"""`tp upstream scan`: small releases of every kind, and archives that nobody means well with."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from tuneport.cli.group import tp
from tuneport.errors import Invalid, NotFound, TuneportError, Unavailable
from tuneport.registry.schemas import problems, schema
from tuneport.upstream import archives
from tuneport.upstream.artefacts import obtain
from tuneport.upstream.listed import lists
from tuneport.upstream.scan import Scan, scan
from tuneport.upstream.sources import Sources

PARSER = """
import argparse

LOSSES = {"hinge": 1, "ipo": 2}

def parser():
    made = argparse.ArgumentParser()
    made.add_argument("--lr", type=float, default=1e-4, help="step size")
    made.add_argument("--loss", choices=["hinge", "ipo"], default="hinge")
    return made

def main():
    args = parser().parse_args()
    if args.lr <= 0 and args.loss == "ipo":
        raise ValueError("a sentence that stays upstream's")
    assert args.loss in LOSSES

if __name__ == "__main__":
    main()
"""
METADATA = """Metadata-Version: 2.1
Name: mill
Version: {version}
Requires-Python: >=3.10
Requires-Dist: torch>=2.6
Requires-Dist: vllm<0.30,>=0.12; extra == "vllm"
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEPORT_CACHE_DIR", str(tmp_path / "cache"))


def wheel(folder: Path, files: Mapping[str, str | bytes], version: str = "1.0") -> Path:
    path = folder / f"mill-{version}-py3-none-any.whl"
    info = f"mill-{version}.dist-info"
    points = "[console_scripts]\nmill = mill.train:main\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/METADATA", METADATA.format(version=version))
        archive.writestr(f"{info}/entry_points.txt", points)
    return path


def read(path: Path | str, **words: str) -> Scan:
    return scan(path, **words)  # type: ignore[arg-type]


# --- what is read


def test_a_wheel_that_no_manifest_knows(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"mill/__init__.py": "", "mill/train.py": PARSER})
    found = read(path)
    assert (found.framework, found.release, found.name, found.version) == ("", "1.0", "mill", "1.0")
    assert found.artefacts[0]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.requires_python == ">=3.10"
    assert found.requirements == {"torch": ">=2.6", "vllm": '<0.30,>=0.12; extra == "vllm"'}
    assert found.entry_points == {"console_scripts: mill": "mill.train:main"}
    keys = found.keys["mill.train"]
    assert keys["lr"].default == 1e-4 and keys["loss"].choices == ("hinge", "ipo")
    assert keys["lr"].source == "mill/train.py:8"
    assert found.choices == {"mill.train:LOSSES": ("hinge", "ipo")}
    raised, asserted = found.checks
    assert (raised.kind, raised.symbol, raised.line) == ("raise ValueError", "main", 15)
    assert raised.names == ("lr", "loss") and set(raised.operators) == {"and", "<=", "=="}
    assert set(raised.values) == {0, "ipo"}
    assert (asserted.kind, asserted.names, asserted.operators) == ("assert", ("loss",), ("in",))
    assert "sentence" not in repr(found)
    assert found.undecided == ("no manifest says how this distribution is read: entries were looked for",)
    assert not list(problems(json.loads(found.text()), schema("surface")))


def test_a_folder_and_a_source_archive_read_alike(tmp_path: Path) -> None:
    project = '[project]\nname = "mill"\nversion = "1.0"\ndependencies = ["torch>=2.6"]\n'
    files = {"pyproject.toml": project, "src/mill/__init__.py": "", "src/mill/train.py": PARSER}
    folder = tmp_path / "tree" / "mill-1.0"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "endless").symlink_to(folder)
    (folder / "src/mill/outside.py").symlink_to("/etc/passwd")
    archive = tmp_path / "mill-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as made:
        made.add(folder, "mill-1.0")
    one, other = read(folder), read(archive)
    assert one.keys == other.keys and list(one.keys) == ["mill.train"]
    assert one.requirements == other.requirements == {"torch": ">=2.6"}
    assert "sha256" in other.artefacts[0] and "sha256" not in one.artefacts[0]


def test_classes_and_what_they_hold_are_entries_too(tmp_path: Path) -> None:
    text = """
from dataclasses import dataclass, field
from pydantic import BaseModel

class Adam(BaseModel):
    lr: float = 1e-3
    betas: list[float] = [0.9, 0.95]

@dataclass
class BaseArgs:
    seed: int = 42

@dataclass
class SftArgs(BaseArgs):
    model: str
    adam: Adam = field(default_factory=Adam)
"""
    found = read(
        wheel(tmp_path, {"mill/__init__.py": "", "mill/config.py": text, "mill/cli.py": "import click\n"})
    )
    assert {name: key.default for name, key in found.keys["mill.config.SftArgs"].items()} == {
        "seed": 42, "model": None, "adam.lr": 1e-3, "adam.betas": [0.9, 0.95],
    }  # fmt: skip
    assert list(found.keys) == ["mill.config.SftArgs"]
    assert "mill.cli takes its command line with click" in found.undecided


def test_nothing_of_a_release_runs(tmp_path: Path) -> None:
    files = {
        "mill/__init__.py": f"open({str(tmp_path / 'ran')!r}, 'w')\n",
        "setup.py": "raise SystemExit(1)\n",
    }
    read(wheel(tmp_path, {**files, "mill/train.py": PARSER}))
    assert not (tmp_path / "ran").exists()


def test_a_module_that_is_no_python_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    files = {
        "mill/old.py": "print 1\n",
        "mill/latin.py": b"x = '\xff'\n",
        "mill/deep.py": "x = " + "-" * 9000 + "1",
    }
    found = read(wheel(tmp_path, {**files, "mill/__init__.py": "", "mill/train.py": PARSER}))
    assert set(found.keys) == {"mill.train"}
    for module in ("mill.old", "mill.latin"):
        assert any(line.startswith(f"{module} cannot be read: ") for line in found.undecided)


# --- archives that nobody means well with


@pytest.mark.parametrize("name", ["../out.py", "/abs.py", "mill/../../out.py", "mill\\..\\out.py"])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Invalid, match="leads out of it") as caught:
        read(wheel(tmp_path, {"mill/__init__.py": "", name: "x = 1"}))
    assert caught.value.code == "upstream-archive"
    assert not (tmp_path / "out.py").exists() and not list(tmp_path.glob("cache/**/out.py"))


def test_links_in_archives_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "mill-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as made:
        for name, text in {"m/PKG-INFO": METADATA.format(version="1.0"), "m/mill/train.py": PARSER}.items():
            item = tarfile.TarInfo(name)
            item.size = len(text.encode())
            made.addfile(item, io.BytesIO(text.encode()))
        link = tarfile.TarInfo("m/mill/out.py")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        made.addfile(link)
    assert list(read(path).keys) == ["mill.train"]
    assert not list(tmp_path.glob("cache/**/out.py"))


def test_what_is_too_large_is_refused_quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = time.monotonic()
    with pytest.raises(Invalid, match="larger than the 8 MiB"):
        read(wheel(tmp_path, {"mill/__init__.py": "", "mill/bomb.py": b"#" * 100_000_000}))
    assert time.monotonic() - start < 20
    monkeypatch.setattr(archives, "MAX_TOTAL", 1000)
    with pytest.raises(Invalid, match="its text is larger"):
        read(wheel(tmp_path, {f"mill/m{n}.py": "#" * 100 for n in range(20)}))
    monkeypatch.setattr(archives, "MAX_MEMBERS", 10)
    with pytest.raises(Invalid, match="more than 10 files"):
        read(wheel(tmp_path, {f"mill/m{n}.py": "" for n in range(20)}))


def test_a_member_that_lies_about_its_size_or_is_cut_off_is_damage(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"mill/__init__.py": "", "mill/train.py": PARSER * 100})
    whole = path.read_bytes()
    for broken in (whole[: len(whole) // 2], b"", b"PK\x05\x06", whole.replace(b"mill", b"m\x00ll", 3)):
        path.write_bytes(broken)
        with pytest.raises(Invalid) as caught:
            read(path)
        assert caught.value.code in ("upstream-archive", "upstream-version")
    cut = tmp_path / "mill-1.0.tar.gz"
    cut.write_bytes(b"\x1f\x8b\x08 no gzip")
    with pytest.raises(Invalid, match=r"damaged|cannot be unpacked"):
        read(cut)


@pytest.mark.parametrize(
    "what", ["", "no/such/folder", "mill.whl", "a b==1", "mill==", "-r x", "mill==1 --pre", "\0"]
)
def test_a_word_that_names_nothing(what: str) -> None:
    with pytest.raises(TuneportError) as caught:
        read(what)
    assert caught.value.code in ("upstream-name", "upstream-not-found", "upstream-network")


def test_a_release_that_no_manifest_has() -> None:
    with pytest.raises(NotFound) as caught:
        read("no-such-framework@1.0")
    assert caught.value.code == "framework-unknown"


def test_a_folder_with_nothing_to_read_is_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "empty" / ".git").mkdir(parents=True)
    (tmp_path / "empty" / "notes.bin").write_text("x")
    with pytest.raises(Invalid, match="empty holds no file that is read"):
        read(tmp_path / "empty")
    (tmp_path / "empty" / "a.py").write_text("")
    with pytest.raises(Invalid, match="does not say its name") as caught:
        read(tmp_path / "empty", release="1.0")
    assert "pyproject.toml" in caught.value.hint


def test_a_wheel_is_the_release_that_it_says(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"mill/__init__.py": "", "mill/train.py": PARSER})
    assert read(path, release="1").version == "1"
    with pytest.raises(Invalid, match=r"is mill 1\.0, not 2\.0"):
        read(path, release="2.0")


def test_a_package_that_is_not_read_beside_it_is_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"mill/__init__.py": "", "mill/train.py": PARSER})
    with pytest.raises(Invalid, match=r"'torch==2\.6' is not read beside mill: nothing is") as caught:
        scan(path, beside=["torch==2.6"])
    assert caught.value.code == "upstream-with"


# --- the network


def test_the_wheel_of_another_platform_is_fetched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = wheel(tmp_path, {"mill/__init__.py": "", "mill/train.py": PARSER})
    with zipfile.ZipFile(made, "a") as archive:  # what pip asks of a wheel
        archive.writestr("mill-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
    index = tmp_path / "index"
    index.mkdir()
    made.rename(index / "mill-1.0-cp310-cp310-macosx_14_0_arm64.whl")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    wanted = {"python": "3.10", "platform": "macosx_14_0_arm64"}
    found = obtain("mill==1.0", wanted)
    assert (found.metadata.name, found.metadata.version) == ("mill", "1.0")
    with pytest.raises(NotFound):
        obtain("mill==1.0", {**wanted, "platform": "win_amd64"})
    shutil.rmtree(index)
    assert obtain("mill==1.0", wanted).facts == found.facts


def test_without_a_network_it_ends_soon_and_says_so(tmp_path: Path) -> None:
    unset = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    env = {**unset, "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": os.devnull}
    words = [sys.executable, "-m", "tuneport", "upstream", "scan", "mill==1.0"]
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=60)
    assert done.returncode == Unavailable.exit_code == 6
    assert "cannot reach the package index" in done.stderr and "hint: without a network" in done.stderr


# --- the command


def test_the_command_writes_the_surface_and_says_what_it_read(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"mill/__init__.py": "", "mill/train.py": PARSER})
    out = tmp_path / "made" / "1.0.json"
    done = CliRunner().invoke(tp, ["upstream", "scan", str(path), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert out.read_text("utf-8") == read(path).text()
    assert "mill.train: 2 keys" in done.output and "torch >=2.6" in done.output
    said = json.loads(CliRunner().invoke(tp, ["upstream", "scan", str(path), "--json"]).stdout)
    assert said["surface"] == json.loads(out.read_text("utf-8"))
    assert said["checks"][0]["names"] == ["lr", "loss"]


MODELS = """
from typing import TypedDict
from pydantic import BaseModel, Field

class Row(BaseModel):
    path: str

class MillConfig(BaseModel):
    steps: int
    rate: float = Field(default=0.1, ge=0, alias="lr")
    rows: list[Row] | None = None
    said: int = Field(description="no default")
    must: int = Field(..., ge=0)
    may: int = Field(**{"default": 3})

class Loose(TypedDict, total=False):
    depth: int

class StrictConfig(Loose):
    width: int
"""


def test_a_pydantic_model_is_read_and_its_aliases_are_said(tmp_path: Path) -> None:
    (tmp_path / "mill").mkdir()
    (tmp_path / "mill/__init__.py").write_text("")
    (tmp_path / "mill/config.py").write_text(MODELS)
    (tmp_path / "mill/1.look.py").write_text("raise ValueError(steps)\n")  # no name imports it
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mill"\nversion = "1.0"\n')
    found = scan(tmp_path)
    keys = found.keys["mill.config.MillConfig"]
    assert sorted(keys) == ["may", "must", "rate", "rows", "said", "steps"]
    assert [name for name in keys if keys[name].required] == ["steps", "said", "must"]
    loose = {name: key.required for name, key in found.keys["mill.config.StrictConfig"].items()}
    assert loose == {"depth": False, "width": True}
    assert found.undecided[1:] == ("mill/config.py:10 rate has an alias, which is not in the surface",)


def test_a_recipe_that_names_no_program_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one/mill").mkdir(parents=True)
    (tmp_path / "one/mill/__init__.py").write_text("")
    (tmp_path / "one/pyproject.toml").write_text('[project]\nname = "mill"\nversion = "1.0"\n')
    manifest = tmp_path / "manifests/mill/framework.yaml"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(
        'framework: mill\ntitle: Mill\ndefault_release: "1.0"\nscan: {mill: {packages: [mill]}}\n'
    )
    monkeypatch.setenv("TUNEPORT_MANIFEST_PATH", str(tmp_path / "manifests"))
    found = scan(tmp_path / "one")
    assert found.keys == {}
    assert found.undecided == ("`scan` of the manifest names no program, so there are no entries",)
    listed = CliRunner().invoke(tp, ["plugins", "--no-load"])
    assert listed.stdout.splitlines()[-1].split() == ["(folder)", "mill", str(tmp_path / "manifests")]
    assert json.loads(CliRunner().invoke(tp, ["plugins", "--no-load", "--json"]).stdout)["folders"] == [
        str(tmp_path / "manifests")
    ]


NAMES = """
from dataclasses import dataclass

@dataclass
class Base:
    rate: float = 0.1

@dataclass
class Settings(Base):
    steps: int = 1

LOSSES = {"hinge": 1, "ipo": 2}

def register(name, *, kind=""):
    return lambda made: made

@register("first", kind="word")
def one(): ...

@register("second", kind="rate")
def two(): ...
"""


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({"mapping": "mill.names.LOSSES"}, ["hinge", "ipo"]),
        ({"fields": "mill.names.Settings"}, ["rate", "steps"]),
        ({"calls": "register", "under": "mill"}, ["first", "second"]),
        ({"calls": "register", "argument": "kind", "under": "mill"}, ["rate", "word"]),
    ],
)
def test_names_are_read_where_the_code_has_them(
    spec: dict[str, object], names: list[str], tmp_path: Path
) -> None:
    (tmp_path / "mill").mkdir()
    (tmp_path / "mill/__init__.py").write_text("")
    (tmp_path / "mill/names.py").write_text(NAMES)
    assert lists(Sources([tmp_path]), {"held": spec}) == {"held": names}


def test_a_class_that_is_not_there_has_no_names(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no source root holds the class"):
        lists(Sources([tmp_path]), {"held": {"fields": "mill.names.Settings"}})
