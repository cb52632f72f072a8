"""`tp check`, `tp import` and `tp validate` on TRL's own invocations and on real mistakes.

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
import yaml
from tuneport import api, linter, workflow
from tuneport.compiler.layers import Layers
from tuneport.dialects import dataclass_read
from tuneport.errors import NotFound
from tuneport.experiment import project as project_module
from tuneport.experiment.create import new_project
from tuneport.registry import catalog, surfaces
from tuneport.types import Finding, Ref

sys.path.insert(0, str(Path(__file__).parent))
from test_verl_rules_corpus import names, validate

ROOT = Path(__file__).resolve().parents[1]
CORPUS = Path(os.environ.get("TUNEPORT_CORPUS") or ROOT.parent / "shared" / "corpus") / "accept" / "trl"
needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no corpus of invocations in {CORPUS}")
PROVED = ("1.10.0", "1.16.0")
# All of them; those that were adopted from these two are a part of what `make test` looks at.
RELEASES = [
    *PROVED,
    *(pytest.param(one, marks=pytest.mark.sweep) for one in catalog.releases("trl") if one not in PROVED),
]
MISTAKES = json.loads((ROOT / "tests/data/mistakes/trl.json").read_text("utf-8"))
REPORTS = json.loads((ROOT / "tests/data/reports/trl.json").read_text("utf-8"))
# Published, and refused by the release that publishes it: the flag was removed from the script.
REFUSED = {"docs-source-distributing_training-b7": "max_seq_length"}
# Reports that say themselves that they may be over, and by which release.
OVER = {("trl-3067", "1.16.0"), *(("trl-422", release) for release in catalog.releases("trl"))}
# Flags of what starts the script: no keys of it.
LAUNCHER = ("num_processes", "accelerate_config")


def words(record: dict[str, Any]) -> list[str]:
    if record["launcher"] == "trl-cli":
        return [*record["entry"].split(), *record["args"]]
    start = (
        ["accelerate", "launch", *record["launcher_args"]]
        if record["launcher"] == "accelerate"
        else ["python"]
    )
    return [*start, record["entry"], *record["args"]]


def records() -> Iterator[dict[str, Any]]:
    """The invocations of the release's own programs; those of other scripts are no entry points of it."""
    programs = catalog.programs()["trl"]["modules"]
    for path in sorted(CORPUS.glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        entry = record["entry"]
        if entry.removeprefix("trl ") in programs or "trl/scripts/" in entry:
            yield {**record, "name": path.stem.partition("~")[0]}


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def placed(record: dict[str, Any], folder: Path) -> bool:
    """Put a record's configuration file where its command looks for it; False where nobody has it."""
    if "--config" not in record["args"]:
        return True
    name = record["args"][record["args"].index("--config") + 1]
    (folder / name).unlink(missing_ok=True)
    if "config" in record:
        (folder / name).write_text(yaml.safe_dump(record["config"]), "utf-8")
    return "config" in record


@needs_corpus
@pytest.mark.parametrize("release", RELEASES)
def test_accepted_invocations_get_no_error(release: str, config_file: Path) -> None:
    count = 0
    for record in records():
        known = placed(record, config_file)
        checked = linter.check(words(record), linter.Asked("trl", release, gpus_per_node=8))
        errors = {finding.key for finding in checked.findings if finding.severity == "error"}
        refused = REFUSED.get(record["name"])
        assert errors == ({refused} if refused else set()), (record["name"], checked.findings)
        assert checked.method
        codes = {finding.code for finding in checked.findings}
        assert ("config-not-here" in codes) is not known
        count += 1
    assert count > 40


@needs_corpus
@pytest.mark.parametrize("release", RELEASES)
def test_accepted_invocations_compile_back_to_the_same_configuration(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = new_project(tmp_path / "project")
    monkeypatch.chdir(home)
    count = 0
    for number, record in enumerate(records()):
        if not placed(record, home) or record["name"] in REFUSED:
            continue
        made = workflow.import_command(
            words(record), f"taken-{number}", project_module.need_project(), framework="trl",
            version=release, gpus_per_node=8,
        )  # fmt: skip
        flags = {name.removeprefix("--").replace("-", "_"): value for name, value in made.flags.items()}
        plan = api.Experiment(str(made.path)).plan(**flags)
        spec = catalog.method(made.method, release).spec
        keys = surfaces.release("trl", release, spec["entry"]).keys
        ours = effective(
            keys, {key: value for key, value in plan.config.items() if not isinstance(value, Ref)}
        )
        takes = dict.fromkeys(catalog.launchers()["accelerate"]["takes"], True)
        read = dataclass_read.read(record["args"], keys, takes if record["launcher"] == "trl-cli" else None)
        theirs = effective(keys, read.read.applied.own)
        written = {*spec["platform"], *spec["reserved"], "report_to"}
        different = {
            key: (theirs[key], ours[key]) for key in keys if key not in written and theirs[key] != ours[key]
        }
        assert not different, (record["name"], different)
        count += 1
    assert count > 25


def effective(keys: Any, own: dict[str, Any]) -> dict[str, Any]:
    layers = Layers(keys)
    layers.own.update({key: value for key, value in own.items() if key in keys})
    return layers.effective()


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


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report["id"])
def test_a_reported_mistake_is_found(report: dict[str, Any], release: str) -> None:
    findings = judged(report["minimal_input"], release)
    if report["still_applies"] is False or (report["id"], release) in OVER:
        assert not [finding for finding in findings if finding.severity == "error"], findings
        return
    # An error where a warning was asked for is one that the release itself raises.
    levels = ("error", "warning") if report["still_applies"] == "partly" else (report["expected_severity"],)
    assert any(names(one, report["fault_keys"]) for one in findings if one.severity in levels), findings


def judged(given: dict[str, Any], release: str) -> Sequence[Finding]:
    facts = {name: given[name] for name in ("topology", "data", "model", "env") if name in given}
    try:
        command = ["trl", given["method"], *given["args"]]
        return linter.check(command, linter.Asked("trl", release, facts=facts)).findings
    except NotFound as error:
        assert error.code == "entry-unknown" and "trl dpo" in error.hint
        return [Finding(error.code, "error", error.message, error.hint, given["method"])]


@pytest.mark.parametrize(
    ("command", "entry", "per_node"),
    [
        ("trl dpo --num_processes 4", "dpo", 4),
        ("trl reward --num_processes=8 --num_machines 2", "reward", 4),
        ("trl sft --accelerate_config zero2", "sft", 0),
        ("python -m trl.scripts.kto", "kto", 0),
        ("accelerate launch --num_processes 4 trl/scripts/grpo.py", "grpo", 4),
        ("accelerate launch --num_machines 2 --num_processes 8 -m trl.scripts.rloo", "rloo", 4),
        ("torchrun --nproc_per_node 2 /x/trl/scripts/distillation.py", "distillation", 2),
    ],
)
def test_every_way_to_start_a_script(command: str, entry: str, per_node: int) -> None:
    found = linter.check([*command.split(), "--learning_rate", "-1"], linter.Asked())
    assert (found.framework, found.entry, found.run.per_node) == ("trl", f"trl.scripts.{entry}", per_node)
    assert "trl-learning-rate-negative" in {finding.code for finding in found.findings}


def check(command: str) -> dict[str, Finding]:
    return {finding.code: finding for finding in linter.check(command.split(), linter.Asked()).findings}


def test_flags_that_nobody_takes_are_said() -> None:
    assert check("trl dpo --lerning_rate 1e-6")["key-unknown"].hint == "did you mean `learning_rate`?"
    assert check("python -m trl.scripts.dpo --num_processes 4")["key-unknown"].key == "num_processes"
    assert check("trl sft --packing maybe")["key-type"].hint == "write true or false"
    assert "--config" in check("trl dpo --parallelism_config x")["key-type"].hint
    assert check("trl sft --bf16")["key-values"].key == "bf16"
    assert "key-values" not in check("trl sft --packing --no-remove-unused-columns")
    assert check("trl dpo --lora_r 8 stray")["flag-stray"].severity == "error"
    assert check("trl dpo --lora_target q_proj v_proj")["flag-ambiguous"].severity == "error"
    assert check("trl dpo --beta 0.1 --beta 0.2")["key-repeated"].severity == "note"


def test_what_the_launcher_is_told_is_named() -> None:
    words = ["accelerate", "launch", "--config_file", "ds3.yaml", "--use_deepspeed", "--num_proceses", "4"]
    words += ["--num_processes", "8", "trl/scripts/dpo.py", "--dataset_name", "a/b"]
    words += ["--model_name_or_path", "b/c"]
    found = {one.code: one for one in workflow.check(words).findings}
    assert "accelerate is told --config_file ds3.yaml, --use_deepspeed" in found["launcher-settings"].message
    assert found["launcher-flag"].hint == "did you mean --num_processes?"
    secret = [*words[:2], "--aws_secret_access_key", "abcdef", *words[9:]]
    assert "abcdef" not in "".join(one.message for one in workflow.check(secret).findings)
    plain = [*words[:2], *words[7:]]
    assert not {"launcher-flag", "launcher-settings"} & {one.code for one in workflow.check(plain).findings}


def test_what_a_variable_holds_is_an_ellipsis_in_what_the_launcher_is_told(tmp_path: Path) -> None:
    script = tmp_path / "a.sh"
    script.write_text(
        "accelerate launch --main_process_ip $HEAD -m trl.scripts.sft --dataset_name a/b", "utf-8"
    )
    (note,) = [one for one in workflow.check([str(script)]).findings if one.code == "launcher-settings"]
    assert "is told --main_process_ip …:" in note.message


SETTINGS = {"distributed_type": "DEEPSPEED", "mixed_precision": "bf16", "num_machines": 2, "num_processes": 8}


@pytest.mark.parametrize("start", ["trl sft --accelerate_config", "accelerate launch --config_file"])
def test_a_file_of_the_launcher_is_read(start: str, tmp_path: Path) -> None:
    """Its counts are those of the flags, unknown keys are refused, and what the trainer replaces is said."""
    file = tmp_path / "a.yaml"
    module = "" if start.startswith("trl") else "-m trl.scripts.sft"

    def said(settings: object, more: str = "") -> dict[str, Finding]:
        file.write_text(json.dumps(settings), "utf-8")
        command = f"{start} {file} {module} --model_name_or_path a/b --dataset_name c/d {more}"
        checked = linter.check(command.split(), linter.Asked())
        pools.append([(pool.nodes, pool.gpus_per_node) for pool in checked.context.topology.pools])
        return {finding.code: finding for finding in checked.findings}

    pools: list[list[tuple[int, int]]] = []
    note = said(SETTINGS)["launcher-settings"]
    assert "distributed_type DEEPSPEED" in note.message and pools[-1] == [(2, 4)]
    assert "launcher-file" not in said(SETTINGS, "--bf16 true")
    inert = said(SETTINGS, "--fp16 true --bf16 false")["launcher-file"]
    assert (inert.severity, inert.key) == ("warning", "fp16")
    refused = said({**SETTINGS, "num_proceses": 4})["launcher-file"]
    assert (refused.severity, refused.hint) == ("error", "did you mean num_processes?")
    assert said([1])["launcher-file"].severity == "error"
    file.write_bytes(b"\xff\xfe")
    command = f"{start} {file} {module} --model_name_or_path a/b --dataset_name c/d"
    assert "launcher-file" in check(command)


def test_a_name_that_comes_with_the_trainer_is_known() -> None:
    rest = "--model_name_or_path a/b --dataset_name c/d"
    known = check(f"trl sft --accelerate_config zero3 {rest}")
    assert "--accelerate_config zero3" in known["launcher-settings"].message and "launcher-file" not in known
    assert check(f"trl sft --accelerate_config zro3 {rest}")["launcher-file"].hint == "did you mean zero3?"
    assert "launcher-file" not in check(f"trl sft --accelerate_config elsewhere/x.yaml {rest}")


def test_a_configuration_file_is_below_the_command(config_file: Path) -> None:
    lines = ["learning_rate: 1e-6", "packing: 'maybe'", 'lr_scheduler_kwargs: \'{"a": "1"}\'', "numproc: 4"]
    (config_file / "c.yaml").write_text("\n".join([*lines, "env: {A: 1}"]), "utf-8")
    ran = linter.check(["python", "-m", "trl.scripts.sft", "--config", "c.yaml"], linter.Asked())
    found = {finding.code: finding for finding in ran.findings}
    assert (found["key-type"].key, found["key-type"].line) == ("packing", 2)
    assert (found["config-unread"].key, found["config-unread"].severity) == ("numproc", "warning")
    assert ran.context.own["learning_rate"] == 1e-6 and ran.run.env == {"A": "1"}
    assert ran.context.own["lr_scheduler_kwargs"] == {"a": 1}
    ran = linter.check(["trl", "sft", "--config", "c.yaml", "--learning_rate", "2e-6"], linter.Asked())
    assert ran.context.own["learning_rate"] == 2e-6
    assert "key-unknown" in {finding.code for finding in ran.findings}


@pytest.mark.parametrize("content", [b"[1]", b"\xff\xfe", b"a: [", b"a: " + b"[" * 5000, b"x" * (5 << 20)])
def test_a_hostile_configuration_file_is_said(content: bytes, config_file: Path) -> None:
    (config_file / "c.yaml").write_bytes(content)
    found = linter.check(["trl", "sft", "--config", "c.yaml"], linter.Asked()).findings
    assert [finding for finding in found if finding.severity == "error"]
