"""`tp import`: the experiment compiles back to what the command said.

The invocations of upstream's own examples are kept beside the repository; without them their tests are
skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tuneport import api, importer, linter, workflow
from tuneport.checks.rules import nested
from tuneport.compiler.layers import flatten
from tuneport.errors import Invalid
from tuneport.experiment.command_line import Invocation
from tuneport.experiment.create import new_project, write_folder
from tuneport.experiment.request import Flags
from tuneport.registry import surfaces
from tuneport.registry.plugins import Hooks
from tuneport.types import Json, LaunchPlan, Ref

sys.path.insert(0, str(Path(__file__).parent))
from hydra_reference import Reference, wheel
from test_verl_check import command, needs_corpus, records, verdict

# An error of the experiment as of the command: the engine refuses these batches, past what could be asked.
PROVED = {"verl-micro-divides"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> api.Project:
    made = api.open_project(new_project(tmp_path / "project"))
    monkeypatch.chdir(tmp_path / "project")
    return made


PPO = ["python3", "-m", "verl.trainer.main_ppo"]
GRPO = [
    *PPO,
    "algorithm.adv_estimator=grpo",
    "actor_rollout_ref.model.path=org/model",
    "data.train_files=[/data/a.parquet,/data/b.parquet]",
    "data.val_files=/data/test.parquet",
    "data.train_batch_size=64",
    "actor_rollout_ref.actor.ppo_mini_batch_size=${data.train_batch_size}",
    "actor_rollout_ref.actor.optim.lr=1e-6",
    "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.rollout.name=sglang",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True",
    "actor_rollout_ref.ref.log_prob_use_dynamic_bsz=True",
    "+actor_rollout_ref.rollout.engine_kwargs.vllm.disable_mm_preprocessor_cache=True",
    "trainer.default_local_dir=/out",
    "trainer.logger=[console,wandb]",
    "trainer.n_gpus_per_node=8",
    "trainer.nnodes=2",
]


def imported(
    *words: str, name: str = "e", **known: Any
) -> tuple[workflow.Imported, dict[str, Json], dict[str, Json]]:
    made = workflow.import_command(words, name, **known)
    texts = [made.path / "config.yaml", made.path / "job.yaml"]
    config, job = (yaml.safe_load(path.read_text("utf-8")) if path.exists() else {} for path in texts)
    return made, config or {}, job or {}


def planned(made: workflow.Imported, name: str = "e") -> LaunchPlan:
    flags = {flag.removeprefix("--").replace("-", "_"): value for flag, value in made.flags.items()}
    plan, _ = workflow.plan(name, Flags(**flags))
    return plan


def test_a_command_becomes_an_experiment(project: api.Project) -> None:
    made, config, job = imported("NCCL_DEBUG=WARN", "TENSORBOARD_DIR=/tb", *GRPO)
    assert (made.method, made.release) == ("verl/grpo", "verl 0.9.0")
    assert made.flags == {
        "--model": "org/model",
        "--train-data": "/data/a.parquet,/data/b.parquet",
        "--validation-data": "/data/test.parquet",
        "--profile": "gpu:16",
    }
    assert job["params"]["learning_rate"] == 1e-6
    assert job["params"]["rollouts_per_prompt"] == 8
    assert job["params"]["rollout_engine"] == "sglang"
    assert job["env"] == {"NCCL_DEBUG": "WARN"}
    # An interpolation is kept, where text of a parameter would stand for itself.
    assert config["actor_rollout_ref"]["actor"]["ppo_mini_batch_size"] == "${data.train_batch_size}"
    assert dict(made.left).keys() == {
        "trainer.default_local_dir", "trainer.n_gpus_per_node", "trainer.nnodes", "TENSORBOARD_DIR",
    }  # fmt: skip
    assert not [finding for finding in made.findings if finding.severity == "error"]
    words = planned(made).commands[0].argv
    assert "data.train_files=['/data/a.parquet','/data/b.parquet']" in words
    assert "actor_rollout_ref.rollout.engine_kwargs.vllm.disable_mm_preprocessor_cache=true" in [
        word.lstrip("+") for word in words if isinstance(word, str)
    ]


def test_what_chooses_files_and_takes_keys_out_is_kept(project: api.Project) -> None:
    words = [*GRPO, "model_engine=megatron", "~trainer.balance_batch", "+trainer.of_my_own=1"]
    made, _, job = imported(*words)
    assert job["native"]["groups"] == {"model_engine": "megatron"}
    assert job["native"]["delete"] == ["trainer.balance_batch"]
    assert job["native"]["append"] == {"trainer.of_my_own": 1}
    argv = planned(made).commands[0].argv
    assert {"model_engine=megatron", "~trainer.balance_batch", "+trainer.of_my_own=1"} <= set(argv)


def test_a_method_s_own_defaults_do_not_slip_in(project: api.Project) -> None:
    """What the method would set and the command leaves alone is written out as upstream has it."""
    words = [word for word in GRPO if "rollout.name" not in word]
    words += ["algorithm.adv_estimator=remax"]
    _, config, job = imported(*words)
    assert config["trainer"]["use_v1"] is True  # the method's own default is the older trainer
    assert job["params"]["rollouts_per_prompt"] == 8
    assert "rollout_engine" not in job["params"]  # the command has to name one and does not


def test_pools_that_no_profile_can_say_are_written(project: api.Project) -> None:
    made, _, job = imported(*GRPO, "trainer.n_gpus_per_node=16")
    assert "--profile" not in made.flags
    assert job["resources"]["pools"] == [{"name": "main", "series": "gpu", "nodes": 2, "gpus_per_node": 16}]


def test_a_pool_beside_the_trainer_is_found(project: api.Project) -> None:
    words = [*GRPO, "distillation.enabled=true", "distillation.nnodes=1", "distillation.n_gpus_per_node=4",
             "distillation.teacher_models.teacher_model.model_path=org/teacher"]  # fmt: skip
    made, _, job = imported(*words, method="verl/distillation")
    assert made.method == "verl/distillation"
    assert [pool["gpus_per_node"] for pool in job["resources"]["pools"]] == [8, 4]
    assert job["resources"]["roles"]["teacher"] == "teacher"


def test_files_that_the_command_names_come_along(project: api.Project) -> None:
    Path("rewards").mkdir()
    Path("rewards/mine.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n"
    )
    made, _, _ = imported(*GRPO, "reward.custom_reward_function.path=rewards/mine.py")
    assert (made.path / "rewards/mine.py").exists()
    places = [
        word for word in planned(made).commands[0].argv if isinstance(word, Ref) and "reward" in word.prefix
    ]
    assert places and places[0].ref == "work_dir"


def test_a_script_is_imported(project: api.Project) -> None:
    text = (
        "N=${N:-4}\nA=("
        + " ".join(f"'{word}'" for word in GRPO[3:])
        + ')\npython3 -m verl.trainer.main_ppo "${A[@]}" trainer.save_freq=$N "$@"\n'
    )
    Path("train.sh").write_text(text)
    _, _, job = imported("bash", "train.sh", "trainer.total_epochs=3", env={"N": "9"})
    assert (job["params"]["save_every"], job["params"]["epochs"]) == (9, 3)
    assert "env" not in job


@pytest.mark.parametrize("words", [["algorithm.adv_estimator=gpg"], ["actor_rollout_ref.rollout.n=1"]])
def test_what_no_method_promises_is_a_plain_policy_gradient(project: api.Project, words: list[str]) -> None:
    made, _, job = imported(*GRPO, *words)
    assert made.method == "verl/policy-gradient" and made.ok
    name, _, value = words[0].partition("=")
    parameter = "rollouts_per_prompt" if name.endswith("n") else "advantage_estimator"
    assert str(job["params"][parameter]) == value


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([*GRPO, "trainer.nnode=1"], "import-broken", ""),
        ([" ".join(f"'{word}'" for word in GRPO) + " trainer.save_freq=$N"], "import-undecided", "N"),
        ([f"{' '.join(PPO)}; {' '.join(PPO)}"], "import-several", "2 commands"),
    ],
)
def test_what_cannot_be_said_is_refused(project: api.Project, words: list[str], code: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        workflow.import_command(words, "e")
    assert caught.value.code == code
    assert says in caught.value.message + " ".join(finding.hint for finding in caught.value.findings)
    assert not (project.folder.experiments / "e").exists()


def test_several_data_files_need_a_key_that_takes_them(project: api.Project) -> None:
    made = project.import_command("e", GRPO)
    given = {"model": "org/m", "profile": "h200:16", "train_data": "/a.parquet, /b.parquet"}
    assert made.plan(**given).config["data.train_files"] == ["/a.parquet", "/b.parquet"]
    Path("one,name.parquet").write_bytes(b"")
    one = made.plan(**{**given, "train_data": "one,name.parquet"})
    assert one.config["data.train_files"] == str(Path("one,name.parquet").absolute())
    report = project.new("t", "trl/sft").validate(model="org/m", train_data="/a.jsonl,/b.jsonl")
    assert "data-several" in {finding.code for finding in report.findings if finding.severity == "error"}


def test_nothing_is_overwritten(project: api.Project) -> None:
    imported(*GRPO)
    with pytest.raises(Invalid) as caught:
        imported(*PPO)
    assert caught.value.code == "experiment-exists"
    with pytest.raises(Invalid) as caught:
        imported(*GRPO, name="../e")
    assert caught.value.code == "experiment-name"


def test_the_printed_commands_work(project: api.Project) -> None:
    tp = str(Path(sys.executable).with_name("tp"))
    done = subprocess.run(
        [tp, "import", "--as", "e", "--", *GRPO], capture_output=True, text=True, check=True
    )
    assert "not written: trainer.nnodes" in done.stderr
    validate, plan = done.stdout.splitlines()
    for line in (validate, plan):
        assert line.startswith("tp ")
        subprocess.run(["/bin/sh", "-c", f"{tp} {line[3:]}"], check=True, capture_output=True)


def test_no_secret_is_written(project: api.Project) -> None:
    text = " ".join(f"'{word}'" for word in GRPO)
    words = "export WANDB_API_KEY=abcdef HF_TOKEN=hf_x MY_SECRET=abcdefghijklmnop NCCL_DEBUG=WARN; "
    words += f"WANDB_API_KEY=zzzz {text}"
    more = " +ray_kwargs.ray_init.runtime_env.env_vars.HF_TOKEN=hf_y trainer.project_name=x-$MY_SECRET"
    made, config, job = imported(words + more)
    written = "".join(path.read_text("utf-8") for path in made.path.iterdir())
    for value in ("abcdef", "zzzz", "hf_x", "hf_y"):
        assert value not in written
    assert job["env"] == {"NCCL_DEBUG": "WARN"}
    assert "ray_kwargs" not in config
    said = "looks like a secret: set it where the job is submitted"
    left = dict(made.left)
    assert {left["WANDB_API_KEY"], left["HF_TOKEN"]} == {said}
    assert left["trainer.project_name"] == f"it holds MY_SECRET, which {said}"
    assert left["ray_kwargs.ray_init.runtime_env.env_vars.HF_TOKEN"] == said
    assert (
        made.path.joinpath("config.yaml").read_text().startswith("# Imported from: verl.trainer.main_ppo\n")
    )


@pytest.mark.parametrize(
    ("before", "name"),
    [
        (["WANDB_API_KEY=abcdef"], "a"),
        (["env", "WANDB_API_KEY=abcdef"], "b"),
        (["ray", "job", "submit", '--runtime-env-json={"env_vars": {"WANDB_API_KEY": "abcdef"}}', "--"], "c"),
    ],
)
def test_no_launcher_hands_a_secret_on(project: api.Project, before: list[str], name: str) -> None:
    made, _, job = imported(*before, *GRPO, name=name)
    assert "abcdef" not in "".join(path.read_text("utf-8") for path in made.path.iterdir())
    assert "env" not in job and "WANDB_API_KEY" in dict(made.left)


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("verl/sft", "verl/sft runs verl.trainer.sft_trainer, not verl.trainer.main_ppo"),
        ("verl/ppo", "verl/ppo needs algorithm.adv_estimator=gae, not grpo"),
    ],
)
def test_another_method_is_refused(project: api.Project, method: str, says: str) -> None:
    done = tp("import", "--as", "e", "--method", method, "--", *GRPO)
    assert done.returncode == 3 and says in done.stderr
    assert list(project.folder.experiments.iterdir()) == []


def tp(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tuneport", *words], capture_output=True, text=True, check=False
    )


REWARD = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n"
KEY = "reward.custom_reward_function.path"


@pytest.mark.parametrize("kind", ["link", "broken", "large", "missing"])
def test_a_file_that_stays_behind_is_said(project: api.Project, kind: str) -> None:
    outside = project.folder.root.parent / "mine.py"
    outside.write_text(REWARD)
    if kind in ("link", "broken"):
        Path("mine.py").symlink_to(outside if kind == "link" else "nowhere.py")
    elif kind == "large":
        Path("mine.py").write_text(REWARD + "#" * (1 << 20))
    done = tp("import", "--as", "e", "--", *GRPO, f"{KEY}=mine.py")
    assert done.returncode == 3, done.stderr
    assert "created experiments/e" in done.stderr and "put it at experiments/e/mine.py" in done.stderr
    reasons = {"link": "leaves the working directory", "broken": "link to nothing"}
    reasons |= {"large": "larger than 1 MiB", "missing": "is not in the working directory"}
    assert reasons[kind] in done.stderr
    assert not (project.folder.experiments / "e/mine.py").exists()


def test_a_file_elsewhere_keeps_its_full_path(project: api.Project) -> None:
    outside = project.folder.root.parent / "w/my.py"
    outside.parent.mkdir()
    outside.write_text(REWARD)
    made, _, _ = imported(*GRPO, f"{KEY}=../w/my.py")
    assert made.ok and "import-place" in {finding.code for finding in made.findings}
    assert planned(made).config[KEY] == str(outside)


def test_a_file_is_not_taken_for_the_experiments_own(project: api.Project) -> None:
    Path("config.yaml").write_text("tools: []\n")
    key = "actor_rollout_ref.rollout.multi_turn.tool_config_path"
    made, _, _ = imported(*GRPO, f"{key}=config.yaml")
    assert [finding.key for finding in made.findings if finding.code == "import-place"] == [key]
    assert planned(made).config[key] == str(Path("config.yaml").absolute())


# Round trips over upstream's own invocations.


def accepted() -> Iterator[dict[str, Any]]:
    for record in records():
        if verdict(record) == "ok" and record["entry"] in (
            "verl.trainer.main_ppo",
            "verl.trainer.sft_trainer",
        ):
            yield record


def round_trip(record: dict[str, Any], folder: Path) -> tuple[linter.Checked, list[str]]:
    """(the command as it was read, the words of the experiment's plan)."""
    asked = linter.Asked(record["framework"], record["version"], env=record["env"])
    original = linter.check(command(record), asked)
    made, _ = importer.draft(command(record), asked)
    write_folder(folder, made.files(importer.title(made)))
    flags = {name.removeprefix("--").replace("-", "_"): value for name, value in made.flags.items()}
    if len(made.resources.get("pools", ())) > 1:
        flags["fleet"] = "cluster"
    report = workflow.validate(str(folder), Flags(**flags))
    broken = [finding for finding in report.findings if finding.severity == "error"]
    assert {finding.code for finding in broken} <= PROVED, record["slug"]
    assert report.compiled is not None
    plan = report.compiled.plan or Hooks("verl").launch(report.compiled.context)
    words = [
        word if isinstance(word, str) else f"{word.prefix}/{word.ref}{word.suffix}"
        for word in plan.commands[0].argv
    ]
    return original, words[max(at for at, word in enumerate(words) if word == "-m") + 1 :]


def _places(value: Json) -> list[str]:
    """Files as full paths: a list of one is that one, and relative ones are seen from here."""
    items = value if isinstance(value, list) else [value]
    return [os.path.abspath(os.path.expanduser(item)) for item in items]


def differences(
    record: dict[str, Any], before: Mapping[str, Json], after: Mapping[str, Json]
) -> dict[str, Any]:
    """Keys in which two configurations differ, apart from those of docs/check.md."""
    found = {}
    before, after = (
        {".".join(path): value for path, value in flatten(nested(c), {})} for c in (before, after)
    )
    for key in {**before, **after}:
        one, two = before.get(key, "(absent)"), after.get(key, "(absent)")
        if key == "trainer.default_local_dir" or (
            key in ("trainer.nnodes", "trainer.n_gpus_per_node") and "sft" in record["entry"]
        ):
            continue
        if key in ("data.train_files", "data.val_files") and one is not None:
            one, two = _places(one), _places(two)
        if key.endswith("custom_reward_function.path") and isinstance(one, str):
            two = two.removeprefix("/work_dir/") if isinstance(two, str) else two
        if key == "trainer.logger":
            one = [*(one if isinstance(one, list) else [one])]
            one += [] if "tensorboard" in one else ["tensorboard"]
        if one != two or type(one) is not type(two):
            found[key] = (one, two)
    return found


@pytest.fixture
def reward_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the files that the invocations name: upstream's are started in its clone."""
    for name in ("openr1mm", "tinyllava_video_r1"):
        path = tmp_path / "clone" / "verl/utils/reward_score" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 0.0\n"
        )
    monkeypatch.chdir(tmp_path / "clone")
    return tmp_path


@pytest.mark.sweep(whole=True)
@needs_corpus
def test_every_accepted_invocation_comes_back(reward_files: Path) -> None:
    wrong, count = {}, 0
    for number, record in enumerate(accepted()):
        original, words = round_trip(record, reward_files / str(number))
        again = linter.check_arguments(
            Invocation(words[0], False, words[1:]), linter.Asked("verl", record["version"], env=record["env"])
        )
        count += 1
        assert not [
            finding for finding in again.findings if finding.code.startswith(("hydra-", "key-unknown"))
        ]
        changed = differences(record, original.context.config, again.context.config)
        if changed:
            wrong[record["slug"]] = changed
    assert not wrong
    assert count > 80


@pytest.mark.upstream
@needs_corpus
def test_hydra_composes_the_same_from_both(reward_files: Path) -> None:
    """The same, judged by Hydra on the release's tree. Every fourth invocation; all with
    HYPOTHESIS_PROFILE=long."""
    hydra = Reference()
    every = list(accepted())
    for number, record in enumerate(every if os.environ.get("HYPOTHESIS_PROFILE") == "long" else every[::4]):
        _, words = round_trip(record, reward_files / str(number))
        _, root = wheel("verl", record["version"])
        entry = surfaces.of("verl", record["version"])["entries"][record["entry"]]

        def composed(
            arguments: list[str], root: Path = root, entry: dict[str, Any] = entry, slug: str = record["slug"]
        ) -> dict[str, Any]:
            names = [word.partition("=")[2] for word in arguments if word.startswith("--config-name=")]
            answer = hydra.ask(
                "compose",
                folder=str(root / entry["path"][0]),
                config=(names[0] if names else entry["config"]).removesuffix(".yaml"),
                overrides=[word for word in arguments if not word.startswith("--config")],
                cwd=str(root),
                packages=["verl.trainer.config"],
            )
            assert answer is not None, f"{slug}: {hydra.reason}"
            assert len(answer) > 50
            return dict(answer)

        spelled = [word for word in record["args"] if not word.startswith("--")]
        flags = json.dumps(record["args"])
        if "--config-name" in flags:
            at = next(i for i, word in enumerate(record["args"]) if word.startswith("--config-name"))
            word = record["args"][at]
            name = word.partition("=")[2] or record["args"][at + 1]
            spelled = [f"--config-name={name}", *(word for word in spelled if word != name)]
        assert not differences(record, composed(spelled), composed(words[1:])), record["slug"]
    hydra.close()
