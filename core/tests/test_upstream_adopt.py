"""Adopting a release of an invented framework: what is drafted, what is proved, what is left to a person."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tuneport.errors import Invalid, NotFound
from tuneport.experiment.yamlread import read_yaml
from tuneport.registry import catalog
from tuneport.upstream import adopt_commands, adopt_oracle, adopt_release, adopt_review
from tuneport.upstream.adopt import Adoption, adopt, target
from tuneport.upstream.scan import Scan

from .core_support import World, forget, tp, tp_json

SCRIPT = """\
import argparse

def make():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out")
{flags}
    return parser

def main():
    args = make().parse_args()
{checks}

if __name__ == "__main__":
    main()
"""
FLAGS = {
    "1.0": {"rate": 0.1, "grist": 3, "stones": 2, "speed": 10},
    "1.1": {"rate": 0.1, "grain_size": 3, "stones": 2, "sieve": 1},
    "1.2": {"rate": 0.1, "grain_size": 3, "stones": 4, "sieve": 1},
}
HELP = {"grist": "how fine the flour is, in tenths", "grain_size": "how fine the flour is, in tenths"}
CHECKS = {
    "1.0": [
        "if args.stones > 8:",
        "    raise ValueError('stones')",
        "if args.rate < 0:",
        "    raise ValueError()",
    ],
    "1.1": [
        "# said anew",
        "if args.stones > 8:",
        "    raise ValueError('stones')",
        "if args.rate < -1:",
        "    pass",
    ],
    "1.2": [
        "if args.stones > 8:",
        "    raise ValueError('stones')",
        "if args.rate < 0:",
        "    raise ValueError()",
    ],
}
RULES = """\
rules:
  - code: mill-stones
    {key: stones, require: cfg.stones <= 8, severity: error, say: too many, source: "mill/train.py, main"}
  - code: mill-rate
    {key: rate, require: cfg.rate >= 0.0, severity: error, say: below none, source: "mill/train.py, main"}
  - code: mill-speed
    {key: speed, require: cfg.speed > 0, severity: error, say: stands, source: "mill/train.py, main"}
  - code: mill-sums
    {key: rate, require: cfg.rate < 9.0, severity: note, say: large, source: "sums/adder.py, add"}
""".replace("\n    {", ", ").replace("- code", "- {code")
METHOD = """\
method: mill/grind
title: Grind
entry: mill.train
roles: [main]
params:
  learning_rate: {key: rate, type: number, minimum: 0, maximum: 5}
  seed: {key: speed, type: integer, minimum: 1}
bind:
  model: {key: model, required: true}
  train_data: {key: data, required: true}
platform:
  out: {ref: output_dir}
launch: {launcher: none, run: {module: mill.train}, dialect: {name: flags}}
rules: [stones]
"""
FRAMEWORK = """\
framework: mill
title: Mill
default_release: "1.0"
oracle: {parser: make}
scan:
  mill:
    parsers: [mill.train]
"""
RELEASE = """\
# the first one
release: "1.0"
status: supported
artefacts:
  - {name: mill, version: "1.0"}
surface: 1.0.json
# what it was proved with
pins: {sums: "2.0"}
runtime:
  id: mill-1.0
  venv:
    variants:
      any:
        series: ["*"]
        # all of it
        requirements: [mill==1.0, sums==2.0]
  oci: {image: "registry/mill:1.0"}
moves:
  - {from: old_rate, to: rate}
"""


def wheel(folder: Path, version: str, requires: str = "") -> Path:
    path = folder / f"mill-{version}-py3-none-any.whl"
    flags = "\n".join(
        f"    parser.add_argument('--{name}', type={kind}, default={value}, help={HELP.get(name)!r})"
        for name, value in FLAGS[version].items()
        for kind in [type(value).__name__]
    )
    checks = "\n".join(f"    {line}" for line in CHECKS[version])
    info = f"mill-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: mill\nVersion: {version}\n{requires}"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mill/__init__.py", "")
        archive.writestr("mill/train.py", SCRIPT.format(flags=flags, checks=checks))
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def mill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A project, and mill 1.0 among its manifests; 1.1 and 1.2 lie where pip looks."""
    world = World(tmp_path, monkeypatch)
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for version in FLAGS:
        wheel(shelf, version, "Requires-Dist: sums>=2\n" if version == "1.1" else "Requires-Dist: sums>=3\n")
    for name, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(shelf),
        "PIP_CONFIG_FILE": "/dev/null",
    }.items():
        world.env(name, value)
    world.manifests = tmp_path / "manifests"
    folder = world.manifests / "mill"
    for name, text in {
        "framework.yaml": FRAMEWORK,
        "releases/1.0.yaml": RELEASE,
        "methods/grind.yaml": METHOD,
        "rules/stones.yaml": RULES,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    world.env("TUNEPORT_MANIFEST_PATH", str(world.manifests))
    world.env("TUNEPORT_CACHE_DIR", str(tmp_path / "cache"))
    from tuneport.upstream.scan import scan

    forget()
    (folder / "surfaces").mkdir()
    (folder / "surfaces/1.0.json").write_text(
        scan(shelf / "mill-1.0-py3-none-any.whl", "mill").text(), "utf-8"
    )
    forget()
    return world


def by_name(adoption: Adoption) -> dict[str, Any]:
    return {one.name: one for one in adoption.verdicts}


def test_a_release_is_drafted_as_data_and_nothing_that_is_there_changes(mill: World) -> None:
    mill.experiment("mill/grind", "rate: 0.5\n", name="old")
    kept = {path: path.read_bytes() for path in mill.manifests.rglob("*") if path.is_file()}
    before = mill.plan_json("old")
    adoption = adopt("mill", "1.1")
    assert {path: path.read_bytes() for path in mill.manifests.rglob("*") if path.is_file()} == kept
    assert list(adoption.files) == ["mill/releases/1.1.yaml", "mill/surfaces/1.1.json"]
    adoption.write(mill.manifests)
    forget()
    written = read_yaml(mill.manifests / "mill/releases/1.1.yaml").data
    assert written["runtime"]["venv"]["variants"]["any"]["requirements"] == ["mill==1.1", "sums==2.0"]
    assert written["runtime"]["id"] == "mill-1.1"
    assert written["runtime"]["oci"] == {}, "an image holds the code of the release that it was built for"
    assert written["artefacts"][0]["version"] == "1.1" and len(written["artefacts"][0]["sha256"]) == 64
    text = (mill.manifests / "mill/releases/1.1.yaml").read_text()
    assert "# what it was proved with\n" in text and "        # all of it\n" in text
    assert {"from": "old_rate", "to": "rate"} in written["moves"]
    # Locked to the old release: the same plan to the byte, and still the default.
    assert mill.plan_json("old") == before
    assert (
        mill.experiment("mill/grind", name="plain")
        and mill.plan_json("plain")["runtime"] == before["runtime"]
    )
    mill.experiment("mill/grind", "rate: 0.5\nsieve: 2\n", name="new", version="1.1")
    plan = mill.plan_json("new")
    assert "--sieve=2" in plan["commands"][0]["argv"] and plan["config"]["rate"] == 0.5


def test_verdicts_stand_on_code_keys_or_a_person(mill: World) -> None:
    adoption = adopt("mill", "1.1")
    found = {name: (one.applies, one.how) for name, one in by_name(adoption).items()}
    assert found["mill-stones"] == (True, "same code")
    assert found["mill-rate"] == (True, "neighbour")
    assert found["mill-speed"] == (False, "no such key")
    assert found["mill-sums"] == (True, "other package")
    assert found["seed"] == (False, "no such key")
    sheet = adopt_review.document(adoption)
    assert any("mill-rate applies as in 1.0, and no code proves it" in line for line in sheet["decide"])
    assert not [line for line in sheet["decide"] if "mill-stones" in line]
    assert any("sieve is new" in line for line in sheet["decide"])
    assert any("grist" in line for line in sheet["decide"]), "where it went, or that it is gone, is said"
    assert any("keep their digest" in line for line in sheet["proved"])
    assert sheet["ok"] and not sheet["failed"]
    assert [row["errors"] for row in sheet["methods"]] == [[]]
    assert "its plan is that of 1.0" in adopt_review.sheet(adoption)
    # By hand 1.1 takes any rate; 1.2 says of stones what 1.1 says, and of the rate something else.
    adoption.write(mill.manifests)
    path = mill.manifests / "mill/releases/1.1.yaml"
    path.write_text(path.read_text().replace("  rules:\n", "  rules:\n    mill-rate: 1.1 takes any rate\n"))
    forget()
    later = adopt("mill", "1.2")
    found = {name: (one.applies, one.how) for name, one in by_name(later).items()}
    assert later.base == "1.1"
    assert found["mill-rate"] == (False, "neighbour") and found["mill-stones"] == (True, "same code")
    assert any("a check of rate is new" in line for line in adopt_review.document(later)["decide"])
    # Between two releases that disagree about a rule, it is what to look at first.
    later.write(mill.manifests)
    path.unlink()
    forget()
    between = adopt("mill", "1.1")
    assert by_name(between)["mill-rate"].how == "apart"
    first = adopt_review.document(between)["decide"][0]
    assert first.startswith("rule mill-rate applies as in 1.0 and unlike the release after it")


def test_a_changed_default_and_an_unmet_requirement_are_said(mill: World) -> None:
    adoption = adopt("mill", "1.2")
    assert not adoption.ok
    sheet = adopt_review.document(adoption)
    assert sheet["failed"] == ["any: it needs sums >=3 and 2.0 is pinned"]
    assert any("default of stones" in line and "2 -> 4" in line for line in sheet["decide"])


def test_what_the_base_leaves_open_is_for_a_person_and_no_failure() -> None:
    spec = {"runtime": {"venv": {"variants": {"any": {"requirements": ["mill==1.0", "cogs==1.0"]}}}}}
    wanted = {"sums": ">=2", "cogs": ">=2", "fresh": "", "odd": '; platform_system == "Nowhere"'}
    scan = Scan("mill", "1.1", "mill", "1.1", {}, requirements=wanted)
    failed, left_open = adopt_release.unmet(spec, scan, {"sums": ">=1", "cogs": ">=1"})
    assert left_open == ["any: it needs sums >=2, which is not pinned"]
    assert failed == ["any: it needs cogs >=2 and 1.0 is pinned", "any: it needs fresh, which is not pinned"]


@pytest.mark.upstream  # pip fetches, and a process of its own proves: seconds
def test_a_framework_whose_methods_read_another_surface_gets_none(mill: World) -> None:
    """What changed is then told by the code of both."""
    (mill.manifests / "mill/surfaces/1.0.json").unlink()
    release = mill.manifests / "mill/releases/1.0.yaml"
    release.write_text(release.read_text().replace("surface: 1.0.json\n", ""))
    method = mill.manifests / "mill/methods/grind.yaml"
    method.write_text(method.read_text().replace("entry: mill.train", "surface: {script: train.py}"))
    forget()
    adoption = adopt("mill", "1.1")
    assert list(adoption.files) == ["mill/releases/1.1.yaml"]
    assert "surface:" not in adoption.files["mill/releases/1.1.yaml"]
    assert [move.new for move in adoption.difference.moved] == ["grain_size"]
    assert [key.key for key in adoption.difference.removed] == ["speed"]


SCRIPTS = {
    "good.sh": "python -m mill.train --data d --model m --rate 0.5\n",
    "deep/moved.sh": "# ours\nR=0.5\npython -m mill.train --data d --model m \\\n  --rate $R --speed 3\n",
    "early.sbatch": "python -m mill.train --data d --model m --sieve 2\n",
    "wrong.sh": "python -m mill.train --data d --model m --nothing 2\npython -m mill.train --model m\n",
    "other.sh": "echo hello\n",
    ".hidden/gone.sh": "python -m mill.train --speed 3\n",
    "notes.txt": "python -m mill.train --speed 3\n",
}


def scripts(mill: World) -> str:
    """A folder of commands that people have."""
    for name, text in SCRIPTS.items():
        (mill.folder / "ours" / name).parent.mkdir(parents=True, exist_ok=True)
        (mill.folder / "ours" / name).write_text(text, "utf-8")
    return str(mill.folder / "ours")


def second(mill: World) -> None:
    """1.1 among the manifests, as an adoption would have written it."""
    from tuneport.upstream.scan import scan

    found = scan(mill.folder / "shelf/mill-1.1-py3-none-any.whl", "mill")
    (mill.manifests / "mill/surfaces/1.1.json").write_text(found.text(), "utf-8")
    text = RELEASE.replace("1.0", "1.1").replace("moves:", "gates: {params: {seed: gone}}\nmoves:")
    (mill.manifests / "mill/releases/1.1.yaml").write_text(text, "utf-8")
    forget()


def test_commands_that_people_have_are_checked_at_both_releases(mill: World) -> None:
    second(mill)
    folder = scripts(mill)
    odd = mill.folder / "odd\udcff"
    odd.mkdir()
    (named,) = adopt_commands.compare("mill", "1.1", "1.0", [str(odd)]).folders
    assert named.encode().endswith(rb"odd\udcff"), "text that a sheet can be written with"
    found = adopt_commands.compare("mill", "1.1", "1.0", [folder])
    assert (found.scripts, found.others, found.unread, found.why) == (5, 1, [], "")
    assert (found.commands, found.both, found.neither) == (5, 1, 2)
    (new,), (gone,) = found.new, found.gone
    assert new.startswith(f"{folder}/deep/moved.sh:4: key-") and "speed" in new
    assert gone.startswith(f"{folder}/early.sbatch:1: key-") and "sieve" in gone
    # The new release has no such program any more.
    surface = mill.manifests / "mill/surfaces/1.1.json"
    surface.write_text(surface.read_text().replace('"mill.train"', '"mill.teach"'))
    forget()
    later = adopt_commands.compare("mill", "1.1", "1.0", [folder])
    assert f"{folder}/good.sh:1: entry-unknown: mill.train is no program of 1.1" in later.new
    assert (later.commands, later.both, len(later.new)) == (5, 0, 5)


def runtime(mill: World, old: str = "", new: str = "") -> None:
    """The runtime of 1.1, built of its wheel with one change of the code."""
    from tuneport.runtimes import venvs
    from tuneport.runtimes.interpreters import this_interpreter
    from tuneport.runtimes.variants import digest, pick

    here = this_interpreter()
    assert here is not None
    variant = pick(catalog.release_spec("mill", "1.1"), "mill", "any")
    folder = venvs.folder(variant, digest(variant, here.tag))
    if not folder.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    with zipfile.ZipFile(mill.folder / "shelf/mill-1.1-py3-none-any.whl") as archive:
        archive.extractall(site)
    code = (site / "mill/train.py").read_text()
    assert old in code
    (site / "mill/train.py").write_text(code.replace(old, new, 1) if old else code)
    venvs.write_marker(
        venvs.Built(folder, "ready", variant.runtime_id, "any", variant.release, here.version, here.tag)
    )


def test_the_parser_of_the_release_is_asked_where_its_runtime_is_installed(mill: World) -> None:
    second(mill)
    mill.experiment("mill/grind", version="1.1")

    def asked() -> adopt_oracle.Answers:
        return adopt_oracle.ask("mill", "1.1", lambda _, profile: mill.plan("exp", profile=profile))

    missing = asked()
    assert "no oracle here: runtime mill-1.1 (any) is not installed; --install" in missing.why
    runtime(mill)
    answers = asked()
    assert (answers.accepted, answers.refused, answers.unasked) == (["mill/grind"], {}, {})
    assert (answers.runtime, answers.entries, answers.keys) == ("mill-1.1 (any)", 1, 7)
    assert (answers.unlike, answers.why) == ([], "")
    # A parser that is not what the wheel seemed to say: another default, and a model that it does not take.
    more = (
        '    parser.set_defaults(stones=7)\n    parser.add_argument("--more")\n'
        '    parser._option_string_actions["--model"].choices = ["tiny"]\n    return parser\n'
    )
    runtime(mill, "    return parser\n", more)
    answers = asked()
    assert answers.accepted == [] and "invalid choice: 'org/model'" in answers.refused["mill/grind"]
    assert answers.refused["mill/grind"].startswith("mill.train: error: argument --model")
    assert answers.unlike == [
        'mill.train: the choices of model are null and in its parser ["tiny"]',
        "mill.train: the default of stones is 2 and in its parser 7",
        "mill.train: its parser takes more, which the surface lacks",
    ]
    # One that cannot be had at all, and one whose process dies.
    runtime(mill, "import argparse", "import argparse, nowhere")
    assert asked().refused == {"mill/grind": "ModuleNotFoundError: No module named 'nowhere'"}
    runtime(mill, "import argparse", "import argparse, os; os._exit(9)")
    assert asked().why.endswith("could not be asked: exit code 9")
    framework = mill.manifests / "mill/framework.yaml"
    framework.write_text(framework.read_text().replace("oracle: {parser: make}\n", ""))
    forget()
    assert asked().why == "no manifest says how mill's own parser is asked"


@pytest.mark.upstream  # builds a runtime with pip
def test_the_drafted_runtime_is_built_where_that_is_asked_for(mill: World) -> None:
    with zipfile.ZipFile(mill.folder / "shelf/sums-2.0-py3-none-any.whl", "w") as archive:
        info = "sums-2.0.dist-info"
        archive.writestr("sums/__init__.py", "")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: sums\nVersion: 2.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    adoption = adopt("mill", "1.1", install=True)
    sheet = adopt_review.document(adoption)
    asked = "the release's own parser, in mill-1.1 (any)"
    assert f"{asked}, takes the starting command of mill/grind" in sheet["proved"]
    assert any("names, defaults and choices of 7 keys" in line for line in sheet["proved"])
    assert (sheet["oracle"]["unlike"], sheet["notes"]) == ([], [])
    # The runtime is there from now on; its code is changed behind its back.
    (train,) = mill.folder.glob("cache/runtimes/mill-1.1-any-*/lib/python3*/site-packages/mill/train.py")
    train.write_text(train.read_text().replace("    return parser\n", "    parser.error('shut')\n"))
    later = adopt_review.document(adopt("mill", "1.1"))
    assert later["decide"][0].startswith(f"mill/grind: {asked}, refuses its starting command: SystemExit")


@pytest.mark.upstream  # a process of its own proves: seconds
def test_the_scripts_of_a_source_folder_are_its_commands_unless_others_are_named(mill: World) -> None:
    tree = mill.folder / "tree"
    with zipfile.ZipFile(mill.folder / "shelf/mill-1.1-py3-none-any.whl") as archive:
        archive.extractall(tree)
    (tree / "examples").mkdir()
    (tree / "examples/grind.sh").write_text(SCRIPTS["good.sh"], "utf-8")
    found = adopt_review.document(adopt("mill", "1.1", source=str(tree)))["commands"]
    assert (found["folders"], found["commands"], found["both"]) == ([str(tree)], 1, 1)
    ours = scripts(mill)
    named = adopt_review.document(adopt("mill", "1.1", source=str(tree), commands=[ours]))["commands"]
    assert (named["folders"], named["commands"]) == ([ours], 5)


def test_what_cannot_be_adopted_is_said_before_anything_is_read(
    mill: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Invalid, match="among the manifests already"):
        adopt("mill", "1.0")
    for odd in ("../../1.1", "", "1.1\n", "é" * 5000):
        with pytest.raises(Invalid, match="cannot be the name of a release"):
            adopt("mill", odd, source=str(mill.folder / "shelf/mill-1.1-py3-none-any.whl"))
    with pytest.raises(NotFound, match="no framework here"):
        adopt("nowhere", "1.0")
    with pytest.raises(Invalid, match="is not a folder"):
        adopt("mill", "1.1", commands=[str(mill.folder / "shelf/mill-1.1-py3-none-any.whl")])
    with pytest.raises(Invalid, match="'' is not a folder"):
        adopt("mill", "1.1", commands=[""])
    note = mill.folder / "mill.whl.txt"
    with pytest.raises(Invalid, match="no file or folder"):
        adopt("mill", "1.1", source=str(note))
    note.touch()
    monkeypatch.chdir(mill.folder)
    with pytest.raises(Invalid, match="is no NAME==VERSION, archive or folder"):  # and no index is asked
        adopt("mill", "1.1", source=note.name)
    for review in (str(mill.folder), str(mill.folder / "none/sheet.md")):
        done = tp("upstream", "adopt", "mill", "1.1", "--into", ".", "--review", review, cwd=mill.folder)
        assert (done.returncode, "review sheet cannot be written" in done.stderr) == (3, True), done.stderr
    assert target(str(mill.folder)) == mill.folder
    with pytest.raises(Invalid, match="is not a folder"):
        target(str(mill.folder / "none"))
    monkeypatch.delenv("TUNEPORT_MANIFEST_PATH")
    with pytest.raises(Invalid, match="no manifest folder was named"):
        target("")


def test_the_command_shows_the_sheet_and_writes_on_a_yes_alone(mill: World) -> None:
    folder = scripts(mill)
    command = ["upstream", "adopt", "mill", "1.1", "--into", str(mill.manifests), "--commands", folder]
    done = tp(*command, "--review", str(mill.folder / "sheet.md"), cwd=mill.root)
    assert done.returncode == 2, done.stderr
    assert "## Proved" in done.stdout and "## For a person to decide" in done.stdout
    assert (mill.folder / "sheet.md").read_text() == done.stdout
    assert not (mill.manifests / "mill/releases/1.1.yaml").exists() and "--yes" in done.stderr
    code, said = tp_json(*command, "--yes", cwd=mill.root)
    counted = f"5 commands in 5 scripts of {folder}: 1 without an error at 1.0 and at 1.1"
    assert f"{counted}, 2 with the same ones at both" in said["proved"]
    (new,), (gone,) = said["commands"]["new"], said["commands"]["gone"]
    assert f"an error at 1.1 alone: {new}" in said["decide"] and "moved.sh:4: key-" in new
    assert f"an error at 1.0 alone: {gone}" in said["notes"] and "early.sbatch:1: key-" in gone
    assert any("no oracle here: runtime mill-1.1 (any)" in line for line in said["notes"])
    assert (code, said["ok"], said["base"]) == (0, True, "1.0")
    assert [Path(path).name for path in said["written"]] == ["1.1.yaml", "1.1.json"]
    again = tp(*command, "--yes", cwd=mill.root)
    assert again.returncode == 3 and "among the manifests already" in again.stderr
    assert json.loads((mill.manifests / "mill/surfaces/1.1.json").read_text())["release"] == "1.1"
