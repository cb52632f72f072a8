"""`tp check`, `tp validate` and `tp import` on real invocations and mistakes: no false alarm, none missed.

The invocations are upstream's own and are kept beside the repository; without them their tests are skipped.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tuneport import api, linter, workflow
from tuneport.checks.rules import nested
from tuneport.compiler.layers import Layers
from tuneport.dialects.hydra.read import Words, apply, read_overrides
from tuneport.experiment import project as project_module
from tuneport.experiment.create import new_project
from tuneport.experiment.request import Flags
from tuneport.registry import catalog, surfaces
from tuneport.types import Finding, Json, Ref

sys.path.insert(0, str(Path(__file__).parent))
from test_verl_rules_corpus import names, validate

ROOT = Path(__file__).resolve().parents[1]
CORPUS = Path(os.environ.get("TUNEPORT_CORPUS") or ROOT.parent / "shared" / "corpus") / "accept" / "nemo-rl"
needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no corpus of invocations in {CORPUS}")
MISTAKES = json.loads((ROOT / "tests/data/mistakes/nemo-rl.json").read_text("utf-8"))
REPORTS = json.loads((ROOT / "tests/data/reports/nemo-rl.json").read_text("utf-8"))
# Composed by the release and refused later: adapters with the first DTensor worker
# (models/policy/lm_policy.py, Policy.__init__), and a file of distillation that the record gives to GRPO's
# program (MasterConfig).
REFUSED_LATER = {
    "docs-guides-dpo-b3": "nemo-rl-lora-worker",
    "examples-nemo_gym-distillation_qwen3_0_6b": "key-required",
}
# What a command of the release's programs cannot show: a converter is none of them.
BESIDE = {"nemo-rl-1427": "a converter, which the plugin's exporter chooses by the checkpoint"}


def records() -> Iterator[dict[str, Any]]:
    for path in sorted(CORPUS.glob("*.json")):
        yield json.loads(path.read_text("utf-8"))


def command(record: dict[str, Any]) -> list[str]:
    """The command as it is typed: `uv run … python examples/run_X.py …`, or below coverage."""
    before = [word for part in record["launcher_args"] for word in part.split()]
    program = [] if "coverage" in before else ["python"]
    words = [*before, *program, record["entry"], *record["args"]]
    named = any(word == "--config" or word.startswith("--config=") for word in record["args"])
    return (
        words if named or "default" in record["config_from"] else [*words, "--config", record["config_path"]]
    )


def check(record: dict[str, Any]) -> linter.Checked:
    return linter.check(command(record), linter.Asked("nemo-rl", record["version"], env=record["env"]))


def plain(key: str, value: Json) -> dict[str, Json]:
    """A configuration by its innermost keys; an empty mapping is no key."""
    if isinstance(value, dict):
        return {
            k: v
            for name, item in value.items()
            for k, v in plain(f"{key}.{name}" if key else name, item).items()
        }
    return {key: value}


@needs_corpus
def test_the_release_s_files_compose_to_what_upstream_merges() -> None:
    seen = set()
    for record in records():
        entry = record["entry"].removesuffix(".py").replace("/", ".")
        keys = surfaces.release("nemo-rl", "0.7.0", entry, {"--config": record["config_path"]}).keys
        ours = nested({name: key.default for name, key in keys.items() if not key.add})
        assert ours == record["config"], record["slug"]
        seen.add(record["config_path"])
    assert len(seen) > 100


@needs_corpus
def test_accepted_invocations_get_no_error_and_refused_ones_do() -> None:
    count = 0
    for record in records():
        checked = check(record)
        codes = {finding.code for finding in checked.findings if finding.severity == "error"}
        if record["slug"] in REFUSED_LATER:
            assert codes == {REFUSED_LATER[record["slug"]]}
            continue
        assert bool(codes) == (record["upstream_check"]["result"] != "ok"), (record["slug"], codes)
        count += 1
    assert count > 200


@needs_corpus
@pytest.mark.parametrize(
    ("every", "least"), [(7, 20), pytest.param(1, 190, marks=pytest.mark.upstream)], ids=["some", "all"]
)
def test_accepted_invocations_compile_back_to_the_same_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int, least: int
) -> None:
    """An imported experiment plans the document that the command merges, but for what the platform writes."""
    home = new_project(tmp_path / "project")
    monkeypatch.chdir(home)
    count = 0
    for number, record in enumerate(records()):
        if number % every:
            continue
        checked = check(record)
        if (
            record["upstream_check"]["result"] != "ok"
            or not checked.method
            or record["slug"] in REFUSED_LATER
        ):
            continue
        made = workflow.import_command(
            command(record), f"taken-{number}", project_module.need_project(), framework="nemo-rl"
        )
        report = workflow.validate(f"taken-{number}", Flags(**flags(made)))
        assert report.compiled is not None
        spec = catalog.method(made.method, "0.7.0").spec
        left = {
            *spec["platform"],
            *(item["key"] for item in spec["bind"].values()),
            *spec["topology"].values(),
        }
        planned = report.compiled.plan
        added = {name for name, key in report.compiled.context.release.keys.items() if key.add}
        settled = report.compiled.layers.effective().items()
        own = (
            report.compiled.layers.own
        )  # compared where one GPU, which is what the files say, is too few to plan for
        content: Json = nested({key: value for key, value in settled if key in own or key not in added})
        if planned is not None:
            content = planned.commands[0].files["tuneport-config.yaml"].content
            count += 1
        assert different(content, theirs(record), left) == {}, record["slug"]
    assert count >= least


def flags(made: workflow.Imported) -> dict[str, Any]:
    return {name.removeprefix("--").replace("-", "_"): value for name, value in made.flags.items()}


def theirs(record: dict[str, Any]) -> dict[str, Json]:
    """The record's merged document with the overrides applied, by its innermost keys, not resolved."""
    entry = record["entry"].removesuffix(".py").replace("/", ".")
    keys = surfaces.release("nemo-rl", "0.7.0", entry, {"--config": record["config_path"]}).keys
    words = Words()
    read_overrides(arguments(record), words)
    applied = apply(words.overrides, keys)
    layers = Layers({name: key for name, key in keys.items() if not key.add})
    layers.own.update(applied.own)
    layers.drop(applied.deleted)
    return plain("", nested(layers.effective()))


def arguments(record: dict[str, Any]) -> list[str]:
    rest = list(record["args"])
    while "--config" in rest:
        place = rest.index("--config")
        del rest[place : place + 2]
    return [word for word in rest if not word.startswith("--config=")]


def different(content: Json, wanted: dict[str, Json], left: set[str]) -> dict[str, Any]:
    ours = {key: value for key, value in plain("", content).items() if not isinstance(value, Ref)}
    return {
        key: (wanted.get(key), ours.get(key))
        for key in {**ours, **wanted}
        if key not in left and wanted.get(key) != ours.get(key)
    }


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> api.Project:
    return api.open_project(new_project(tmp_path_factory.mktemp("mistakes") / "project"))


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case["id"])
def test_a_mistake_gets_its_verdict(project: api.Project, tmp_path: Path, case: dict[str, Any]) -> None:
    findings = validate(project, tmp_path, case)
    levels = {finding.severity for finding in findings}
    worst = next((level for level in ("error", "warning") if level in levels), "clean")
    assert worst in case["accept"], findings
    faults = [fault for fault in [case.get("fault"), *case.get("also_fault", ())] if fault]
    if worst != "clean" and faults:
        assert any(names(one, faults) for one in findings if one.severity == worst), findings


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report["id"])
def test_a_reported_mistake_is_found(report: dict[str, Any]) -> None:
    if report["id"] in BESIDE:
        pytest.skip(BESIDE[report["id"]])
    findings = judged(report["minimal_input"])
    if not report["still_applies"]:
        assert not [finding for finding in findings if finding.severity == "error"]
        return
    assert any(
        names(one, report["fault_keys"]) for one in findings if one.severity == report["expected_severity"]
    ), findings


def judged(given: dict[str, Any]) -> Sequence[Finding]:
    facts = {name: given[name] for name in ("topology", "data", "model", "env") if name in given}
    return linter.check(["python3", *given["args"]], linter.Asked("nemo-rl", facts=facts)).findings
