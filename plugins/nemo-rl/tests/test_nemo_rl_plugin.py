"""The adapter: keys by engine, data, schedules, programs, checkpoints, and files that build on others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tuneport import api
from tuneport.compiler.compile import Compiled
from tuneport.experiment.create import new_project
from tuneport.experiment.findings import findings_text
from tuneport.registry import catalog
from tuneport.registry.plugins import Hooks
from tuneport.testing import FrameworkTests
from tuneport.types import Location, Ref

REQUEST = {"model": "org/model", "train_data": "/data/train.jsonl", "profile": "h200:8"}
BOTH = {**REQUEST, "validation_data": "/data/validation.jsonl"}


class TestNemoRl(FrameworkTests):
    framework = "nemo-rl"
    requests: ClassVar[dict[str, dict[str, Any]]] = {
        "nemo-rl/sft": {**BOTH, "set": {"lora": True, "lora_rank": 32, "lora_targets": ["q_proj", "v_proj"]}},
        "nemo-rl/dpo": {**REQUEST, "set": {"beta": 0.1, "adam_beta2": 0.999}},
        "nemo-rl/rm": {
            **BOTH, "profile": "h200:16",
            "set": {"warmup_steps": 10, "lr_schedule": "cosine", "max_steps": 100},
        },
        "nemo-rl/grpo": {
            **REQUEST, "set": {"norm_adv_by_std": False, "clip_ratio_high": 0.28, "mini_batch_size": 32},
        },
        "nemo-rl/grpo-lora": {**REQUEST, "set": {"lora_rank": 16, "lr_schedule": "linear"}},
        "nemo-rl/ppo": {**BOTH, "profile": "h200:16", "set": {"critic_warmup_steps": 5}},
        "nemo-rl/distillation": {**REQUEST, "set": {"teacher_model": "org/teacher"}},
        "nemo-rl/maxrl": {**REQUEST, "set": {"advantage_epsilon": 1.0e-4}},
        "nemo-rl/opsd": {**REQUEST, "set": {"teacher_mode": "self"}},
    }  # fmt: skip
    golden = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> api.Project:
    return api.open_project(new_project(tmp_path_factory.mktemp("nemo") / "project"))


def experiment(project: api.Project, method: str, config: str = "", **files: str) -> api.Experiment:
    """An experiment with this config.yaml and these files, in place of what was there."""
    path = project.folder.experiments / method
    made = api.Experiment(str(path)) if path.exists() else project.new(method, f"nemo-rl/{method}")
    (path / "config.yaml").write_text(config, "utf-8")
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text, "utf-8")
    return made


def compiled(project: api.Project, method: str, config: str = "", **request: Any) -> Compiled:
    found = experiment(project, method, config).validate(**{**REQUEST, **request}).compiled
    assert found is not None
    return found


def document(found: Compiled) -> Any:
    """What the program reads."""
    assert found.plan is not None, findings_text(found.findings)
    return found.plan.commands[0].files["tuneport-config.yaml"].content


def codes(found: Compiled, *severities: str) -> list[str]:
    return [f.code for f in found.findings if f.severity in (severities or ("error", "warning"))]


COSINE = {"name": "torch.optim.lr_scheduler.CosineAnnealingLR", "kwargs": {"T_max": 90, "eta_min": 0.0}}
RISE = {
    "name": "torch.optim.lr_scheduler.LinearLR",
    "kwargs": {"start_factor": 0.1, "end_factor": 1.0, "total_iters": 10},
}


@pytest.mark.parametrize(
    ("method", "params", "native"),
    [
        ("sft", {"learning_rate": 1e-5}, {"policy.optimizer.kwargs.lr": 1e-5}),
        (
            "sft",
            {"engine": "megatron", "learning_rate": 1e-5, "tensor_parallel_size": 2},
            {
                "policy.dtensor_cfg.enabled": False, "policy.megatron_cfg.enabled": True,
                "policy.megatron_cfg.optimizer.lr": 1e-5, "policy.megatron_cfg.tensor_model_parallel_size": 2,
            },
        ),
        ("sft", {"adam_beta1": 0.8}, {"policy.optimizer.kwargs.betas": [0.8, 0.98]}),
        ("sft", {"engine": "megatron", "adam_beta1": 0.8}, {"policy.megatron_cfg.optimizer.adam_beta1": 0.8}),
        ("sft", {"all_turns_loss": False}, {"sft.only_unmask_final": True}),
        ("sft", {"mixed_precision": "none"}, {"policy.precision": "float32"}),
        ("sft", {"loggers": ["mlflow"]}, {"logger.wandb_enabled": False, "logger.mlflow_enabled": True}),
        (
            "sft", {"lora": True, "lora_targets": ["q_proj"]},
            {"policy.dtensor_cfg.lora_cfg.match_all_linear": False},
        ),
        (
            "sft",
            {"warmup_steps": 10, "lr_schedule": "cosine", "max_steps": 100},
            {"policy.scheduler": [RISE, COSINE, {"milestones": [10]}]},
        ),
        (
            "sft",
            {"engine": "megatron", "lr_schedule": "cosine", "max_steps": 100, "optimizer_offload": True},
            {
                "policy.megatron_cfg.scheduler.lr_decay_style": "cosine",
                "policy.megatron_cfg.scheduler.lr_decay_iters": 100,
                "policy.megatron_cfg.optimizer.optimizer_offload_fraction": 1.0,
            },
        ),
        ("grpo", {"mini_batch_size": 16, "rollouts_per_prompt": 4}, {"policy.train_global_batch_size": 64}),
        ("grpo", {"mini_batch_size": 16}, {"policy.train_global_batch_size": 256}),
        ("grpo", {"top_k": -1}, {"policy.generation.top_k": None}),
        ("grpo", {"importance_level": "sequence", "loss_agg_mode": "seq-mean-token-mean"},
         {"loss_fn.sequence_level_importance_ratios": True, "loss_fn.token_level_loss": False}),
        ("grpo", {"norm_adv_by_std": False},
         {"grpo.normalize_rewards": False, "grpo.adv_estimator.normalize_rewards": False}),
        ("ppo", {"engine": "megatron", "critic_learning_rate": 1e-5},
         {"value.megatron_cfg.optimizer.lr": 1e-5}),
    ],
)  # fmt: skip
def test_parameters_become_native_keys(
    project: api.Project, method: str, params: dict[str, Any], native: dict[str, Any]
) -> None:
    found = compiled(project, method, set=params)
    assert not codes(found, "error"), findings_text(found.findings)
    assert {key: found.context.own[key] for key in native} == native


def test_a_parameter_of_the_other_engine_is_refused(project: api.Project) -> None:
    found = compiled(project, "sft", set={"pipeline_parallel_size": 2})
    assert codes(found, "error") == ["nemo-rl-engine-parameter"]


def test_where_the_method_decides_the_engine_no_other_is_advised(project: api.Project) -> None:
    found = compiled(project, "grpo-lora", set={"param_offload": True})
    (error,) = [one for one in found.findings if one.code == "nemo-rl-engine-parameter"]
    assert error.message == "param_offload means nothing where policy.megatron_cfg.enabled is true"
    assert error.hint == "leave param_offload out"


@pytest.mark.parametrize(
    ("method", "request_", "train", "validation"),
    [
        (
            "sft", REQUEST,
            {"dataset_name": "ResponseDataset", "split": "train", "split_validation_size": 0.05}, None,
        ),
        (
            "sft", BOTH, {"dataset_name": "ResponseDataset", "split_validation_size": 0},
            {"dataset_name": "ResponseDataset", "data_path": "/data/validation.jsonl", "split": "train"},
        ),
        ("dpo", REQUEST, {"dataset_name": "BinaryPreferenceDataset", "data_path": "/data/train.jsonl"}, None),
        (
            "grpo", {**BOTH, "train_data": "org/data"},
            {"data_path": "org/data"}, {"dataset_name": "ResponseDataset"},
        ),
    ],
)  # fmt: skip
def test_data_takes_the_place_of_the_release_s_own(
    project: api.Project, method: str, request_: dict[str, Any], train: Mapping[str, Any], validation: Any
) -> None:
    data = document(compiled(project, method, **request_))["data"]
    assert {key: data["train"].get(key) for key in train} == train
    if validation is None:
        assert data["validation"] is None
    else:
        assert {key: data["validation"].get(key) for key in validation} == validation


def test_without_validation_data_pairs_are_not_validated(project: api.Project) -> None:
    found = document(compiled(project, "dpo"))
    assert (found["dpo"]["val_period"], found["dpo"]["val_at_start"]) == (0, False)
    assert found["checkpointing"]["metric_name"] is None


def test_what_the_user_says_of_data_stays(project: api.Project) -> None:
    text = "data:\n  train: {dataset_name: openai_format, split: all}\n  validation: {dataset_name: squad}\n"
    data = document(compiled(project, "sft", text))["data"]
    assert (data["train"]["dataset_name"], data["train"]["split"]) == ("openai_format", "all")
    assert data["validation"]["dataset_name"] == "squad"


def test_several_files_are_refused(project: api.Project) -> None:
    found = compiled(project, "sft", train_data="/d/a.jsonl,/d/b.jsonl")
    assert codes(found, "error")


def test_files_of_the_experiment_are_named_in_full(project: api.Project) -> None:
    made = experiment(project, "sft", "data:\n  default: {prompt_file: prompt.txt}\n", prompt__txt="{}\n")
    plan = made.plan(**REQUEST)
    content = plan.commands[0].files["tuneport-config.yaml"].content
    assert content["data"]["default"]["prompt_file"] == Ref("work_dir", "/prompt.txt")


def test_the_program_is_the_release_s_or_the_experiment_s_own(project: api.Project) -> None:
    made = experiment(project, "rm")
    words = made.plan(**REQUEST).commands[0].argv
    assert words[1:] == (
        "tuneport-run.py",
        "examples/run_rm.py",
        "--config",
        Ref("work_dir", "/tuneport-config.yaml"),
    )
    made = experiment(project, "rm", main__py="print('mine')\n")
    assert made.plan(**REQUEST).commands[0].argv[2] == Ref("work_dir", "/main.py")


def test_several_nodes_make_a_cluster_first(project: api.Project) -> None:
    plan = experiment(project, "grpo").plan(**{**REQUEST, "profile": "h200:16"})
    assert "tuneport-cluster.py" in plan.commands[0].argv
    content = plan.commands[0].files["tuneport-config.yaml"].content
    assert content["cluster"]["num_nodes"] == 2


# --- files that build on others


def test_a_file_beside_it_is_a_base(project: api.Project) -> None:
    made = experiment(
        project, "grpo", "defaults: base.yaml\npolicy: {precision: float32}\n",
        base__yaml="grpo: {max_num_steps: 7}\npolicy: {precision: float16}\n",
    )  # fmt: skip
    report = made.validate(**REQUEST)
    assert report.compiled is not None
    content = document(report.compiled)
    assert content["grpo"]["max_num_steps"] == 7
    assert content["policy"]["precision"] == "float32"
    assert content["grpo"]["num_prompts_per_step"] == 32  # the release's own, below
    origin = report.compiled.layers.origins["grpo.max_num_steps"]
    assert (os.path.basename(origin.file), origin.line) == ("base.yaml", 1)


def test_a_file_of_the_release_is_a_base(project: api.Project) -> None:
    content = document(
        compiled(project, "grpo", "defaults: grpo_math_8B.yaml\ngrpo: {num_prompts_per_step: 32}\n")
    )
    assert content["policy"]["max_total_sequence_length"] == 4096
    assert content["grpo"]["num_prompts_per_step"] == 32


def test_a_section_that_replaces_its_base(project: api.Project) -> None:
    text = "data:\n  _override_: true\n  max_input_seq_length: 100\n  shuffle: false\n  num_workers: 1\n"
    text += "  use_multiple_dataloader: false\n  train: {dataset_name: gsm8k}\n"
    content = document(compiled(project, "grpo", text + "grpo: {val_period: 0}\n", train_data=""))
    assert content["data"].keys() == {
        "max_input_seq_length", "shuffle", "num_workers", "use_multiple_dataloader", "train",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "files", "code"),
    [
        ("defaults: nope.yaml\n", {}, "config-unknown"),
        ("defaults: a.yaml\n", {"a.yaml": "defaults: a.yaml\n"}, "config-circle"),
        ("defaults: {a: b}\n", {}, "config-defaults"),
        ("defaults: a.yaml\n", {"a.yaml": "- 1\n"}, "yaml-root"),
        ("defaults: a.yaml\n", {"a.yaml": "a: [\n"}, "yaml-syntax"),
        ("defaults: [a.yaml, sft.yaml]\n", {"a.yaml": "sft: {seed: 1}\n"}, "config-order"),
    ],
)
def test_a_base_that_cannot_be_is_said(
    project: api.Project, text: str, files: dict[str, str], code: str
) -> None:
    made = experiment(
        project, "sft", text, **{name.replace(".", "__"): content for name, content in files.items()}
    )
    assert code in {f.code for f in made.validate(**REQUEST).findings if f.severity == "error"}


def test_a_key_that_nothing_reads_is_a_warning_with_what_was_meant(project: api.Project) -> None:
    found = compiled(project, "grpo", "grpo: {num_prompt_per_step: 32}\nbogus: 1\n")
    said = {f.key: f for f in found.findings if f.code == "key-unread"}
    assert set(said) == {"grpo.num_prompt_per_step", "bogus"}
    assert "`grpo.num_prompts_per_step`" in said["grpo.num_prompt_per_step"].hint


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("grpo: {num_prompts_per_step: many}\n", "key-type"),
        ("grpo: {num_prompts_per_step: null}\n", "key-type"),
        ("policy: {precision: 16}\n", "key-type"),
        ("policy: {dtensor_cfg: {enabled: 'perhaps'}}\n", "key-type"),
        ("data: {dataset_name: gsm8k}\n", "key-moved"),
        ("cluster: {num_nodes: 2}\n", "platform-key"),
        ("grpo: {max_num_steps: '${mul:2}'}\n", "key-interpolation"),
    ],
)
def test_a_value_that_the_release_refuses_is_an_error(project: api.Project, text: str, code: str) -> None:
    assert code in codes(compiled(project, "grpo", text), "error")


def test_a_section_that_is_off_may_hold_anything(project: api.Project) -> None:
    found = compiled(project, "grpo", "policy: {megatron_cfg: {tensor_model_parallel_size: two}}\n")
    assert not codes(found, "error")


def test_interpolations_reckon_as_upstream_s_do(project: api.Project) -> None:
    found = compiled(
        project, "grpo", "policy: {max_total_sequence_length: 1000, train_micro_batch_size: 3}\n"
    )
    assert found.context.config["policy.sequence_packing.train_mb_tokens"] == 3000


# --- scripts that run in the job


def run(script: str, folder: Path, words: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    text = package_files("tuneport_nemo_rl").joinpath(script).read_text("utf-8")
    (folder / "script.py").write_text(text, "utf-8")
    return subprocess.run(
        [sys.executable, "script.py", *words],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )


def test_a_program_runs_in_the_source_tree(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (root / "examples").mkdir(parents=True)
    (root / "examples" / "helper.py").write_text("NAME = 'here'\n", "utf-8")
    (root / "examples" / "run_x.py").write_text(
        "import os, sys, helper\nprint(os.path.basename(os.getcwd()), helper.NAME, sys.argv[1:], __name__)\n",
        "utf-8",
    )
    done = run(
        "run_script.py", tmp_path, ["examples/run_x.py", "--config", "/c.yaml"], NEMO_RL_ROOT=str(root)
    )
    assert done.stdout == "tree here ['--config', '/c.yaml'] __main__\n", done.stderr
    gone = run("run_script.py", tmp_path, ["examples/none.py"], NEMO_RL_ROOT=str(root))
    assert gone.returncode and "NEMO_RL_ROOT" in gone.stderr
    bare = run("run_script.py", tmp_path, ["examples/run_x.py"], NEMO_RL_ROOT="")
    assert bare.returncode and "nemo_rl is not installed here" in bare.stderr


@pytest.mark.parametrize(("folder", "converter"), [("iter_0000010", "megatron"), ("", "dcp")])
def test_the_converter_fits_the_checkpoint(tmp_path: Path, folder: str, converter: str) -> None:
    weights = tmp_path / "out" / "step_10" / "policy" / "weights"
    (weights / folder).mkdir(parents=True)
    (tmp_path / "out" / "step_9").mkdir()
    (tmp_path / "out" / "step_10" / "config.yaml").write_text("policy: {}\n", "utf-8")
    scripts = tmp_path / "tree" / "examples" / "converters"
    scripts.mkdir(parents=True)
    for kind in ("dcp", "megatron"):
        (scripts / f"convert_{kind}_to_hf.py").write_text(
            "import json, os, sys\nout = sys.argv[sys.argv.index('--hf-ckpt-path') + 1]\nos.makedirs(out)\n"
            "json.dump(sys.argv, open(os.path.join(out, 'config.json'), 'w'))\n",
            "utf-8",
        )
    # What the folder holds is what wrote it, whatever the settings say.
    done = run(
        "export_script.py", tmp_path, [], NEMO_RL_ROOT=str(tmp_path / "tree"), TUNEPORT_BACKEND="dtensor",
        TUNEPORT_CHECKPOINT=str(tmp_path / "out"), TUNEPORT_OUTPUT_DIR=str(tmp_path / "exported"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    words = json.loads((tmp_path / "exported" / "huggingface" / "config.json").read_text("utf-8"))
    assert os.path.basename(words[0]) == f"convert_{converter}_to_hf.py"
    assert str(weights / folder) in words


def test_adapters_of_megatron_are_merged_into_the_base_that_they_were_trained_on(tmp_path: Path) -> None:
    trained = tmp_path / "step_3/policy/weights/iter_0000003"
    trained.mkdir(parents=True)
    (tmp_path / "step_3/config.yaml").write_text("policy: {model_name: org/m}\n", "utf-8")
    base = tmp_path / "base"
    said = {"peft": {"dim": 8}, "checkpoint": {"pretrained_checkpoint": str(base)}}
    (trained / "run_config.yaml").write_text(json.dumps(said), "utf-8")
    scripts = tmp_path / "tree/examples/converters"
    scripts.mkdir(parents=True)
    (scripts / "convert_lora_to_hf.py").write_text(
        "import json, os, sys\nout = sys.argv[sys.argv.index('--hf-ckpt-path') + 1]\nos.makedirs(out)\n"
        "json.dump(sys.argv, open(os.path.join(out, 'config.json'), 'w'))\n",
        "utf-8",
    )
    given = {"NEMO_RL_ROOT": str(tmp_path / "tree"), "TUNEPORT_CHECKPOINT": str(tmp_path)}
    given["TUNEPORT_OUTPUT_DIR"] = str(tmp_path / "exported")
    gone = run("export_script.py", tmp_path, [], **given)
    assert gone.returncode and "TUNEPORT_BASE_CHECKPOINT" in gone.stderr
    (base / "iter_0000000").mkdir(parents=True)
    done = run("export_script.py", tmp_path, [], **given)
    assert done.returncode == 0, done.stderr
    words = json.loads((tmp_path / "exported/huggingface/config.json").read_text("utf-8"))[1:]
    assert words[:6] == [
        "--base-ckpt", str(base / "iter_0000000"), "--adapter-ckpt", str(trained), "--hf-model-name", "org/m",
    ]  # fmt: skip
    # The release's own program takes these words.
    assert {word for word in words if word.startswith("--")} == {
        "--base-ckpt", "--adapter-ckpt", "--hf-model-name", "--hf-ckpt-path",
    }  # fmt: skip


def test_no_checkpoint_is_said(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done = run(
        "export_script.py",
        tmp_path,
        [],
        TUNEPORT_CHECKPOINT=str(tmp_path / "out"),
        TUNEPORT_OUTPUT_DIR=str(tmp_path),
    )
    assert done.returncode and "no checkpoint of NeMo-RL" in done.stderr


def test_an_export_says_what_trained(project: api.Project) -> None:
    found = compiled(project, "sft", set={"engine": "megatron"})
    plan = Hooks("nemo-rl", []).export(found.context, Location("run", "", "job-1"), "huggingface")
    (command,) = plan.commands
    assert command.env["TUNEPORT_BACKEND"] == "megatron"
    assert command.env["TUNEPORT_CHECKPOINT"] == Ref("run_output", "", "job-1")


@pytest.mark.parametrize("method", ["maxrl", "opsd"])
def test_what_the_release_lacks_comes_with_the_experiment(method: str) -> None:
    templates = catalog.templates(f"nemo-rl/{method}")
    source = templates["main.py"].read_text("utf-8")
    compile(source, "main.py", "exec")
    assert "main.py" in catalog.method(f"nemo-rl/{method}").spec["requires_files"]
