"""`tp check` and `tp validate` on real invocations and real mistakes: no false alarm, nothing slips through.

The invocations are upstream's own and are kept beside the repository; without them their tests are skipped.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tuneport import api, linter, workflow
from tuneport.compiler.layers import Layers
from tuneport.dialects import flags_read
from tuneport.errors import Invalid, NotFound
from tuneport.experiment import project as project_module
from tuneport.experiment.create import new_project
from tuneport.registry import catalog, surfaces
from tuneport.types import Finding, Ref

sys.path.insert(0, str(Path(__file__).parent))
from test_verl_rules_corpus import names, validate

ROOT = Path(__file__).resolve().parents[1]
CORPUS = Path(os.environ.get("TUNEPORT_CORPUS") or ROOT.parent / "shared" / "corpus") / "accept" / "openrlhf"
needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no corpus of invocations in {CORPUS}")
MISTAKES = json.loads((ROOT / "tests/data/mistakes/openrlhf.json").read_text("utf-8"))
REPORTS = json.loads((ROOT / "tests/data/reports/openrlhf.json").read_text("utf-8"))
# What a command of the release cannot show.
BESIDE = {"openrlhf-339": "how the Ray cluster was started before"}
# Entry points that train nothing are no method's.
TOOLS = ("openrlhf.cli.lora_combiner", "openrlhf.cli.serve_rm")


def records() -> list[dict[str, Any]]:
    return [json.loads(path.read_text("utf-8")) for path in sorted(CORPUS.glob("*.json"))]


def command(record: dict[str, Any]) -> list[str]:
    launcher = [record["launcher"]] if record["launcher"] == "deepspeed" else ["python3", "-m"]
    words = [*launcher, *(record["launcher_args"] if launcher[0] == "deepspeed" else ())]
    if record["launcher"] == "ray-job":
        words = ["ray", "job", "submit", *record["launcher_args"], "--", *words]
    return [*words, record["entry"], *record["args"]]


def check(record: dict[str, Any]) -> linter.Checked:
    return linter.check(command(record), linter.Asked("openrlhf", record["version"], env=record["env"]))


@needs_corpus
def test_accepted_invocations_get_no_error_and_refused_ones_do() -> None:
    found = {record["slug"]: (record, check(record)) for record in records()}
    assert len(found) >= 9
    for record, checked in found.values():
        errors = [finding for finding in checked.findings if finding.severity == "error"]
        assert bool(errors) == (record["upstream_check"]["result"] != "ok"), (record["slug"], errors)
        assert bool(checked.method) == (record["entry"] not in TOOLS)


@needs_corpus
def test_accepted_invocations_compile_back_to_the_same_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An imported experiment plans what the command said, but for what the platform writes."""
    home = new_project(tmp_path / "project")
    monkeypatch.chdir(home)
    count = 0
    for number, record in enumerate(records()):
        if record["upstream_check"]["result"] != "ok" or record["entry"] in TOOLS:
            continue
        hardware = {} if record["entry"].endswith("ppo_ray") else {"gpus_per_node": 8}
        made = workflow.import_command(
            command(record), f"taken-{number}", project_module.need_project(), framework="openrlhf",
            version=record["version"], **hardware,
        )  # fmt: skip
        flags = {name.removeprefix("--").replace("-", "_"): value for name, value in made.flags.items()}
        plan = api.Experiment(str(made.path)).plan(**flags)
        entry = record["entry"]
        words = [str(word) for word in plan.commands[0].argv if not isinstance(word, Ref)]
        method = catalog.method(made.method, record["version"])
        keys = surfaces.release("openrlhf", record["version"], entry).keys
        ours = effective(
            keys, {key: value for key, value in plan.config.items() if not isinstance(value, Ref)}
        )
        theirs = effective(keys, flags_read.read(record["args"], keys).applied.own)
        written = {*method.spec["platform"], *method.spec["reserved"]}
        different = {
            key: (theirs[key], ours[key]) for key in keys if key not in written and theirs[key] != ours[key]
        }
        assert not different, (record["slug"], different)
        assert entry in words or "tuneport-cluster.py" in words
        count += 1
    assert count >= 6


def effective(keys: Any, own: dict[str, Any]) -> dict[str, Any]:
    layers = Layers(keys)
    layers.own.update(own)
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


@pytest.mark.parametrize("release", catalog.releases("openrlhf"))
@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report["id"])
def test_a_reported_mistake_is_found(report: dict[str, Any], release: str) -> None:
    if report["id"] in BESIDE:
        pytest.skip(BESIDE[report["id"]])
    findings = judged(report["minimal_input"], release)
    assert any(
        names(one, report["fault_keys"]) for one in findings if one.severity == report["expected_severity"]
    ), findings


def judged(given: dict[str, Any], release: str) -> Sequence[Finding]:
    facts = {name: given[name] for name in ("topology", "data", "model", "env") if name in given}
    try:
        return linter.check(
            ["python3", *given["args"]], linter.Asked("openrlhf", release, facts=facts)
        ).findings
    except NotFound as error:
        assert "openrlhf.cli.train_ppo_ray" in error.hint
        return [Finding(error.code, "error", error.message, error.hint, given["args"][1])]


def test_flags_from_before_the_dots_are_told_where_they_went() -> None:
    words = ["python3", "-m", "openrlhf.cli.train_sft", "--pretrain", "m", "--learning_rate", "1e-5"]
    findings = linter.check(words, linter.Asked()).findings
    moved = {f.key: f.hint for f in findings if f.code == "key-moved"}
    assert moved == {"pretrain": "write model.model_name_or_path", "learning_rate": "write adam.lr"}


@pytest.mark.parametrize(
    ("words", "per_node"),
    [
        (["deepspeed", "--module"], 0),
        (["deepspeed", "--num_gpus", "4", "--module"], 4),
        (["deepspeed", "--module", "--num_gpus=4", "--master_port", "1"], 4),
        (["python", "-m", "deepspeed.launcher.runner", "--module", "--num_gpus", "4"], 4),
        (["torchrun", "--nproc-per-node", "4", "-m"], 4),
    ],
)
def test_launchers_say_how_many_processes_there_are(words: list[str], per_node: int) -> None:
    found = linter.check([*words, "openrlhf.cli.train_sft", "--data.multiturn"], linter.Asked())
    assert (found.entry, found.run.per_node) == ("openrlhf.cli.train_sft", per_node)
    assert "openrlhf-turns-template" in {finding.code for finding in found.findings}


def test_a_script_is_read_and_what_it_leaves_open_is_not_judged(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    lines = ["read -r -d '' commands <<EOF", "openrlhf.cli.train_sft \\", "   --ds.zero_stage $STAGE \\"]
    lines += [
        "   --data.multiturn",
        "EOF",
        "if [[ ${1} != slurm ]]; then",
        "    deepspeed --module $commands",
        "fi",
    ]
    script.write_text("\n".join(lines), "utf-8")
    (found,), _ = linter.check_every(["bash", str(script)], linter.Asked())
    codes = {finding.code: finding for finding in found.findings}
    assert "openrlhf-turns-template" in codes and "openrlhf-zero-stage" not in codes
    assert codes["script-undecided"].key == "ds.zero_stage"
    (settled,), _ = linter.check_every(["bash", str(script)], linter.Asked(env={"STAGE": "7"}))
    assert "openrlhf-zero-stage" in {finding.code for finding in settled.findings}


def test_a_program_that_is_no_module_of_the_release() -> None:
    with pytest.raises(NotFound):
        linter.check(["deepspeed", "--module", "openrlhf.cli.nothing_like_it"], linter.Asked())
    with pytest.raises(Invalid):
        linter.check(["deepspeed", "--module"], linter.Asked())
