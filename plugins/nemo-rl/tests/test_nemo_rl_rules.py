"""Every rule fires where it should and is silent beside it; every inert key is said where it does nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tuneport import linter
from tuneport.errors import Invalid
from tuneport.experiment.yamlread import read_yaml
from tuneport.registry import catalog

_DOCUMENT = read_yaml(Path(__file__).parent / "cases.yaml")
assert not _DOCUMENT.findings, _DOCUMENT.findings
RULES: list[dict[str, Any]] = _DOCUMENT.data["rules"]
INERT: list[dict[str, Any]] = _DOCUMENT.data["inert"]
LATER: list[str] = _DOCUMENT.data["later"]
PARTS: dict[str, str] = {code: part for part, codes in _DOCUMENT.data["parts"].items() for code in codes}
# About an experiment, or about parameters: test_nemo_rl_plugin.py has them.
ELSEWHERE = {"nemo-rl-cpu", "nemo-rl-tp-accuracy", "nemo-rl-adapter-rank"}
PLUGIN = {
    "gpus-uneven",
    "batch-shards",
    "micro-batch",
    "val-shards",
    "logprob-batch",
    "rollout-parallel",
    "teacher-gpus",
}
EIGHT = "cluster.gpus_per_node=8"


def check(entry: str, overrides: list[str], facts: dict[str, Any] | None = None) -> linter.Checked:
    said = {word.partition("=")[0].lstrip("+") for word in overrides}
    size = [] if "cluster.gpus_per_node" in said else [EIGHT]
    words = ["python", f"examples/run_{entry}.py", *size, *overrides]
    return linter.check(words, linter.Asked("nemo-rl", facts=facts or {}))


def test_each_rule_fires_and_its_neighbour_does_not() -> None:
    for case in RULES:
        code, facts = f"nemo-rl-{case['code']}", case.get("facts", {})
        bad = check(case["entry"], case["bad"], facts)
        said = [finding for finding in bad.findings if finding.code == code]
        assert [(f.severity, bool(f.source)) for f in said] == [(case.get("severity", "error"), True)], (
            code,
            bad.findings,
        )
        good = check(case["entry"], case["good"], case.get("good_facts", facts))
        assert code not in {finding.code for finding in good.findings}, (code, "its neighbour")
        assert not [text for text in good.undecided if text.startswith(f"{code}:")], (code, good.undecided)
        errors = [finding for finding in good.findings if finding.severity == "error"]
        assert not errors, (code, errors)


def test_each_inert_key_is_said_where_it_does_nothing() -> None:
    for case in INERT:
        key = case["set"].partition("=")[0].lstrip("+")
        dead = check(case["entry"], [*case.get("dead", ()), case["set"]]).findings
        said = [finding for finding in dead if finding.key == key and finding.code == "inert-key"]
        assert [(f.severity, bool(f.source)) for f in said] == [("warning", True)], (key, dead)
        if "live" in case:
            live = check(case["entry"], [*case["live"], case["set"]]).findings
            assert not [f for f in live if f.key == key and f.code == "inert-key"], (key, "where it is read")


def test_every_rule_has_a_case() -> None:
    topics = sorted(
        {topic for row in catalog.methods("nemo-rl") for topic in catalog.method(row[0]).spec["rules"]}
    )
    checks, inert = catalog.rules("nemo-rl", "0.7.0", topics)
    proved = {f"nemo-rl-{case['code']}" for case in RULES if case["code"] not in PLUGIN}
    assert {rule["code"] for rule in checks} == proved | ELSEWHERE
    quiet = {case["set"].partition("=")[0].lstrip("+") for case in INERT}
    for entry in inert:
        name = entry["key"].removesuffix("*")
        assert any(key.startswith(name) if entry["key"].endswith("*") else key == name for key in quiet), name


def test_the_release_s_own_examples_get_nothing_said() -> None:
    for entry in ("sft", "dpo", "rm", "grpo", "ppo", "distillation"):
        found = check(entry, [])
        assert found.findings == (), (entry, found.findings)
        assert found.method == f"nemo-rl/{entry}"
        open_ = [text for text in found.undecided if "'train'" not in text]  # nothing is known of the data
        assert not open_, (entry, open_)


def test_machines_that_only_the_settings_count_are_enough(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text("cluster: {num_nodes: 2, gpus_per_node: 8}\n", "utf-8")
    words = ["python", "examples/run_sft.py", "--config", str(path)]

    def said(**asked: int) -> list[str]:
        found = linter.check(words, linter.Asked("nemo-rl", gpus_per_node=8, **asked)).findings
        return [one.code for one in found if one.code == "nemo-rl-gpus-short"]

    assert not said()
    assert said(nodes=1) == ["nemo-rl-gpus-short"]


def test_a_hybrid_model_is_split_in_a_way_of_its_own() -> None:
    model = {"num_attention_heads": 40, "num_key_value_heads": 8}
    words = ["policy.dtensor_cfg.tensor_parallel_size=16", "++policy.dtensor_cfg._v2=false"]
    for kind, expected in (("llama", 1), ("nemotron_h", 0)):
        found = check("dpo", words, {"model": {**model, "model_type": kind}}).findings
        assert [one.code for one in found].count("nemo-rl-dtensor-heads") == expected


@pytest.mark.parametrize("script", ["ray.sub", "./tools/ray.sub"])
def test_the_command_that_a_job_script_starts_is_read(script: str) -> None:
    words = ["COMMAND=uv run ./examples/run_grpo.py grpo.num_prompts_per_stepp=3", "CONTAINER=image"]
    asked = linter.Asked("nemo-rl")
    ((found,), _) = linter.check_every(
        [*words, "sbatch", "--nodes=2", "--exclusive", "--gres", "gpu:8", script], asked
    )
    assert found.method == "nemo-rl/grpo" and [finding.code for finding in found.findings] == ["key-unknown"]


def test_a_job_script_that_starts_nothing_known_is_said() -> None:
    with pytest.raises(Invalid, match="no script that can be read") as caught:
        linter.check(["sbatch", "other.sub"], linter.Asked("nemo-rl"))
    assert caught.value.code == "command-unknown"
