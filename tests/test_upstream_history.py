"""`tp upstream` on releases that were really published, against their own parsers and their own history.

Wheels are fetched by pip and read; the older and the newer release's real parsers, or the real Hydra on both
trees, say what was added, removed and changed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from tuneport.settings import cache_dir, setting
from tuneport.upstream.diff import Difference, diff
from tuneport.upstream.scan import Scan, scan

sys.path.insert(0, str(Path(__file__).parent))
from hydra_reference import Reference, value

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(3600)]
HERE = Path(__file__).parent
ROOT = HERE.parent / "manifests/tuneport_manifests"
SHIPPED = {
    "trl==1.10.0": "trl/surfaces/1.10.0",
    "trl==1.16.0": "trl/surfaces/1.16.0",
    "openrlhf==0.11.0": "openrlhf/surfaces/0.11.0",
    "openrlhf==0.11.2": "openrlhf/surfaces/0.11.2",
    "verl==0.9.0": "verl/surfaces/0.9.0",
    "verl==0.9.1": "verl/surfaces/0.9.1",
    "lm-eval==0.4.13": "evalkit/surfaces/lm-eval-0.4.13",
    "evalscope==1.14.1": "evalkit/surfaces/evalscope-1.14.1",
}
HISTORIES = {
    "verl": ("verl==0.8.0", "verl==0.9.0", "verl==0.9.1"),
    "openrlhf": tuple(f"openrlhf==0.{number}" for number in ("10.1", "10.2", "10.4", "11.0", "11.1", "11.2")),
    "trl": tuple(f"trl==1.{minor}.0" for minor in range(10, 17)),
    "lm-eval": ("lm-eval==0.4.12", "lm-eval==0.4.13"),
    "evalscope": ("evalscope==1.14.0", "evalscope==1.14.1"),
    "torch": tuple(f"torch==2.{minor}.0" for minor in (13, 14, 15)),
}  # fmt: skip
STEPS = [pair for steps in HISTORIES.values() for pair in pairwise(steps)]
# No oracle reads the parsers of 0.10.1, without dots: its moves alone are held against upstream's history.
PARSED = [pair for pair in STEPS if not pair[0].startswith("verl") and pair[0] != "openrlhf==0.10.1"]
MODULES = {
    "lm-eval": {"lm_eval": "lm_eval._cli.run"},
    "evalscope": {"evalscope.cli.cli": "evalscope.arguments"},
}


@cache
def read(name: str) -> Scan:
    beside = ("transformers==5.24.0",) if name.startswith("trl") else ()
    return scan(name, beside=beside)


@cache
def step(old: str, new: str) -> Difference:
    return diff(read(old), read(new))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_surface_is_made_again_byte_for_byte(name: str) -> None:
    found = read(name)
    assert found.text() == (ROOT / f"{SHIPPED[name]}.json").read_text("utf-8")
    assert found.requires_python and found.requirements and not found.code.broken


@pytest.mark.skipif(not setting("SOURCE_NEMO_RL"), reason="TUNEPORT_SOURCE_NEMO_RL is not set")
def test_a_surface_is_made_again_from_a_source_tree() -> None:
    found = scan(str(setting("SOURCE_NEMO_RL")), release="0.7.0")
    shipped = json.loads((ROOT / "nemo-rl/surfaces/0.7.0.json").read_text("utf-8"))
    commit = found.artefacts[0].get("commit", shipped["artefacts"][0]["commit"])  # of a checkout alone
    made = {**json.loads(found.text()), "artefacts": [{**found.artefacts[0], "commit": commit}]}
    assert made == shipped


# --- against the releases' own parsers


# What of torch its launcher's parser is made of; the rest, which needs compiled code, stands for nothing.
TORCHRUN = ("distributed/run.py", "distributed/argparse_util.py", "numa/binding.py")


@cache
def parsers(name: str) -> dict[str, dict[str, Any]]:
    """entry -> key -> facts, as the release's own parsers hold them."""
    found = read(name)
    distribution = name.partition("==")[0]
    if distribution == "torch":
        with tempfile.TemporaryDirectory() as tree:
            for file in TORCHRUN:
                target = Path(tree, "torch", file)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(found.sources.roots[0] / "torch" / file, target)
            alone = ["torch", "torch.distributed", "torch.numa"]
            modules = list(found.keys)
            asked = {"trees": [tree], "alone": alone, "modules": modules}
            words = [sys.executable, str(HERE / "data/upstream_oracle.py")]
            held: dict[str, dict[str, Any]] = json.loads(_asked(words, asked))
            return held
    if distribution == "openrlhf":
        script = HERE.parent / "plugins/openrlhf/tests/openrlhf_oracle.py"
        entries = list(found.keys)
        words = [sys.executable, str(script), str(found.sources.roots[0])]
        held = json.loads(_asked(words, [{"surface": entry} for entry in entries]))
        options = {"--help"}
        return {
            entry: {
                option[2:].replace("-", "_"): fact
                for option, fact in one.items()
                if option not in options | {"-h"}
            }
            for entry, one in zip(entries, held, strict=True)
        }
    runtime = {"trl": "trl-1.16.0-cpu", "lm-eval": "evalkit-lm-eval", "evalscope": "evalkit-evalscope"}[
        distribution
    ]
    pythons = sorted(cache_dir().glob(f"runtimes/{runtime}*/bin/python"))
    if not pythons:
        pytest.skip(f"no runtime {runtime} is installed")
    modules = MODULES.get(distribution, {entry: entry for entry in found.keys})
    trees = [str(root) for root in found.sources.roots[:1]]
    asked: dict[str, Any] = {"trees": trees, "modules": list(modules.values())}
    if distribution == "trl":
        asked["make_parser"] = True
    held = json.loads(
        _asked([str(pythons[0]), str(HERE / "data/upstream_oracle.py")], asked).splitlines()[-1]
    )
    return {entry: held[module] for entry, module in modules.items()}


def _asked(words: list[str], question: Any) -> str:
    done = subprocess.run(words, input=json.dumps(question), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def ours(found: Difference, entry: str) -> tuple[set[str], set[str], set[str], set[str]]:
    """Keys that were added to an entry, removed from it, given another default, or to be added by hand."""
    moved = [move for move in found.moved if entry in move.entries]
    added = {item.key for item in found.added if entry in item.entries} | {move.new for move in moved}
    removed = {item.key for item in found.removed if entry in item.entries} | {move.old for move in moved}
    changed = {kind: {item.key for item in found.changed if item.kind == kind and entry in item.entries}
               for kind in ("default", "flag", "required")}  # fmt: skip
    return added, removed, changed["default"] | changed["required"], changed["flag"]


@pytest.mark.parametrize(("old", "new"), PARSED)
def test_no_addition_removal_or_default_is_missed(old: str, new: str) -> None:
    found, before, after = step(old, new), parsers(old), parsers(new)
    compared = 0
    for entry in before.keys() & after.keys():
        was, now = before[entry], after[entry]
        added, removed, defaults, _ = ours(found, entry)
        assert added == now.keys() - was.keys(), entry
        assert removed == was.keys() - now.keys(), entry
        real = {key for key in was.keys() & now.keys() if was[key]["default"] != now[key]["default"]}
        open_ = {
            why.rpartition(" ")[2] for why in found.undecided if "the host decides" in why
        }  # the clock, say
        known = {key for key in real if "<" not in f"{was[key]['default']}{now[key]['default']}"} - open_
        assert known <= defaults, f"{entry}: {known - defaults}"
        compared += len(was)
    assert compared > 29


@pytest.mark.parametrize("name", HISTORIES["torch"])
def test_a_launcher_is_read_as_its_own_parser_is(name: str) -> None:
    """Every flag of torchrun with the default and the choices that it has there."""
    entry = "torch.distributed.run"
    known, undecided = read(name).keys[entry], read(name).undecided
    held = parsers(name)[entry]
    assert known.keys() == held.keys() and len(held) >= 30
    for key, fact in held.items():
        if f"{entry}: the host decides the default of {key}" in undecided:
            assert fact["default"] in (False, None)  # as the class of its action says
        else:
            assert known[key].default == fact["default"], key
        if f"{entry}: the choices of {key} are computed" not in undecided:
            assert list(known[key].choices) == (fact["choices"] or []), key


@pytest.fixture(scope="module")
def hydra() -> Iterator[Reference]:
    process = Reference()
    yield process
    process.close()


@pytest.mark.parametrize(("old", "new"), [pair for pair in STEPS if pair[0].startswith("verl")])
def test_the_difference_is_that_of_the_composed_trees(hydra: Reference, old: str, new: str) -> None:
    found = step(old, new)
    compared = 0
    for entry in found.old.keys.keys() & found.new.keys.keys():
        start, _, option = entry.partition(" ")
        if "keys" in found.old.surface["entries"].get(entry, {}) or (
            option and not option.startswith("model_engine")
        ):
            continue
        was, now = (_composed(hydra, one, start, option) for one in (found.old, found.new))
        added, removed, defaults, flags = ours(found, entry)
        if option:  # what the entry has without the option is told there
            more = ours(found, start)
            added, removed, defaults, flags = (
                a | b for a, b in zip((added, removed, defaults, flags), more, strict=True)
            )
        assert now.keys() - was.keys() <= added | flags, now.keys() - was.keys() - added - flags
        assert was.keys() - now.keys() <= removed | flags, was.keys() - now.keys() - removed - flags
        changed = {key for key in was.keys() & now.keys() if repr(was[key]) != repr(now[key])}
        assert changed <= defaults, f"{entry}: {changed - defaults}"
        if not option:
            held = [
                {key for key, item in one.keys[entry].items() if not item.add}
                for one in (found.old, found.new)
            ]
            assert added & held[1] == now.keys() - was.keys() - flags
            assert removed & held[0] == was.keys() - now.keys() - flags
        compared += 1
    assert compared > 6


def _composed(hydra: Reference, one: Scan, entry: str, option: str) -> dict[str, Any]:
    item: Mapping[str, Any] = one.surface["entries"][entry]
    root = one.sources.roots[0]
    real = hydra.ask(
        "compose",
        folder=str(root / item["path"][0]),
        config=item["config"],
        overrides=[option] if option else [],
        cwd=str(root),
        packages=["verl.trainer.config"],
    )
    assert real is not None, hydra.reason
    return {key: value(leaf) for key, leaf in real}


# --- moves


TRUTH = {
    (item["old"], item["new"]): item["moves"]
    for item in yaml.safe_load((HERE / "data/upstream_moves.yaml").read_text())
}


def test_moves_are_found_as_upstream_made_them() -> None:
    """Precision and recall, at least 90 % over all histories together and for each one that has moves."""
    total = {"found": 0, "right": 0, "true": 0, "met": 0}
    rows = []
    for old, new in STEPS:
        truth: dict[str, list[str]] = TRUTH.get((old, new), {})
        moved = step(old, new).moved
        right = [move for move in moved if move.new in truth.get(move.old, ())]
        met = {move.old for move in right}
        row = {"found": len(moved), "right": len(right), "true": len(truth), "met": len(met)}
        total = {name: total[name] + row[name] for name in total}
        rows.append(f"{old} -> {new}: {row} wrong {[(m.old, m.new) for m in moved if m not in right]}")
        rows.append(f"   missed {sorted(truth.keys() - met)}")
        if truth:
            assert row["right"] >= 0.9 * row["found"] and row["met"] >= 0.9 * row["true"], "\n".join(rows)
    print("\n".join([*rows, str(total)]))
    assert total["right"] >= 0.9 * total["found"] and total["met"] >= 0.9 * total["true"], "\n".join(rows)
