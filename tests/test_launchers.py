"""What is wrong with how a program is started: by torchrun, accelerate, deepspeed, srun, or a batch script."""
# ruff: noqa: E501 - one case a line

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tuneport import linter, workflow
from tuneport.errors import Invalid, NotFound
from tuneport.experiment.create import new_project
from tuneport.registry import catalog
from tuneport.text import guess_anew
from tuneport.types import Finding

REPORTS = json.loads((Path(__file__).parent / "data/reports/launchers.json").read_text("utf-8"))
ONE = {"topology": {"nodes": 1, "gpus_per_node": 8}}
TWO = {"topology": {"nodes": 2, "gpus_per_node": 8}}
SCRIPT = "trl/scripts/sft.py --model_name_or_path a/b --dataset_name c/d"
MEET = "--rdzv_backend=c10d --rdzv_endpoint=h1:29500"
FIRST = "--main_process_ip h1 --main_process_port 29500"
# (code, flag, severity, what breaks it, what does not); on two machines of eight GPUs.
TORCHRUN = [
    ("launcher-processes", "nproc_per_node", "error", "--nproc_per_node=16", "--nproc_per_node=8"),
    ("launcher-processes", "nproc_per_node", "error", "--nproc-per-node all", "--nproc-per-node gpu"),
    ("launcher-refuses", "nnodes", "error", "--nnodes=2-4", f"--nnodes=2:4 {MEET}"),
    ("launcher-refuses", "rdzv_backend", "error", "--rdzv_backend=nccl", "--rdzv_backend=c10d"),
    ("launcher-refuses", "rdzv_endpoint", "error", "--rdzv_endpoint=h1:port", "--rdzv_endpoint=h1"),
    ("launcher-refuses", "max_restarts", "error", "--max_restarts=-1", "--max_restarts=0"),
    ("launcher-flag", "nprocs_per_node", "warning", "--nprocs_per_node=4", "--nproc_per=4"),
    ("launcher-rendezvous", "standalone", "error", "--standalone --nnodes=2", "--standalone --nnodes=1"),
    ("launcher-rendezvous", "rdzv_endpoint", "warning", "--nnodes=2 --rdzv_backend=c10d --master_addr=h1",
     f"--nnodes=2 {MEET}"),
    ("launcher-rendezvous", "rdzv_endpoint", "warning",
     "--nnodes=2 --node_rank=1 --rdzv_backend=c10d --rdzv_endpoint=localhost:29500",
     f"--nnodes=2 --node_rank=1 {MEET}"),
    ("launcher-rendezvous", "rdzv_endpoint", "warning",
     "--nnodes=2:3 --rdzv_backend=c10d --rdzv_endpoint=127.0.0.1:29500",
     "--nnodes=1:3 --rdzv_backend=c10d --rdzv_endpoint=127.0.0.1:29500"),
    ("launcher-rendezvous", "master_addr", "warning", "--nnodes=2 --node_rank=1",
     "--nnodes=2 --node_rank=1 --master_addr=h1"),
    ("launcher-rendezvous", "master_addr", "warning", "--nnodes=2 --node_rank=0 --master_addr=localhost",
     "--nnodes=2 --node_rank=0 --master_addr=h1"),
    ("launcher-rendezvous", "nnodes", "error", f"--nnodes=4 {MEET}", f"--nnodes=2 {MEET}"),
    ("launcher-rendezvous", "nnodes", "warning", "--nnodes=1", f"--nnodes=2 {MEET}"),
    ("launcher-refuses", "rdzv_endpoint", "error", "--rdzv_endpoint=tcp://h1:29500", "--rdzv_endpoint=h1:29500"),
    ("launcher-refuses", "master_addr", "error", "--nnodes=2 --node_rank=0 --master_addr=10.0.0.1:29500",
     "--nnodes=2 --node_rank=0 --master_addr=10.0.0.1 --master_port=29500"),
    ("launcher-refuses", "master_addr", "error", "--nnodes=2 --node_rank=0 --master_addr=http://h1",
     "--nnodes=2 --node_rank=0 --master_addr=fe80::1"),
    ("launcher-refuses", "rdzv_conf", "error", "--rdzv_conf=timeout", "--rdzv_conf=timeout=900,join_timeout=900"),
    ("launcher-rendezvous", "rdzv_conf", "warning", "--nnodes=1 --rdzv_conf=rdzv_backend=c10d,rdzv_endpoint=h1:1234",
     "--rdzv_conf=timeout=900"),
    ("launcher-rendezvous", "rdzv_endpoint", "warning", "--nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=0.0.0.0:29500",
     f"--nnodes=2 {MEET}"),
    ("launcher-rendezvous", "master_addr", "warning", "--nnodes=2 --node_rank=1 --master_addr=0.0.0.0",
     "--nnodes=2 --node_rank=1 --master_addr=h1"),
    ("launcher-rendezvous", "rdzv_endpoint", "warning", "--standalone --rdzv_endpoint=h1:29500", "--standalone"),
    ("launcher-rendezvous", "master_addr", "warning", f"--nnodes=2 {MEET} --master_addr=h2",
     f"--nnodes=2 {MEET} --master_addr=h1"),
    ("launcher-rendezvous", "node_rank", "warning", "--nnodes=2 --master_addr=h1", f"--nnodes=2 {MEET}"),
    ("launcher-rendezvous", "node_rank", "error", "--nnodes=2 --node_rank=2 --master_addr=h1",
     "--nnodes=2 --node_rank=1 --master_addr=h1"),
]  # fmt: skip
ACCELERATE = [
    ("launcher-refuses", "use_fsdp", "error", "--use_fsdp --use_deepspeed", "--use_fsdp"),
    ("launcher-refuses", "use_deepspeed", "error", "--use_deepspeed --multi_gpu", "--use_deepspeed"),
    ("launcher-refuses", "multi_gpu", "error", "--multi_gpu --cpu", "--multi_gpu"),
    ("launcher-refuses", "num_processes", "error", "--multi_gpu --num_processes 1", "--num_processes 1"),
    ("launcher-refuses", "mixed_precision", "error", "--mixed_precision bfloat16", "--mixed_precision bf16"),
    ("launcher-refuses", "fsdp_version", "error", "--use_fsdp --fsdp_version 3", "--use_fsdp --fsdp_version 2"),
    ("launcher-refuses", "zero_stage", "error", "--use_deepspeed --zero_stage 5", "--use_deepspeed --zero_stage 3"),
    ("launcher-refuses", "use_parallelism_config", "error", "--use_parallelism_config",
     "--use_parallelism_config --use_fsdp --fsdp_version 2"),
    ("launcher-processes", "num_processes", "error", "--num_processes 32", "--num_processes 16"),
    ("launcher-processes", "num_processes", "warning", f"--num_machines 2 --num_processes 15 {FIRST}",
     f"--num_machines 2 --num_processes 14 {FIRST}"),
    ("launcher-processes", "num_processes", "warning", f"--num_machines 2 --num_processes 8 {FIRST}",
     f"--num_machines 2 --num_processes 16 {FIRST}"),
    ("launcher-rendezvous", "main_process_ip", "warning", "--num_machines 2 --num_processes 16",
     f"--num_machines 2 --num_processes 16 {FIRST}"),
    ("launcher-rendezvous", "main_process_ip", "warning",
     "--num_machines 2 --num_processes 16 --machine_rank 1 --main_process_ip localhost",
     f"--num_machines 2 --num_processes 16 --machine_rank 1 {FIRST}"),
    ("launcher-processes", "gpu_ids", "error", "--gpu_ids 0,1 --num_processes 4", "--gpu_ids 0,1 --num_processes 2"),
    ("launcher-rendezvous", "machine_rank", "warning", f"--num_machines 2 --num_processes 16 {FIRST}",
     f"--num_machines 2 --num_processes 16 --machine_rank 0 {FIRST}"),
    ("launcher-rendezvous", "machine_rank", "warning", f"--num_machines 2 --num_processes 16 {FIRST}",
     f"--num_machines 2 --num_processes 16 --rdzv_backend c10d {FIRST}"),
    ("launcher-rendezvous", "rdzv_conf", "warning", "--rdzv_conf rdzv_backend=c10d,rdzv_endpoint=h1:1234", "--rdzv_conf timeout=900"),
    ("launcher-refuses", "deepspeed_multinode_launcher", "error",
     f"--use_deepspeed --deepspeed_multinode_launcher openmpi --num_machines 2 --num_processes 16 {FIRST}",
     f"--use_deepspeed --deepspeed_multinode_launcher standard --num_machines 2 --num_processes 16 {FIRST}"),
    ("launcher-refuses", "deepspeed_multinode_launcher", "error", "--deepspeed_multinode_launcher ssh", "--deepspeed_multinode_launcher pdsh"),
    ("launcher-refuses", "zero_stage", "warning", "--zero_stage 3", "--use_deepspeed --zero_stage 3"),
    ("launcher-refuses", "deepspeed_config_file", "warning", "--deepspeed_config_file d.json", "--use_deepspeed --deepspeed_config_file d.json"),
    ("launcher-refuses", "fsdp_sharding_strategy", "warning", "--fsdp_sharding_strategy FULL_SHARD", "--use_fsdp --fsdp_sharding_strategy FULL_SHARD"),
    ("launcher-refuses", "fsdp_transformer_layer_cls_to_wrap", "warning", "--fsdp_transformer_layer_cls_to_wrap A",
     "--use_fsdp --fsdp_transformer_layer_cls_to_wrap A"),
    ("launcher-refuses", "fsdp_auto_wrap_policy", "error", "--use_fsdp --fsdp_auto_wrap_policy TRANSFORMER",
     "--use_fsdp --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP"),
    ("launcher-rendezvous", "machine_rank", "error",
     f"--num_machines 2 --num_processes 16 --machine_rank 2 {FIRST}",
     f"--num_machines 2 --num_processes 16 --machine_rank 1 {FIRST}"),
]  # fmt: skip
DEEPSPEED = [
    ("launcher-refuses", "include", "error", "--include localhost:0,1 --num_gpus 2", "--include localhost:0,1"),
    ("launcher-processes", "include", "error", "--include localhost:6,7,8", "--include localhost:6,7"),
    ("launcher-refuses", "exclude", "error", "--include localhost:0,1 --exclude localhost:3", "--exclude localhost:3"),
    ("launcher-rendezvous", "num_nodes", "warning", "--num_nodes 2", "--num_nodes 2 --hostfile hosts"),
    ("launcher-refuses", "launcher", "error", "--hostfile hosts --launcher ssh", "--hostfile hosts --launcher OpenMPI"),
    ("launcher-flag", "num_gpu_per_node", "warning", "--num_gpu_per_node 8", "--num_gpus 8"),
]  # fmt: skip
STARTS = {"torchrun": TORCHRUN, "accelerate launch": ACCELERATE, "deepspeed": DEEPSPEED}
CASES = [(start, *case) for start, cases in STARTS.items() for case in cases]


def found(command: str, facts: Mapping[str, object] = TWO) -> list[Finding]:
    """Those about launchers; a program of nobody's that starts well has none."""
    guess_anew()
    try:
        every = linter.check(command.split(), linter.Asked(facts=facts)).findings
    except NotFound as error:
        assert error.code == "entry-unknown"
        return []
    return [one for one in every if one.code.startswith("launcher-") and one.code != "launcher-settings"]


@pytest.mark.parametrize("program", [SCRIPT, "train.py --lr 1"], ids=["known", "own"])
@pytest.mark.parametrize(("start", "code", "flag", "severity", "bad", "good"), CASES)
def test_a_launcher_s_mistake_is_named_and_its_neighbour_is_not(
    start: str, code: str, flag: str, severity: str, bad: str, good: str, program: str
) -> None:
    said = [(one.code, one.key, one.severity) for one in found(f"{start} {bad} {program}")]
    assert (code, f"--{flag}", severity) in said
    assert not [one for one in found(f"{start} {good} {program}") if one.key == f"--{flag}"]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report["id"])
def test_a_reported_mistake_is_found(report: dict[str, Any]) -> None:
    said = found(report["command"], {"topology": report["topology"]})
    wanted = (report["fault_keys"][0], report["expected_severity"])
    assert wanted in [(one.key, one.severity) for one in said], said


def test_every_rule_of_a_launcher_has_a_case() -> None:
    named = {(code, f"--{flag}", severity) for _, code, flag, severity, _, _ in CASES}
    named |= {
        ("launcher-nested", flag, "error") for flag in ("--nproc_per_node", "--nnodes", "--num_machines")
    }
    named |= {
        ("launcher-processes", "--num_gpus", "error"),
        ("launcher-processes", "CUDA_VISIBLE_DEVICES", "warning"),
    }
    launchers = catalog.launchers()
    rules = [rule for launcher in launchers.values() for rule in launcher.get("rules", ())]
    assert {(rule["code"], rule["key"], rule["severity"]) for rule in rules} <= named
    assert all(rule["source"] for rule in rules) and len(rules) > 25


@pytest.mark.parametrize(
    "flags",
    [
        MEET,
        "--nnodes=1",
        "--standalone --nproc_per_node=8",
        "--nproc_per_node=gpu",
        "--nnodes=1 --rdzv_backend=c10d --rdzv_endpoint=[fe80::1]:29500",
        "--nnodes=1 --rdzv_backend=c10d --rdzv_endpoint=[fe80::1]",
        "-r3 -t3 --nproc_per_node=8",
    ],
)
def test_usual_ways_to_start_are_left_alone(flags: str) -> None:
    assert not found(f"torchrun {flags} {SCRIPT}", ONE)
    assert not found(f"python -m torch.distributed.run {flags} {SCRIPT}", ONE)


def test_what_a_launcher_of_processes_means_on_processors_or_unsaid_hardware() -> None:
    command = f"torchrun --nproc_per_node=16 {SCRIPT}"
    assert not found(command, {})
    assert not found(command, {"topology": {"nodes": 1, "gpus_per_node": 8, "series": "cpu"}})
    entry = "openrlhf.cli.train_sft --model.model_name_or_path m --data.dataset d --data.output_key r"
    assert [one.key for one in found(f"deepspeed --num_gpus 16 --module {entry}", ONE)] == ["--num_gpus"]
    assert not found(f"deepspeed --num_gpus 8 --module {entry}", ONE)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (f"CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=4 {SCRIPT}", "--nproc_per_node"),
        (f"CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 {SCRIPT}", ""),
        (f"CUDA_VISIBLE_DEVICES=GPU-a1 torchrun --nproc_per_node=2 {SCRIPT}", ""),
        (f"CUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_processes 4 {SCRIPT}", "--num_processes"),
        (f"CUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_processes 2 {SCRIPT}", ""),
        ("CUDA_VISIBLE_DEVICES=2,3 deepspeed --num_gpus 2 train.py", "CUDA_VISIBLE_DEVICES"),
        ("CUDA_VISIBLE_DEVICES=2,3 deepspeed train.py", ""),
        ("CUDA_VISIBLE_DEVICES=2,3 deepspeed --hostfile hosts --num_gpus 2 train.py", ""),
    ],
)
def test_gpus_that_a_command_hides_are_counted(command: str, key: str) -> None:
    assert [one.key for one in found(command, ONE)] == ([key] if key else [])


def test_a_program_of_nobody_s_is_still_unknown_where_it_starts_well() -> None:
    with pytest.raises(NotFound, match=r"train\.py"):
        linter.check(["torchrun", "--nproc_per_node=8", "train.py"], linter.Asked(facts=ONE))


def test_variables_that_nobody_knows_leave_a_rule_open(tmp_path: Path) -> None:
    script = tmp_path / "s.sh"
    start = "torchrun --nnodes=$NODES --node_rank=$RANK --rdzv_endpoint=$HEAD:29500 --nproc_per_node=$GPUS"
    script.write_text(f"{start} {SCRIPT}\n", "utf-8")
    codes = {one.code for one in workflow.check([str(script)], nodes=2, gpus_per_node=8).findings}
    assert not {code for code in codes if code.startswith("launcher-")}
    env = {"NODES": "2", "RANK": "3", "HEAD": "h1", "GPUS": "9"}
    said = workflow.check([str(script)], nodes=2, gpus_per_node=8, env=env).findings
    assert {one.key for one in said if one.code.startswith("launcher-")} == {
        "--node_rank",
        "--nproc_per_node",
    }


def test_variables_that_torchrun_reads_itself_count_as_flags(tmp_path: Path) -> None:
    script = tmp_path / "s.sh"
    for variable, flags in (
        ("PET_RDZV_ENDPOINT=$HEAD:29500", "--rdzv-backend=c10d"),
        ("PET_MASTER_ADDR=$HEAD PET_NODE_RANK=$RANK", ""),
        ("PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=h1:29500", ""),
    ):
        script.write_text(f"export {variable}\ntorchrun --nnodes=2 {flags} {SCRIPT}\n", "utf-8")
        said = workflow.check([str(script)], nodes=2, gpus_per_node=8).findings
        assert not [one.code for one in said if one.code.startswith("launcher-")]


@pytest.mark.parametrize("flags", ["--use_env --nproc_per_node=8", "--nproc_per_node=8 --use-env"])
def test_the_older_module_has_a_flag_of_its_own(flags: str) -> None:
    assert not found(f"python -m torch.distributed.launch {flags} {SCRIPT}", ONE)


def test_more_digits_than_python_reads_are_no_number() -> None:
    for flag in ("nnodes", "nproc_per_node"):
        assert f"--{flag}" in [one.key for one in found(f"torchrun --{flag}={'9' * 5000} train.py", ONE)]


def test_processes_of_a_file_or_of_other_hardware_are_no_gpus_too_many(tmp_path: Path) -> None:
    asked = linter.Asked(gpus_per_node=8)
    settings = tmp_path / "two.yaml"
    settings.write_text("compute_environment: LOCAL_MACHINE\nnum_machines: 2\nnum_processes: 16\n", "utf-8")
    start = ["accelerate", "launch", "--num_processes", "16"]
    for more in (["--config_file", str(settings)], ["--config_file", str(tmp_path / "none")], ["--tpu"]):
        with pytest.raises(NotFound, match=r"train\.py"):
            linter.check([*start, *more, "train.py"], asked)
    said = linter.check([*start, "train.py"], asked).findings
    assert "launcher-processes" in [one.code for one in said]


def batch(folder: Path, *lines: str) -> list[tuple[str, str]]:
    script = folder / "job.sh"
    script.write_text("\n".join(["#!/bin/bash", *lines, ""]), "utf-8")
    try:
        said = workflow.check([str(script)], nodes=1, gpus_per_node=8).findings
    except Invalid as error:
        assert error.code == "script-nothing"
        return []
    return [(one.code, one.key) for one in said if one.code == "launcher-nested"]


def test_tasks_of_slurm_that_each_start_a_launcher(tmp_path: Path) -> None:
    nested = [("launcher-nested", "--nproc_per_node")]
    run = "torchrun --nproc_per_node=8 train.py"
    assert batch(tmp_path, "#SBATCH --ntasks-per-node=8", f"srun {run}") == nested
    assert batch(tmp_path, f"srun --ntasks-per-node=8 {run}") == nested
    assert not batch(tmp_path, "#SBATCH --ntasks-per-node=1", f"srun {run}")
    assert not batch(tmp_path, "#SBATCH --ntasks-per-node=8", f"srun --ntasks-per-node=1 {run}")
    assert not batch(tmp_path, "#SBATCH --ntasks-per-node=8", run)
    assert not batch(tmp_path, "#SBATCH --ntasks-per-node=8", f"srun -N2 -n2 {run}")
    assert not batch(tmp_path, "#SBATCH --ntasks-per-node=8", f"srun -n1 {run}")


@pytest.mark.parametrize(
    ("flag", "run"),
    [
        ("--nnodes", f"torchrun --nnodes=8 {MEET} --nproc_per_node=8"),
        (
            "--num_machines",
            "accelerate launch --num_machines 8 --num_processes 64 --machine_rank $SLURM_PROCID",
        ),
    ],
)
def test_a_batch_script_runs_on_its_first_machine_only(flag: str, run: str, tmp_path: Path) -> None:
    head = ("#SBATCH -N 8", "#SBATCH --gres=gpu:8  # all of them")
    assert batch(tmp_path, *head, f"{run} {SCRIPT}") == [("launcher-nested", flag)]
    assert not batch(tmp_path, *head, f"srun {run} {SCRIPT}")
    assert not batch(tmp_path, "#SBATCH --nodes=1", f"{run} {SCRIPT}")
    assert batch(tmp_path, "#SBATCH -N8", f"{run} {SCRIPT}") == [("launcher-nested", flag)]
    assert not batch(tmp_path, *head, f"$EVERYWHERE $NODE {run} {SCRIPT}")
    assert not batch(tmp_path, "export A=1", *head, f"{run} {SCRIPT}")  # Slurm has stopped reading
    together = '#SBATCH -J "a b" -N 8 --gpus-per-node=8'
    assert batch(tmp_path, together, f"{run} {SCRIPT}") == [("launcher-nested", flag)]
    assert not batch(tmp_path, "#SBATCH -J a#b -N 8", f"{run} {SCRIPT}")  # nor what follows a `#`


def test_nothing_is_imported_of_a_program_that_is_unknown(tmp_path: Path) -> None:
    from tuneport.experiment import project

    new_project(tmp_path / "p")
    here = project.Folder(tmp_path / "p", {})
    with pytest.raises(Invalid) as refused:
        workflow.import_command(["torchrun", "--nproc_per_node=16", "train.py"], "x", here, gpus_per_node=8)
    assert [one.code for one in refused.value.findings] == ["entry-unknown"]
