"""The releases' own parsers and checks against our surfaces, rules and plans. The wheels are fetched once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from openrlhf_support import CASES, HERE, RELEASES, arguments, cases, check, module
from tuneport import api
from tuneport.experiment.create import new_project
from tuneport.registry import catalog
from tuneport.settings import cache_dir
from tuneport.types import Ref
from tuneport.upstream.__main__ import main

pytestmark = pytest.mark.upstream
ENTRIES = [
    f"openrlhf.cli.{n}"
    for n in ("train_sft", "train_dpo", "train_rm", "train_ppo_ray", "serve_rm", "lora_combiner")
]
SURFACES = HERE.parents[2] / "manifests/tuneport_manifests/openrlhf/surfaces"
# What a default depends on there: the clock, or an infinity that JSON does not have.
OPEN = {"logger.wandb.run_name", "ckpt.max_mem"}
SOURCE = re.compile(r"(?P<file>openrlhf/\S+\.py)(?:, (?P<symbol>\S+))?")
SEVERITY = {"error": "error", "warning": "warning", "note": "note"}


@cache
def wheel(release: str) -> tuple[Path, Path]:
    """(the wheel, the folder that holds the package)."""
    folder = cache_dir() / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    found = sorted(folder.glob(f"openrlhf-{release}-cp311-*.whl"))
    if not found:
        words = [
            "download",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
            "--python-version",
            "3.11",
            "-d",
            str(folder),
        ]
        subprocess.run([sys.executable, "-m", "pip", *words, f"openrlhf=={release}"], check=True)
        found = sorted(folder.glob(f"openrlhf-{release}-cp311-*.whl"))
    tree = folder / f"openrlhf-{release}"
    if not tree.exists():
        with zipfile.ZipFile(found[0]) as archive:
            archive.extractall(tree)
    return found[0], tree / f"openrlhf-{release}.data" / "purelib"


def ask(release: str, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    words = [sys.executable, str(HERE / "openrlhf_oracle.py"), str(wheel(release)[1])]
    done = subprocess.run(words, input=json.dumps(questions), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("release", RELEASES)
def test_the_surface_is_what_the_parsers_hold(release: str) -> None:
    document = json.loads((SURFACES / f"{release}.json").read_text("utf-8"))
    assert set(document["entries"]) == set(ENTRIES)
    count = 0
    for entry, held in zip(ENTRIES, ask(release, [{"surface": entry} for entry in ENTRIES]), strict=True):
        keys = document["entries"][entry]["keys"]
        options = {option: fact for option, fact in held.items() if fact["kind"] != "_HelpAction"}
        assert {key.get("style", f"--{name}") for name, key in keys.items()} == set(options)
        for name, key in keys.items():
            fact = options[key.get("style", f"--{name}")]
            kinds = {
                "_StoreAction": "store",
                "_StoreTrueAction": "store_true",
                "_StoreFalseAction": "store_false",
            }
            assert key.get("action", "store") == kinds[fact["kind"]], name
            assert (key.get("nargs"), key.get("choices")) == (
                fact["nargs"] if fact["nargs"] != 0 else None, fact["choices"],
            ), name  # fmt: skip
            assert key.get("required", False) == fact["required"] and key.get("dest", name) == fact["dest"]
            if fact["type"] is not None:
                assert key["types"][0] == fact["type"], name
            if "default" in key and key.get("action") != "store_false":
                assert key["default"] == fact["default"] and type(key["default"]) is type(fact["default"]), (
                    name
                )
            elif "action" not in key:
                assert name in OPEN or key["required"], name
            count += 1
    assert count > 400


@pytest.mark.parametrize("release", RELEASES)
def test_the_surface_is_generated_from_the_wheel(release: str, tmp_path: Path) -> None:
    package, tree = wheel(release)
    words = [word for entry in ENTRIES for word in ("--parser", entry)]
    out = tmp_path / "made.json"
    assert main(["openrlhf", release, str(tree), *words, "--artefact", str(package), "--out", str(out)]) == 0
    assert out.read_text("utf-8") == (SURFACES / f"{release}.json").read_text("utf-8")


@pytest.mark.parametrize("release", RELEASES)
def test_the_release_says_what_the_rules_say(release: str) -> None:
    mine = [
        case for case in cases("rules") if case["release"] == release and case["proof"] in ("parse", "call")
    ]
    assert len(mine) > 25
    questions = []
    for case in mine:
        for layer in ("bad", "good"):
            if case["proof"] == "parse":
                questions.append({"entry": module(case["entry"]), "args": arguments(case, layer)})
            else:
                words = case.get(f"{layer}_words")
                call = {"file": case["file"], "symbol": case["symbol"], "words": words}
                questions.append(
                    call if words else {"entry": module(case["entry"]), "args": arguments(case, layer)}
                )
    answers = iter(ask(release, questions))
    wrong = []
    for case in mine:
        bad, good = next(answers), next(answers)
        says = case.get("says")
        if says is None and (bad["accepted"] or not good["accepted"]):
            wrong.append((case["id"], bad["error"], good["error"]))
        elif says is not None:
            loud, quiet = (any(says in line for line in one["said"]) for one in (bad, good))
            if not bad["accepted"] or not loud or quiet or not good["accepted"]:
                wrong.append((case["id"], bad, good))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("release", RELEASES)
def test_plans_are_taken_by_the_release(release: str, tmp_path: Path) -> None:
    project = api.open_project(new_project(tmp_path / "project"))
    questions = []
    for method, _, _ in catalog.methods("openrlhf"):
        experiment = project.new(method.partition("/")[2], method, release)
        plan = experiment.plan(model="org/m", train_data="/d/a.jsonl", profile="h200:8")
        (command,) = plan.commands
        words = [
            f"{tmp_path}/{word.ref}{word.suffix}" if isinstance(word, Ref) else word for word in command.argv
        ]
        entry = catalog.method(method).spec["entry"]
        questions.append({"entry": entry, "args": words[words.index(entry) + 1 :]})
    refused = [answer["error"] for answer in ask(release, questions) if not answer["accepted"]]
    assert not refused


@pytest.mark.parametrize("release", RELEASES)
def test_every_source_is_in_the_release(release: str) -> None:
    _, tree = wheel(release)
    named: dict[str, str] = {}
    for method, _, _ in catalog.methods("openrlhf"):
        spec = catalog.method(method, release).spec
        checks, inert = catalog.rules("openrlhf", release, spec["rules"])
        named |= {rule["source"]: rule["key"] for rule in (*checks, *inert)}
        named |= {f"{item['file']}, {item['symbol']}": method for item in spec["explain"]["symbols"]}
    missing = []
    assert named.pop("openrlhf METADATA, Requires-Dist").startswith("env.packages.")
    for source, where in named.items():
        match = SOURCE.fullmatch(source)
        if match is None:
            known = ("deepspeed 0.19.5 ", "transformers 5.15.0 ", "peft 0.21.2 ", "vllm vllm/")
            assert source.startswith(known), source
            continue
        path = tree / match["file"]
        names = (
            set(re.findall(r"^ *(?:async )?(?:def|class) (\w+)", path.read_text("utf-8"), re.M))
            if path.is_file()
            else set()
        )
        wanted = (match["symbol"] or "").split(".") if match["symbol"] else []
        missing += [f"{where}: {source}"] * (not path.is_file() or not set(wanted) <= names)
    assert not missing
    assert len(named) > 30


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_checked_without_a_finding_is_accepted(release: str) -> None:
    """The base of each entry point: neither side says a word against it."""
    bases = {name: CASES["bases"][name] for name in ("sft", "dpo", "rm", "ppo_ray")}
    answers = ask(release, [{"entry": module(name), "args": args} for name, args in bases.items()])
    for (name, args), answer in zip(bases.items(), answers, strict=True):
        assert answer["accepted"], answer
        assert not check(name, args, release, {}).findings
