"""The release's own code against our surface, rules and plans.

The release is not on the package index: TUNEPORT_SOURCE_NEMO_RL names a folder with its source tree at the
tag v0.7.0, and without it these tests are skipped. Set-ups run as far as they can without a GPU.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from test_nemo_rl_plugin import REQUEST, document
from test_nemo_rl_rules import EIGHT, LATER, PARTS, RULES
from tuneport import api
from tuneport.compiler.compile import Compiled
from tuneport.experiment.create import new_project
from tuneport.registry import catalog
from tuneport.settings import cache_dir, setting
from tuneport.types import Json, Param
from tuneport.upstream.chains import main

TREE = setting("SOURCE_NEMO_RL") or ""
pytestmark = [
    pytest.mark.upstream,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not TREE, reason="no source tree: TUNEPORT_SOURCE_NEMO_RL is not set"),
]
HERE = Path(__file__).parent
PROCESSES = 2
SURFACE = HERE.parents[2] / "manifests/tuneport_manifests/nemo-rl/surfaces/0.7.0.json"
REQUIREMENTS = ("hydra-core==1.3.8", "omegaconf==2.3.1", "pydantic==2.13.1", "numpy", "pyyaml")
METHODS = [row[0] for row in catalog.methods("nemo-rl")]
SOURCE = re.compile(r"(?P<file>(?:nemo_rl|examples)/\S+?\.py)(?:, (?P<symbol>\S+))?")
# The set-up asks a stub for the size of a group of GPUs that the release's own Ray cluster would have.
STUBBED = {"rollout-pipeline", "rollout-experts", "rollout-parallel", "vllm-heads"}
WORDS: dict[str, Json] = {"train_data": "/data/train.jsonl", "validation_data": "/data/validation.jsonl"}


@cache
def python() -> Path:
    folder = cache_dir() / "nemo-rl-reference"
    found = folder / "bin" / "python"
    if not (folder / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(found), "-m", "pip", "install", "-q", *REQUIREMENTS], check=True)
        (folder / "done").touch()
    return found


def ask(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers, in order; a few processes share the work, since a set-up takes about a second."""
    words = [str(python()), str(HERE / "nemo_rl_oracle.py"), TREE]

    def some(part: list[dict[str, Any]]) -> list[dict[str, Any]]:
        done = subprocess.run(words, input=json.dumps(part), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(answers) == len(part)
        return answers

    size = -(-len(questions) // PROCESSES)
    with ThreadPoolExecutor(PROCESSES) as pool:
        parts = pool.map(some, [questions[at : at + size] for at in range(0, len(questions), size)])
    return [answer for part in parts for answer in part]


def entry(method: str) -> str:
    """The program of the release that the method's document is for."""
    return str(catalog.method(method).spec["entry"]).rpartition(".")[2]


def samples(param: Param) -> Iterator[Json]:
    """Each choice, the lowest and highest, an example; just one value where it is free."""
    for option in param.schema.get("anyOf", [param.schema]):
        if param.name in WORDS:
            yield WORDS[param.name]
        elif "enum" in option:
            yield from option["enum"]
        elif "examples" in param.schema:
            yield param.schema["examples"][0]
        elif option["type"] == "boolean":
            yield from (True, False)
        elif option["type"] == "array":
            items = option.get("items", {})
            yield [items["enum"][0] if "enum" in items else "word"]
        elif option["type"] == "string":
            yield "word"
        elif option["type"] != "object":
            step = 1 if option["type"] == "integer" else 0.001
            yield option.get("minimum", option.get("exclusiveMinimum", 1 - step) + step)
            if "maximum" in option:
                yield option["maximum"]


def plans(folder: Path) -> Iterator[tuple[str, str, Compiled]]:
    """(what was asked, program, plan) for every method, and for the values of every parameter at the first
    method that binds it so. What our own rules refuse is not asked."""
    project = api.open_project(new_project(folder / "project"))
    seen: set[tuple[str, str]] = set()
    for method in METHODS:
        experiment = project.new(method.partition("/")[2], method)
        asked: list[dict[str, Json]] = [{}]
        for name, param in catalog.method(method).params.items():
            if (name, repr(param.keys)) not in seen:
                asked += [{name: value} for value in samples(param)]
            seen.add((name, repr(param.keys)))
        for params in asked:
            found = experiment.validate(**{**REQUEST, "set": params}).compiled
            if found is not None and not any(finding.severity == "error" for finding in found.findings):
                yield f"{method} {params}", entry(method), found


def text(found: Compiled) -> str:
    """The document as the release would read it, with folders in the places that a run fills in."""
    return json.dumps(document(found), default=lambda ref: f"/{ref.ref}{ref.suffix}")


def test_the_release_takes_every_plan(tmp_path: Path) -> None:
    asked = list(plans(tmp_path))
    answers = ask([{"entry": program, "file": text(found), "args": []} for _, program, found in asked])
    refused = [
        f"{what}: {answer['error']} ({answer['where']})"
        for (what, _, _), answer in zip(asked, answers, strict=True)
        if not answer["accepted"]
    ]
    assert not refused, "\n".join(refused)
    assert len(asked) > 200


def test_the_surface_is_generated_from_the_tree(tmp_path: Path) -> None:
    made = tmp_path / "made.json"
    commit = json.loads(SURFACE.read_text("utf-8"))["artefacts"][0]["commit"]
    words = ["nemo-rl", "0.7.0", TREE, "--package", "nemo_rl", "--programs", "examples", "--commit", commit]
    assert main([*words, "--out", str(made)]) == 0
    assert made.read_text("utf-8") == SURFACE.read_text("utf-8")


def test_the_release_says_what_the_rules_say() -> None:
    questions = []
    for case in RULES:
        for layer in ("bad", "good"):
            size = [] if any("cluster.gpus_per_node" in word for word in case[layer]) else [EIGHT]
            part = {"part": PARTS[case["code"]]} if case["code"] in PARTS else {}
            questions.append({"entry": f"run_{case['entry']}", "args": [*size, *case[layer]], **part})
    answers = iter(ask(questions))
    wrong, later = [], set()
    for case in RULES:
        bad, good = next(answers), next(answers)
        if not good["accepted"] and case["code"] not in STUBBED:
            wrong.append(f"{case['code']}: its neighbour: {good['error']} ({good['where']})")
        if case.get("severity", "error") != "error":
            if not bad["accepted"]:
                wrong.append(f"{case['code']}: a {case['severity']}: {bad['error']} ({bad['where']})")
        elif bad["accepted"]:
            later.add(case["code"])
    assert not wrong, "\n".join(wrong)
    assert later == set(LATER)


def test_every_source_is_in_the_release() -> None:
    named: dict[str, str] = {}
    for method in METHODS:
        spec = catalog.method(method).spec
        checks, inert = catalog.rules("nemo-rl", "0.7.0", spec["rules"])
        named |= {rule["source"]: rule["key"] for rule in (*checks, *inert)}
        named |= {f"{item['file']}, {item['symbol']}": method for item in spec["explain"]["symbols"]}
    missing = []
    for source, where in named.items():
        match = SOURCE.match(source)
        if match is None:
            assert source.startswith(("nemo_rl, all modules", "main.py, ", "vllm/")), source
            continue
        path = Path(TREE, match["file"])
        text = path.read_text("utf-8") if path.is_file() else ""
        names = set(re.findall(r"^ *(?:async )?(?:def|class) (\w+)", text, re.M))
        wanted = set((match["symbol"] or "").split(".")) - {""}
        missing += [f"{where}: {source}"] * (not text or not wanted <= names)
    assert not missing, "\n".join(missing)
    assert len(named) > 60
