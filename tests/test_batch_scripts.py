"""Batch scripts of Slurm: what their directives ask for, held against themselves and against the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tuneport import workflow
from tuneport.checks import directives
from tuneport.errors import Invalid
from tuneport.text import guess_anew
from tuneport.types import Finding

REPORTS = json.loads((Path(__file__).parent / "data/reports/slurm.json").read_text("utf-8"))
MEET = "--rdzv_backend=c10d --rdzv_endpoint=h1:29500"
VERL = "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=vllm"


def said(folder: Path, *lines: str, **asked: Any) -> list[Finding]:
    guess_anew()
    script = folder / "job.sbatch"
    script.write_text("\n".join(["#!/bin/bash", *lines, ""]), "utf-8")
    try:
        return list(workflow.check([str(script)], **asked).findings)
    except Invalid as error:
        assert error.code == "script-nothing"
        return []


def keys(found: list[Finding], code: str = "launcher-directives") -> list[str]:
    return [one.key for one in found if one.code == code]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report["id"])
def test_a_reported_mistake_is_found(report: dict[str, Any], tmp_path: Path) -> None:
    found = said(tmp_path, *report["minimal_input"]["args"])
    level = report["expected_severity"]
    assert any(one.key in report["fault_keys"] for one in found if one.severity == level), found


@pytest.mark.parametrize(
    ("bad", "good", "key"),
    [
        (
            ["#SBATCH --gres=gpu:8 --gpus-per-task=1 -n 4"],
            ["#SBATCH --gres=gpu:8 --gpus-per-task=2 -n 4"],
            "--gpus-per-task",
        ),
        (
            ["#SBATCH -N 2 --gpus-per-node=8 --gpus=8"],
            ["#SBATCH -N 2 --gpus-per-node=a100:8 --gpus=16"],
            "--gpus",
        ),
        (["export A=1", "#SBATCH --gres=gpu:8"], ["#SBATCH --gres=gpu:8", "export A=1"], "--gres"),
    ],
)
def test_directives_that_contradict_each_other_or_come_late(
    bad: list[str], good: list[str], key: str, tmp_path: Path
) -> None:
    run = f"srun torchrun --nnodes=2 {MEET} --nproc_per_node=4 train.py"
    assert keys(said(tmp_path, *bad, run)) == [key]
    assert not keys(said(tmp_path, *good, run))


def test_a_script_that_writes_another_one_is_no_batch_script(tmp_path: Path) -> None:
    lines = ["cat > job.sbatch <<EOF", "#SBATCH --gres=gpu:8", "EOF"]
    run = f"torchrun --nnodes=2 {MEET} --nproc_per_node=4 train.py"
    assert not keys(said(tmp_path, *lines, run))


def test_a_launcher_that_counts_fewer_machines(tmp_path: Path) -> None:
    run = f"srun torchrun --nnodes=2 {MEET} --nproc_per_node=8 train.py"
    assert keys(said(tmp_path, "#SBATCH -N 4 --gres=gpu:8", run)) == ["--nodes"]
    assert not keys(said(tmp_path, "#SBATCH -N 2 --gres=gpu:8", run))


def test_the_hardware_that_a_script_asks_for_counts_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    run = "torchrun --nproc_per_node=8 train.py"
    few, many = "#SBATCH --gres=gpu:a100:4,nvme:1", "#SBATCH --gpus-per-node=8"
    assert keys(said(tmp_path, few, run), "launcher-processes") == ["--nproc_per_node"]
    assert not said(tmp_path, many, run)
    assert not said(tmp_path, few, run, gpus_per_node=8)
    asked = f"{VERL} trainer.nnodes=2 trainer.n_gpus_per_node=8"
    assert "trainer.n_gpus_per_node" in keys(said(tmp_path, "#SBATCH -N2", few, asked), "verl-gpus-missing")
    assert not keys(said(tmp_path, "#SBATCH -N2", many, asked), "verl-gpus-missing")


def test_a_program_with_workers_of_its_own_is_started_once(tmp_path: Path) -> None:
    head = "#SBATCH --nodes=2 --ntasks-per-node=8 --gres=gpu:8"
    assert keys(said(tmp_path, head, f"srun {VERL}")) == ["--ntasks-per-node"]
    assert keys(said(tmp_path, "#SBATCH --nodes=2", f"srun {VERL}")) == ["--nodes"]
    assert keys(said(tmp_path, head, f"srun -n 4 {VERL}")) == ["--ntasks"]
    assert not keys(said(tmp_path, head, f"srun --nodes=1 --ntasks=1 {VERL}"))
    assert not keys(said(tmp_path, head, f"srun -n $TASKS {VERL}"))
    assert not keys(said(tmp_path, head, VERL))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("#SBATCH --nodes=²\n#SBATCH --gpus-per-node=8", (0, 8)),
        ("#SBATCH -N 2\n#SBATCH --gres=gpu:8", (2, 8)),
        ("#SBATCH --nodes=2-4 --gres=gpu", (0, 1)),
        ("#SBATCH --nodes=1 --gpus=4", (1, 4)),
        ("#SBATCH --nodes=2 --gpus=4", (2, 0)),
        ("#SBATCH --gres=gpu:a:2,gpu:b:1", (0, 3)),
        ("echo\n#SBATCH --nodes=2", (0, 0)),
    ],
)
def test_hardware(lines: str, expected: tuple[int, int], tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text(f"#!/bin/bash\n{lines}\n", "utf-8")
    assert directives.hardware(str(script)) == expected
    assert directives.hardware("") == (0, 0)
