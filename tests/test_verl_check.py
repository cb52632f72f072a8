"""`tp check` on real invocations of verl: no false alarm, and nothing slips through that upstream refuses.

The invocations are upstream's own and are kept beside the repository; without them their tests are skipped.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tuneport import linter, workflow
from tuneport.dialects.hydra.read import take_apart as take_words
from tuneport.dialects.hydra.render import render_overrides
from tuneport.errors import Invalid, NotFound
from tuneport.experiment.command_line import take_apart
from tuneport.registry import surfaces

sys.path.insert(0, str(Path(__file__).parent))
from hydra_reference import Reference, wheel

ROOT = Path(__file__).resolve().parents[1]
CORPUS = Path(os.environ.get("TUNEPORT_CORPUS") or ROOT.parent / "shared" / "corpus") / "accept" / "verl"
needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no corpus of invocations in {CORPUS}")


def records() -> list[dict[str, Any]]:
    return [json.loads(path.read_text("utf-8")) for path in sorted(CORPUS.glob("*.json"))]


def command(record: dict[str, Any]) -> list[str]:
    options = [word for word in record["launcher_args"] if word != "-m"]
    launcher = ["torchrun", *options] if record["launcher"] == "torchrun" else ["python3"]
    return [*launcher, "-m", record["entry"], *record["args"]]


def verdict(record: dict[str, Any]) -> str:
    full = (record.get("upstream_check_full") or {}).get("result", "")
    return "rejected" if record["upstream_check"]["result"] != "ok" or full == "rejected" else "ok"


def errors(record: dict[str, Any]) -> list[str]:
    asked = linter.Asked(record["framework"], record["version"], env=record["env"])
    try:
        checked = linter.check(command(record), asked)
    except NotFound as error:
        return [error.code]
    return [f"{f.code}: {f.message}" for f in checked.findings if f.severity == "error"]


@needs_corpus
def test_no_accepted_invocation_gets_an_error() -> None:
    accepted = [record for record in records() if verdict(record) == "ok"]
    assert len(accepted) > 50
    alarms = {record["slug"]: found for record in accepted if (found := errors(record))}
    assert not alarms


@needs_corpus
def test_every_rejected_invocation_gets_one() -> None:
    rejected = [record for record in records() if verdict(record) == "rejected"]
    assert len(rejected) > 5
    assert not [record["slug"] for record in rejected if not errors(record)]


@needs_corpus
def test_all_invocations_together_are_quick() -> None:
    """CPU time in one process: 3 s on an idle machine is the aim; a loaded one gets room."""
    found = records()
    errors(found[0])
    start = time.process_time()
    for record in found:
        errors(record)
    assert time.process_time() - start < 6


@pytest.mark.upstream
@needs_corpus
def test_what_was_read_is_written_back_to_the_same_configuration() -> None:
    """Read by us, rendered by us, composed by Hydra: equal to what Hydra makes of the original words. Every
    fourth invocation; all of them with HYPOTHESIS_PROFILE=long."""
    hydra = Reference()
    chosen = [r for r in records() if r["upstream_check"]["result"] == "ok"]
    for record in chosen if os.environ.get("HYPOTHESIS_PROFILE") == "long" else chosen[::4]:
        _, root = wheel("verl", record["version"])
        checked = linter.check(command(record), linter.Asked("verl", record["version"]))
        entry = surfaces.of("verl", record["version"])["entries"][record["entry"]]
        words = [word for word in render_overrides({}, checked.context).argv if isinstance(word, str)]

        def composed(words: list[str], root: Path = root, entry: dict[str, Any] = entry) -> Any:
            taken = take_words(words)
            name = taken.flags.get("config_name", entry["config"]).removesuffix(".yaml")
            overrides = [word for word in words if not word.startswith("--config")]
            overrides = [word for word in overrides if word not in ("config", name, f"{name}.yaml")]
            return hydra.ask(
                "compose",
                folder=str(root / entry["path"][0]),
                config=name,
                overrides=overrides,
                cwd=str(root),
                packages=["verl.trainer.config"],
            )

        original = composed(record["args"])
        assert original is not None, f"{record['slug']}: {hydra.reason}"
        ours = composed(words)
        assert ours is not None, f"{record['slug']}: {words}: {hydra.reason}"
        assert dict(ours) == dict(original), record["slug"]
    hydra.close()


PPO = ["python3", "-m", "verl.trainer.main_ppo"]
GRPO = [
    *PPO,
    "algorithm.adv_estimator=grpo",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.actor.use_dynamic_bsz=true",
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=true",
    "actor_rollout_ref.ref.log_prob_use_dynamic_bsz=true",
    "actor_rollout_ref.model.path=/models/m",
    "data.train_files=/data/train.parquet",
    "data.val_files=/data/test.parquet",
]


def said(*words: str, version: str = "0.9.0") -> Iterator[tuple[str, str, str]]:
    for finding in workflow.check(words, framework="verl", version=version).findings:
        if finding.severity != "note":
            yield finding.severity, finding.code, finding.key


@pytest.mark.parametrize("version", ["0.9.0", "0.9.1"])
def test_a_sound_command_has_no_errors(version: str) -> None:
    report = workflow.check(GRPO, version=version)
    assert report.ok, [f.message for f in report.findings]
    assert report.facts["method"] == "verl/grpo"
    assert report.facts["release"] == f"verl {version}"


def test_a_budget_that_is_raised_to_an_unknown_length_is_not_judged() -> None:
    """0.9.1 raises it to the model's positions where no length is named, and the model is not here."""
    words = ["max_num_batched_tokens=512", "max_num_seqs=1024", "enable_chunked_prefill=False"]
    command = [*GRPO, *(f"actor_rollout_ref.rollout.{word}" for word in words)]
    codes = {
        version: {finding.code for finding in workflow.check(command, version=version).findings}
        for version in ("0.9.0", "0.9.1")
    }
    assert "verl-rollout-sequences" in codes["0.9.0"]
    assert not {code for code in codes["0.9.1"] if code.startswith("verl-rollout-sequences")}


@pytest.mark.parametrize(
    ("word", "code", "key"),
    [
        ("data.train_batch_siz=8", "key-unknown", "data.train_batch_siz"),
        ("+data.train_batch_size=8", "key-exists", "data.train_batch_size"),
        ("model_engine=foo", "group-option", "model_engine"),
        ("trainer.nnodes=None", "key-type", "trainer.nnodes"),
        ("trainer.logger=console,wandb", "hydra-sweep", "trainer.logger"),
        ("trainer.project_name='a", "hydra-syntax", "trainer.project_name"),
        ("actor_rollout_ref.actor.loss_agg_mode=x", "key-choice", "actor_rollout_ref.actor.loss_agg_mode"),
        ("+actor_rollout_ref.actor.foo=1", "key-unknown", "actor_rollout_ref.actor.foo"),
        ("actor_rollout_ref.actor.ppo_infer_micro_batch_size_per_gpu=1", "key-needs-plus",
         "actor_rollout_ref.actor.ppo_infer_micro_batch_size_per_gpu"),
        ("actor_rollout_ref.actor.optim.lr=fast", "key-type", "actor_rollout_ref.actor.optim.lr"),
        ("actor@actor_rollout_ref.actor=nope", "group-option", "actor@actor_rollout_ref.actor"),
        ("actor=dp_actor", "group-unknown", "actor"),
        ("--config-name=nope", "config-unknown", "nope"),
        ("~trainer.nope", "hydra-override", "trainer.nope"),
        ("actor_rollout_ref.rollout.skip.enable=true", "key-moved", "actor_rollout_ref.rollout.skip.enable"),
    ],
)  # fmt: skip
def test_each_kind_of_mistake_has_its_code(word: str, code: str, key: str) -> None:
    words = [*GRPO[:3], word, *GRPO[3:]] if word.startswith("--") else [*GRPO, word]
    assert ("error", code, key) in said(*words)


def test_what_would_be_ignored_is_a_warning() -> None:
    assert ("warning", "key-unread", "trainer.nobody_reads_this") in said(
        *GRPO, "+trainer.nobody_reads_this=1"
    )
    assert not [
        code for _, code, _ in said(*GRPO, "+reward.reward_kwargs.anything=1") if code == "key-unread"
    ]


@pytest.mark.parametrize(("estimator", "severity"), [("grpo", "warning"), ("gae", "error")])
def test_a_section_that_is_never_built_refuses_no_field(estimator: str, severity: str) -> None:
    words = [*GRPO, f"algorithm.adv_estimator={estimator}", "+critic.foo=1", "critic.ppo_epochs=x"]
    found = {(code, key): level for level, code, key in said(*words)}
    assert found["key-unknown", "critic.foo"] == found["key-type", "critic.ppo_epochs"] == severity
    assert ("error", "key-unknown", "critic.foo") in said(*GRPO, "critic.foo=1")  # Hydra refuses it before


def test_a_wrong_choice_is_all_that_is_said() -> None:
    report = workflow.check([*GRPO, "model_engine=foo", "nope=1"])
    assert [f.code for f in report.findings] == ["group-option"]


def test_hardware_that_is_not_given_is_not_too_little() -> None:
    words = ["trainer.v1.trainer_mode=separate_async", "actor_rollout_ref.rollout.n_gpus_per_node=8"]
    words += ["actor_rollout_ref.rollout.nnodes=1", "trainer.nnodes=1", "trainer.n_gpus_per_node=8"]
    assert "verl-gpus-all" not in {code for _, code, _ in said(*GRPO, *words)}
    known = linter.check([*GRPO, *words], linter.Asked("verl", "0.9.0", nodes=1, gpus_per_node=8))
    assert "verl-gpus-all" in {finding.code for finding in known.findings}


def test_repeated_keys_name_the_winner() -> None:
    report = workflow.check([*GRPO, "trainer.save_freq=5", "trainer.save_freq=7"])
    note = next(f for f in report.findings if f.code == "key-repeated")
    assert note.severity == "note"
    assert "5, then 7; the last one counts" in note.message


@pytest.mark.parametrize(
    ("words", "module", "nodes", "per_node", "env"),
    [
        ("python -m a.b x=1", "a.b", 0, 0, {}),
        ("/usr/bin/python3.11 -u -W ignore -m a.b x=1", "a.b", 0, 0, {}),
        ("A=1 B=x=y python a/b.py x=1", "a/b.py", 0, 0, {"A": "1", "B": "x=y"}),
        ("env A=1 nohup python3 -m a.b x=1", "a.b", 0, 0, {"A": "1"}),
        ("uv run --extra gpu --no-sync python -m a.b x=1", "a.b", 0, 0, {}),
        ("torchrun --standalone --nnodes=2 --nproc_per_node 8 -m a.b x=1", "a.b", 2, 8, {}),
        ("torchrun --nnodes 1:4 --nproc-per-node=4 a/b.py x=1", "a/b.py", 4, 4, {}),
        ("python -m torch.distributed.run --nproc_per_node=2 -m a.b x=1", "a.b", 0, 2, {}),
        (
            "ray job submit --no-wait --address http://h:1 --working-dir . -- python3 -m a.b x=1",
            "a.b",
            0,
            0,
            {},
        ),
        (
            'ray job submit --runtime-env-json={"env_vars":{"A":"1"}} -- python -m a.b x=1',
            "a.b",
            0,
            0,
            {"A": "1"},
        ),
    ],
)
def test_launchers_are_taken_off(
    words: str, module: str, nodes: int, per_node: int, env: dict[str, str]
) -> None:
    found = take_apart(words.split())
    assert (found.module, found.nodes, found.per_node, found.env) == (module, nodes, per_node, env)
    assert found.arguments == ["x=1"]


@pytest.mark.parametrize(
    ("words", "script", "text", "arguments"),
    [
        (["bash", "run.sh", "a=1"], "run.sh", "", ["a=1"]),
        (["./run.sh"], "./run.sh", "", []),
        (["A=1", "nohup", "bash", "-xeo", "pipefail", "run.sh", "a"], "run.sh", "", ["a"]),
        (["ray", "job", "submit", "--", "bash", "-lc", "python -m a.b", "x"], "", "python -m a.b", ["x"]),
        (["srun", "-N", "2", "sh", "x/run"], "x/run", "", []),
        (["timeout", "-v", "3h", "bash", "run.sh"], "run.sh", "", []),
    ],
)
def test_a_shell_is_taken_for_what_it_reads(
    words: list[str], script: str, text: str, arguments: list[str]
) -> None:
    found = take_apart(words)
    assert (found.script, found.text, found.arguments) == (script, text, arguments)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["ls", "-l"], "command-unknown"),
        (["bash", "-x"], "command-unknown"),
        (["python", "-m"], "command-unknown"),
        (["torchrun", "--nnodes=1"], "command-unknown"),
    ],
)
def test_what_is_no_program_is_said_plainly(words: list[str], code: str) -> None:
    with pytest.raises(Invalid) as caught:
        take_apart(words)
    assert caught.value.code == code


def test_an_unknown_program_is_not_found() -> None:
    with pytest.raises(NotFound):
        workflow.check(["python", "-m", "nobody.has.this", "a=1"])


def test_what_is_no_number_is_said() -> None:
    found = linter.check(
        ["python3", "-m", "verl.trainer.main_ppo", "critic.optim.lr=nan"], linter.Asked("verl", "0.9.0")
    ).findings
    assert ("key-type", "critic.optim.lr", "warning") in [(f.code, f.key, f.severity) for f in found]


@pytest.mark.parametrize(
    ("word", "gone"),
    [
        ("~trainer.nnodes", ["trainer.nnodes"]),
        ("trainer=foo", ["trainer.nnodes", "trainer.n_gpus_per_node"]),
        ("~actor_rollout_ref.rollout", ["actor_rollout_ref.rollout.n"]),
        ("trainer.nnodes=2", []),
    ],
)
def test_a_section_that_is_always_read_may_not_go(word: str, gone: list[str]) -> None:
    words = ["python3", "-m", "verl.trainer.main_ppo", "algorithm.adv_estimator=grpo", word]
    found = linter.check(words, linter.Asked("verl", "0.9.0")).findings
    assert sorted(one.key for one in found if one.code == "verl-section-gone") == sorted(gone)
