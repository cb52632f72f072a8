"""Moving an experiment to another release: what is renamed, what is kept, what is only named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuneport.errors import Invalid
from tuneport.experiment import lock, project, two_files
from tuneport.experiment.yamlread import parse_yaml
from tuneport.porting import moves
from tuneport.porting.rewrite import rename
from tuneport.porting.upgrade import alone, resume, upgrade
from tuneport.types import Key

from .core_support import FLAGS, SLOW, World, codes, forget, tp, tp_json

MOVED = {
    "old_rate": "optim.lr",
    "training.old_name": "optim.name",
    "deep.branch.kept": "deep.branch.renamed",
    "deep.branch.gone": "elsewhere.new",
}
"""One of each way: out of the outermost mapping, into another section, a new word, out of a deep one."""
VALUES = ("1", "2.5e-4 ", "no", '"é # no comment"', "'it''s'", "[1, {a: b},\n      2]", "", "~", "🦙 text")
BLOCKS = (
    "|\n{0}  line\n\n{0}   more\n",
    ">-\n{0}  a\n{0}  b\n",
    "\n{0}  inner: 1 # x\n\n{0}  other: [2]\n",
    "\n{0}- 1\n{0}- 2\n",
)
COMMENTS = ("", "", " # why", "   # ünï: {a}")


@st.composite
def files(draw: Any) -> tuple[str, set[str]]:
    """(a config.yaml with some of the moved keys among others, which of them)."""
    present: set[str] = set()
    number = 0

    def entry(indent: str, name: str) -> str:
        text = ""
        if draw(st.booleans()):
            text += draw(st.sampled_from([f"{indent}# about {name}\n", "\n", "  \n", "# far left\n"]))
        word = draw(st.sampled_from([name, f'"{name}"', f"'{name}'"]))
        if draw(st.integers(0, 3)):
            value = draw(st.sampled_from(VALUES))
            return f"{text}{indent}{word}: {value}{draw(st.sampled_from(COMMENTS))}\n"
        return f"{text}{indent}{word}: " + draw(st.sampled_from(BLOCKS)).format(indent)

    def section(indent: str, path: str, names: list[str]) -> str:
        nonlocal number
        text = ""
        for name in draw(st.permutations(names)):
            dotted = f"{path}{name}"
            below = [key for key in MOVED if key.startswith(dotted + ".")]
            number += 1
            if below:
                rest = sorted({key[len(dotted) + 1 :].partition(".")[0] for key in below})
                inner = section(indent + "  ", dotted + ".", [*rest, f"other{number}"])
                text += f"{indent}{name}:{draw(st.sampled_from(COMMENTS))}\n{inner}"
            elif name.startswith("other") or draw(st.booleans()):
                present.update({dotted} & MOVED.keys())
                text += entry(indent, name)
        return text or f"{indent}other{number}: 1\n"

    text = section("", "", ["old_rate", "training", "deep", "other"])
    text = draw(st.sampled_from(["", "---\n", "# head\n\n"])) + text
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return (text if draw(st.booleans()) else text.rstrip("\r\n")), present


def leaves(data: Any, path: str = "") -> dict[str, str]:
    found = {}
    for key, value in data.items():
        if isinstance(value, dict) and value:
            found |= leaves(value, f"{path}{key}.")
        else:
            found[f"{path}{key}"] = json.dumps(value)
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(files())
def test_only_the_lines_of_moved_keys_change(case: tuple[str, set[str]]) -> None:
    text, present = case
    before = parse_yaml(text)
    assert not before.findings, before.findings
    names = {name: MOVED[name] for name in present}
    new, left = rename(text, names)
    after = parse_yaml(new)
    assert not after.findings
    went = {old: name for old, name in names.items() if old not in left}
    expected = {}
    for name, value in leaves(before.data).items():
        old = next((old for old in went if name == old or name.startswith(f"{old}.")), "")
        expected[went[old] + name[len(old) :] if old else name] = value
    assert leaves(after.data) == expected
    # Every line of the old text that holds no moved key is in the new one, in its order, to the byte.
    kept = [line for line in text.splitlines() if not any(part in line for part in ("old_", "gone", "kept"))]
    rest = iter(new.splitlines())
    comments = [line for line in kept if line.lstrip().startswith("#")]
    assert all(line in rest for line in comments), new
    if not {"training.old_name", "deep.branch.gone"} & went.keys():  # nothing left its place
        assert len(text.splitlines()) == len(new.splitlines())
        for old, line in zip(text.split("\n"), new.split("\n"), strict=True):
            words = [(key.rpartition(".")[2], name) for key, name in went.items()]
            assert line == old or any(word in old and name.rpartition(".")[2] in line for word, name in words)
    if not went:
        assert new == text


@pytest.mark.parametrize(
    ("text", "names", "why"),
    [
        ("a: {b: 1}\n", {"a.b": "c.d"}, "inside braces"),
        ("x: &x {b: 1}\na:\n  <<: *x\n", {"a.b": "a.c"}, "not written as a key"),
        ("x:\n  k: &v 1\n  l: *v\n", {"x.k": "y.k"}, "depends on its place"),
        ("a:\n  b: &v\n    c: 1\nd: {e: *v}\n", {"a.b.c": "a.b.x"}, "depends on its place"),
        ("a:\n  ? b\n  : 1\n  c: 2\n", {"a.b": "d.b"}, "begins with something else"),
        ("a: 1\nb:\n  c: 1\n", {"a": "b"}, "a section of its own"),
    ],
)
def test_what_cannot_move_by_its_text_is_named_and_the_file_kept(
    text: str, names: dict[str, str], why: str
) -> None:
    new, left = rename(text, names)
    assert new == text
    assert why in left[next(iter(names))]


def test_an_emptied_section_goes_and_its_comment_stays() -> None:
    text = "a: # first\n  # second\n  b:\n    c: 1 # third\nz: 0\n"
    new, left = rename(text, {"a.b.c": "n.c"})
    assert (new, left) == ("# first\n  # second\nn.c: 1 # third\nz: 0\n", {})


def test_a_branch_moves_as_one_where_all_below_it_does() -> None:
    found = moves.gathered({"a.b": "x.b", "a.c.d": "x.c.d", "e.f": "g"}, ["a.b", "a.c.d", "e.f", "e.h"])
    assert found == {"a": "x", "e.f": "g"}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """acme with releases 2.1.0 and 2.2.0, in which keys moved, and then moved again."""
    made = World(tmp_path, monkeypatch)
    acme = made.own_manifests()
    text = (acme / "releases/2.0.0.yaml").read_text("utf-8")
    surface = json.loads((acme / "surfaces/2.0.0.json").read_text("utf-8"))
    steps = {
        "2.1.0": [
            ("batch", "train.batch_size", ""),
            ("mode", "optim.kind", "fast is online"),
            ("method", "optim.name", ""),
            ("lost", "nowhere.there", ""),
            ("both", "train.steps", ""),
            ("both", "train.epochs", ""),
        ],
        "2.2.0": [("train.batch_size", "train.batch", ""), ("seeds", "train.seed", "")],
    }
    for version, moved in steps.items():
        kept = text.replace("2.0.0", version).partition("\nmoves:")[0]
        rows = [{"from": old, "to": new, **({"note": note} if note else {})} for old, new, note in moved]
        (acme / f"releases/{version}.yaml").write_text(f"{kept}\nmoves: {json.dumps(rows)}\n", "utf-8")
        document = {**surface, "release": version}
        (acme / f"surfaces/{version}.json").write_text(json.dumps(document), "utf-8")
    forget()
    return made


WRITTEN = """\
# what we train
batch: 16   # pairs

train:
  seed: 7
seeds: 3
method: rmsprop # not one of theirs
mode: "fast"
lost: 1
both: 2
nothing: 5
"""


def test_keys_are_carried_over_several_releases_and_the_rest_is_named(world: World) -> None:
    path = world.experiment(config=WRITTEN, version="2.0.0")
    plan = upgrade("exp", "2.2.0")
    assert plan.moved == {"batch": "train.batch"}
    assert plan.after == WRITTEN.replace("batch: 16", "train.batch: 16")
    assert [line for line in plan.difference().splitlines() if line[0] in "+-"][2:] == [
        "-batch: 16   # pairs",
        "+train.batch: 16   # pairs",
    ]
    why = {row.key: (row.line, row.why) for row in plan.left}
    assert list(why) == ["seeds", "method", "mode", "lost", "both", "nothing"]
    assert why["seeds"][0] == 6 and "train.seed, to which it moved, is set already" in why["seeds"][1]
    assert "its value does not fit" in why["method"][1] and "adam" in why["method"][1]
    assert "write optim.kind by hand" in why["mode"][1] and "fast is online" in why["mode"][1]
    assert "nowhere.there, to which it moved, is not there either" in why["lost"][1]
    assert "one of train.steps, train.epochs" in why["both"][1]
    assert "no key `nothing`" in why["nothing"][1]
    assert (path / "config.yaml").read_text() == WRITTEN, "a plan writes nothing"
    plan.apply()
    assert (path / "config.yaml").read_text() == plan.after
    assert json.loads((path / lock.NAME).read_text()) == lock.make("acme/tune", "2.2.0")
    assert two_files.NOTE not in os.listdir(path)


def test_an_older_release_gets_the_older_names_back(world: World) -> None:
    steps = moves.between("acme", "2.2.0", "2.0.0")
    found = moves.destination("train.batch", steps, {"batch": Key("batch", ("int",))})
    assert found.names == ("batch",)


def test_nothing_is_written_without_a_yes_where_nobody_can_be_asked(world: World) -> None:
    path = world.experiment(config="batch: 16\n", version="2.0.0")
    (path / "config.yaml").chmod(0o600)
    before = {name: (path / name).read_bytes() for name in os.listdir(path)}
    asked = tp("recipe", "upgrade", "exp", "--framework-version", "2.2.0", cwd=world.root)
    assert asked.returncode == 2
    assert "+train.batch: 16" in asked.stdout and "--yes" in asked.stderr
    assert {name: (path / name).read_bytes() for name in os.listdir(path)} == before
    code, said = tp_json("recipe", "upgrade", "exp", "--framework-version", "2.2.0", cwd=world.root)
    assert (code, said["ok"], said["written"], said["moved"]) == (2, False, False, {"batch": "train.batch"})
    code, said = tp_json("recipe", "upgrade", "exp", "--framework-version", "2.2.0", "--yes", cwd=world.root)
    assert (code, said["ok"], said["written"], said["left"]) == (0, True, True, [])
    assert (path / "config.yaml").read_text() == "train.batch: 16\n"
    assert (path / "config.yaml").stat().st_mode & 0o777 == 0o600
    assert world.validate().ok


@pytest.mark.parametrize(
    "content", [b"batch: [\n", b"batch: 1\nbatch: 2\n", b"batch: 1 # \xe9\n", b"- batch\n"]
)
def test_a_file_that_cannot_be_read_is_not_left_behind(world: World, content: bytes) -> None:
    path = world.experiment(config="batch: 16\n", version="2.0.0")
    (path / "config.yaml").write_bytes(content)
    before = (path / lock.NAME).read_bytes()
    code, said = tp_json("recipe", "upgrade", "exp", "--framework-version", "2.2.0", "--yes", cwd=world.root)
    assert (code, said["ok"]) == (3, False)
    assert (path / lock.NAME).read_bytes() == before


@pytest.mark.parametrize("name", ["new.sh", "", "\0", "config.yaml"])
def test_a_note_of_somebody_else_is_not_followed(world: World, name: str) -> None:
    path = world.experiment(config="batch: 16\n", version="2.0.0")
    (path / two_files.NOTE).write_text(json.dumps({name: {"was": "", "text": "\ud800"}}))
    with pytest.raises(Invalid, match="is no note of an upgrade"):
        resume("exp")


def test_a_link_is_not_replaced_and_what_it_leads_to_not_changed(world: World) -> None:
    path = world.experiment(config="batch: 16\n", version="2.0.0")
    shared = world.root / "shared.yaml"
    (path / "config.yaml").rename(shared)
    (path / "config.yaml").symlink_to(shared)
    before = (path / lock.NAME).read_bytes()
    done = tp("recipe", "upgrade", "exp", "--framework-version", "2.2.0", "--yes", cwd=world.root)
    assert done.returncode == 3 and f"is a link to {shared}" in done.stderr
    assert (path / "config.yaml").is_symlink() and shared.read_text() == "batch: 16\n"
    assert (path / lock.NAME).read_bytes() == before
    shared.write_text("train: {seed: 3}\n")  # nothing of it moves: the lock alone is written
    done = tp("recipe", "upgrade", "exp", "--framework-version", "2.2.0", "--yes", cwd=world.root)
    assert done.returncode == 0, done.stderr
    assert (path / "config.yaml").is_symlink() and (path / lock.NAME).read_bytes() != before


def test_of_two_upgrades_at_once_one_is_refused(world: World) -> None:
    path = world.experiment(config="batch: 16\n", version="2.0.0")
    asked = ("recipe", "upgrade", "exp", "--framework-version", "2.2.0", "--yes")
    with alone("exp"):
        done = tp(*asked, cwd=world.root)
        assert done.returncode == 6 and "another upgrade of exp is under way" in done.stderr
        assert (path / "config.yaml").read_text() == "batch: 16\n"
    assert tp(*asked, cwd=world.root).returncode == 0
    assert (path / "config.yaml").read_text() == "train.batch: 16\n"


def test_submit_moves_the_lock_alone_only_where_that_is_all(world: World) -> None:
    path = world.experiment(config="batch: 16\n", version="2.0.0")
    before = (path / lock.NAME).read_bytes()
    asked = ("submit", "exp", *FLAGS, "--upgrade-recipe", "--framework-version", "2.2.0", "--dry-run")
    done = tp(*asked, cwd=world.root)
    assert done.returncode == 3 and "does not fit 2.2.0" in done.stderr and "batch" in done.stderr
    assert "tp recipe upgrade exp --framework-version 2.2.0" in done.stderr
    assert (path / lock.NAME).read_bytes() == before
    (path / "config.yaml").write_text("train.batch: 16\n")
    done = tp(*asked, cwd=world.root)
    assert done.returncode == 0, done.stderr
    assert "lock: framework.version: 2.0.0 -> 2.2.0" in done.stderr
    (path / "config.yaml").write_text("batch: 16\n")  # its lock is current: there is nothing to move
    assert tp(*asked, cwd=world.root).returncode == 3
    assert (path / "config.yaml").read_text() == "batch: 16\n"


@pytest.mark.parametrize(
    ("text", "names", "new"),
    [
        ("&k old: 1 # x\n", {"old": "new.name"}, "&k new.name: 1 # x\n"),
        ("!!str old: 1\n", {"old": "new"}, "!!str new: 1\n"),
        ('a:\n  &k !!str "b": &v 1\n', {"a.b": "c.d"}, '&k !!str "c.d": &v 1\n'),
        ("a:\n  !!str b: &v {c: 1}\nd: *v\n", {"a.b": "a.x"}, "a:\n  !!str x: &v {c: 1}\nd: *v\n"),
    ],
)
def test_anchors_and_tags_of_a_key_stay(text: str, names: dict[str, str], new: str) -> None:
    assert rename(text, names) == (new, {})


def test_what_is_left_is_said_by_the_exit_code(world: World) -> None:
    world.experiment(config="nothing: 16\n", version="2.0.0")
    done = tp("recipe", "upgrade", "exp", "--framework-version", "2.2.0", "--yes", cwd=world.root)
    assert done.returncode == 3 and "not carried: nothing (line 1)" in done.stderr


def test_an_edit_while_the_question_stood_is_not_written_over(world: World) -> None:
    path = world.experiment(config="batch: 16\n", version="2.0.0")
    plan = upgrade("exp", "2.2.0")
    (path / "config.yaml").write_text("batch: 17\n")
    with pytest.raises(Invalid, match="edited meanwhile"):
        plan.apply()
    assert (path / "config.yaml").read_text() == "batch: 17\n"


_KILLED = """
import os, signal, sys
from pathlib import Path
from tuneport.porting.upgrade import upgrade
plan = upgrade("exp", "2.2.0")
at, seen = int(sys.argv[1]), 0
for owner, name in ((Path, "replace"), (Path, "unlink")):
    def wrapped(*args, real=getattr(owner, name), **kwargs):
        global seen
        seen += "experiments" in str(args[0])  # what a cache writes does not count
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    setattr(owner, name, wrapped)
plan.apply()
print(seen)
"""


def test_a_kill_at_any_step_leaves_what_the_next_command_names_or_completes(world: World) -> None:
    text = "# mine\nbatch: 16\n"
    config = "# mine\ntrain.batch: 16\n"
    old, new = lock.text(lock.make("acme/tune", "2.0.0")), lock.text(lock.make("acme/tune", "2.2.0"))
    states = set()
    for step in range(1, 20):
        path = world.experiment(config=text, version="2.0.0")
        done = subprocess.run([sys.executable, "-c", _KILLED, str(step)], capture_output=True, text=True)
        here = (path / "config.yaml").read_text(), (path / lock.NAME).read_text()
        assert here[0] in (text, config) and here[1] in (old, new), "a file is never half written"
        note = (path / two_files.NOTE).exists()
        assert note or here in ((text, old), (config, new))
        states.add((*here, note))
        if done.returncode == 0:
            assert here == (config, new) and not note
            break
        assert done.returncode == -signal.SIGKILL
        if note:
            assert "upgrade-unfinished" in codes(project.read("exp").findings)
            assert not world.validate().ok
            with pytest.raises(Invalid, match="interrupted"):
                upgrade("exp", "2.2.0")
            assert resume("exp")
            here = (path / "config.yaml").read_text(), (path / lock.NAME).read_text()
            assert here == (config, new) and not (path / two_files.NOTE).exists()
    assert len(states) >= 4


def test_an_interrupted_upgrade_does_not_write_over_a_later_edit(world: World) -> None:
    path = world.experiment(config="batch: 16\n", version="2.0.0")
    subprocess.run([sys.executable, "-c", _KILLED, "3"], check=False)
    assert (path / two_files.NOTE).exists()
    (path / "config.yaml").write_text("batch: 18\n")
    done = tp("recipe", "upgrade", "exp", cwd=world.root)
    assert done.returncode == 3 and "edited after an upgrade" in done.stderr
    assert (path / "config.yaml").read_text() == "batch: 18\n"
    for broken in ("", "[]", '{"../x": {"was": "", "text": "x"}}', '{"a": 1}'):
        (path / two_files.NOTE).write_text(broken)
        with pytest.raises(Invalid, match="no note"):
            resume("exp")


def test_real_flags_of_a_real_framework_are_carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenRLHF 0.11 put dots into the flags of 0.10, and 0.11.2 changed what two of them mean."""
    from tuneport.experiment.create import new_experiment, new_project

    monkeypatch.chdir(new_project(tmp_path / "p"))
    forget()
    here = project.need_project()
    path, _ = new_experiment(here, "run", "openrlhf/grpo", "0.11.0")
    text = (
        "# a run of ours\nactor_learning_rate: 5.0e-7 # small\n'zero_stage': 3\n\n"
        "algo:\n  advantage:\n    is_correction_type: icepop # see the notes\n    estimator: group_norm\n"
    )
    (path / "config.yaml").write_text(text, "utf-8")
    plan = upgrade("run", "0.11.2")
    assert plan.moved == {"actor_learning_rate": "actor.adam.lr", "zero_stage": "ds.zero_stage"}
    expected = text.replace("actor_learning_rate", "actor.adam.lr").replace("'zero_stage'", "'ds.zero_stage'")
    assert plan.after == expected
    ((key, line, why),) = [(row.key, row.line, row.why) for row in plan.left]
    assert (key, line) == ("algo.advantage.is_correction_type", 7)
    assert "is_correction_mode by hand" in why and "icepop token with mask" in why
