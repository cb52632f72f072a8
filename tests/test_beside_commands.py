"""What is wrong with commands that people write beside a trainer: nodes of Ray, jobs sent to it, servers of answers."""
# ruff: noqa: E501 - one case a line

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from tuneport import linter, workflow
from tuneport.errors import Invalid, NotFound
from tuneport.experiment.create import new_project
from tuneport.registry import catalog
from tuneport.text import guess_anew
from tuneport.types import Finding

RAY = Path(os.environ.get("TUNEPORT_CACHE_DIR", "/var/tmp/tuneport-cache")) / "engines/ray-2.60.0/bin/ray"
ONE = {"topology": {"nodes": 1, "gpus_per_node": 8}}
TWO = {"topology": {"nodes": 2, "gpus_per_node": 8}}
SEEN = "CUDA_VISIBLE_DEVICES=0,1 "
CLUSTER = "--distributed-executor-backend ray"
MEET = "--nnodes 2 --node-rank 1 --master-addr h1"
# (code, key, severity, what breaks it, what does not); on two machines of eight GPUs.
NODES = [
    ("launcher-refuses", "--address", "error", "ray start --num-cpus 2", "ray start --address h1:6379"),
    ("launcher-refuses", "--port", "error", "ray start --address h1:6379 --port 6380", "ray start --head --port 6380"),
    ("launcher-refuses", "--include-dashboard", "error", "ray start --address h1:6379 --include-dashboard true", "ray start --head --include-dashboard true"),
    ("launcher-refuses", "--address", "error", "ray start --address ray://h1:10001", "ray start --address auto"),
    ("launcher-refuses", "--address", "error", "ray start --address=h1", "ray start --address=[fe80::1]:6379"),
    ("launcher-rendezvous", "--address", "warning", "ray start --address h1:8265", "ray start --address h1:6380"),
    ("launcher-rendezvous", "--address", "warning", "ray start --head --address h1:6379", "ray start --head"),
    ("launcher-refuses", "--num-gpus", "error", "ray start --head --num-gpus auto", "ray start --head --num-gpus 0"),
    ("launcher-processes", "--num-gpus", "warning", "ray start --head --num-gpus 16", "ray start --head --num-gpus 8"),
    ("launcher-processes", "--num-gpus", "error", f"{SEEN}ray start --head --num-gpus 8", f"{SEEN}ray start --head --num-gpus 2"),
    ("launcher-refuses", "--port", "error", "ray start --head --port 8265", "ray start --head --port 8265 --dashboard-port 8266"),
    ("launcher-nested", "--head", "warning", "srun --ntasks=2 ray start --head --block", "srun --nodes=1 --ntasks=1 ray start --head --block"),
    ("launcher-flag", "--num-gpux", "warning", "ray start --head --num-gpux 8", "ray start --head --disable-usage-stats -v"),
]  # fmt: skip
JOBS = [
    ("launcher-refuses", "--address", "error", "ray job submit --address tcp://h1:8265 -- ls", "ray job submit --address http://h1:8265 -- ls"),
    ("launcher-refuses", "--address", "error", "ray job submit --address=h1 -- ls", "ray job submit --address=ray://h1 -- ls"),
    ("launcher-rendezvous", "--address", "warning", "ray job submit --address http://h1:6379/ -- ls", "ray job submit --address h1:6379 -- ls"),
    ("launcher-rendezvous", "--address", "warning", "ray job submit --address h1:8265 -- ls", "ray job submit --address ray://h1:10001 -- ls"),
    ("launcher-rendezvous", "RAY_ADDRESS", "warning", "RAY_ADDRESS=http://h1:6379 ray job submit -- ls", "RAY_ADDRESS=h1:6379 ray job submit -- ls"),
    ("launcher-rendezvous", "RAY_ADDRESS", "warning", "RAY_ADDRESS=http://h1:8265 ray job submit --address http://h2:8265 -- ls",
     "RAY_ADDRESS=http://h1:8265 ray job submit --address http://h1:8265 -- ls"),
]  # fmt: skip
SERVERS = [
    ("launcher-refuses", "--tensor-parallel-size", "error", "vllm serve m -tp auto", "vllm serve m -tp 2"),
    ("launcher-processes", "--tensor-parallel-size", "error", f"vllm serve m -tp 8 -pp 4 {CLUSTER}", f"vllm serve m -tp 8 -pp 2 {CLUSTER}"),
    ("launcher-processes", "--tensor-parallel-size", "warning", "vllm serve m --tensor-parallel-size=16", f"vllm serve m --tensor-parallel-size=16 {CLUSTER}"),
    ("launcher-processes", "--distributed-executor-backend", "error", "vllm serve m -tp 16 --distributed-executor-backend mp",
     f"vllm serve m -tp 16 --distributed-executor-backend mp {MEET}"),
    ("launcher-processes", "--nnodes", "error", f"vllm serve m -tp 8 -dp 4 {MEET}", f"vllm serve m -tp 8 -dp 2 {MEET}"),
    ("launcher-processes", "--data-parallel-size", "error", "vllm serve m -tp 4 -dp 4", "vllm serve m -tp 4 -dp 2"),
    ("launcher-processes", "--data-parallel-size-local", "error", "vllm serve m -tp 4 -dp 8 -dpl 4", "vllm serve m -tp 4 -dp 4 -dpl 2"),
    ("launcher-processes", "--tensor-parallel-size", "error", f"{SEEN}vllm serve m -tp 4", f"{SEEN}vllm serve m -tp 2"),
    ("launcher-rendezvous", "--nnodes", "error", "vllm serve m -tp 16 --nnodes 4 --node-rank 0", f"vllm serve m -tp 16 {MEET}"),
    ("launcher-refuses", "--distributed-executor-backend", "error", f"vllm serve m -tp 16 {CLUSTER} --nnodes 2 --node-rank 0", f"vllm serve m -tp 16 {CLUSTER}"),
    ("launcher-rendezvous", "--node-rank", "error", "vllm serve m -tp 16 -n 2 -r 2 --master-addr h1", f"vllm serve m -tp 16 {MEET}"),
    ("launcher-rendezvous", "--node-rank", "warning", "vllm serve m -tp 16 --nnodes 2 --master-addr h1", f"vllm serve m -tp 16 {MEET}"),
    ("launcher-rendezvous", "--master-addr", "warning", "vllm serve m -tp 16 -n2 -r1", "vllm serve m -tp 16 -n2 -r0"),
    ("launcher-refuses", "--api-server-count", "error", "vllm serve m --headless --api-server-count 2", "vllm serve m --headless"),
    ("launcher-flag", "--tensor-paralel-size", "warning", "vllm serve m --tensor-paralel-size 4",
     "vllm serve m --no-enable-prefix-caching -O3 --compilation-config.mode 3 --max_model_len 8"),
    ("launcher-processes", "--tensor_parallel_size", "error", "trl vllm-serve --model m --tensor_parallel_size 4 --data_parallel_size 4",
     "trl vllm-serve --model m --tensor_parallel_size 4 --data_parallel_size 2"),
    ("launcher-processes", "--tensor_parallel_size", "error", f"trl vllm-serve --model m --tensor_parallel_size 32 {CLUSTER}",
     f"trl vllm-serve --model m --tensor_parallel_size 16 {CLUSTER}"),
    ("launcher-processes", "--tensor_parallel_size", "error", f"{SEEN}trl vllm-serve --model m --data-parallel-size 4",
     f"{SEEN}trl vllm-serve --model m --data-parallel-size 2"),
    ("launcher-processes", "--tp-size", "error", "python3 -m sglang.launch_server --model-path m --tp 16", "python3 -m sglang.launch_server --model-path m --tp 8"),
    ("launcher-processes", "--tp-size", "error", f"{SEEN}sglang serve --model-path m --tensor-parallel-size 4", f"{SEEN}sglang serve --model-path m --tp-size 2"),
    ("launcher-rendezvous", "--nnodes", "error", "sglang serve --model-path m --tp 16 --nnodes 4", "sglang serve --model-path m --tp 16 --nnodes 2 --node-rank 1"),
]  # fmt: skip


def found(command: str, facts: Mapping[str, object] = TWO) -> list[Finding]:
    """What is said of a command; one that is well has nothing but that it is no training."""
    guess_anew()
    try:
        return list(linter.check(command.split(), linter.Asked(facts=facts)).findings)
    except NotFound as error:
        assert error.code == "entry-unknown"
        return []


@pytest.mark.parametrize(("code", "key", "severity", "bad", "good"), [*NODES, *JOBS, *SERVERS])
def test_a_mistake_is_named_and_its_neighbour_is_not(
    code: str, key: str, severity: str, bad: str, good: str
) -> None:
    assert (code, key, severity) in [(one.code, one.key, one.severity) for one in found(bad)]
    assert not found(good)


def test_every_rule_has_a_case_and_a_source() -> None:
    named = {(code, key, severity) for code, key, severity, _, _ in [*NODES, *JOBS, *SERVERS]}
    rules = [rule for one in catalog.beside().values() for rule in one.get("rules", ())]
    assert {(rule["code"], rule["key"], rule["severity"]) for rule in rules} <= named
    assert all(rule["source"] for rule in rules) and len(rules) > 30


def test_where_nobody_says_how_many_machines_there_are_a_cluster_may_be_larger() -> None:
    eight = {"topology": {"gpus_per_node": 8}}
    command = "vllm serve m --tensor-parallel-size 16"
    assert [one.severity for one in found(command, eight)] == ["error"]
    assert [one.severity for one in found(f"{command} {CLUSTER}", eight)] == ["warning"]
    assert not found(f"{command} {MEET}", eight)
    assert not found(command, {}) and not found(command, {"topology": {**ONE["topology"], "series": "cpu"}})


@pytest.mark.parametrize(
    "command",
    [
        "python -m vllm.entrypoints.openai.api_server --model m -tp 16",
        "/opt/env/bin/vllm serve m --enforce-eager --tensor_parallel_size 16",
        "uv run --extra vllm vllm serve m -tp=16",
        "docker run --gpus all image vllm serve m -tp 16",
    ],
)
def test_ways_to_start_the_same_server(command: str) -> None:
    assert [one.key for one in found(command, ONE)] == ["--tensor-parallel-size"]


@pytest.mark.parametrize("address", ["h1:6379", "http://127.0.0.1:8265", "http://localhost:8265/", "auto"])
def test_a_variable_that_leads_to_the_same_place_is_left_alone(address: str) -> None:
    assert not found(f"RAY_ADDRESS={address} ray job submit --address http://localhost:8265 -- ls")


def test_a_program_that_takes_over_is_not_judged() -> None:
    assert not found("vllm serve m --omni --tensor-parallel-size 16 --usp 2", ONE)


def test_well_started_it_is_no_training_and_says_so() -> None:
    for words in (["ray", "start", "--head"], ["vllm", "serve", "m"], ["ray", "job", "submit", "--", "ls"]):
        with pytest.raises(NotFound) as refused:
            linter.check(words, linter.Asked(facts=ONE))
        assert refused.value.code == "entry-unknown" and " ".join(words[:2]) in refused.value.message


def script(folder: Path, *lines: str, **known: object) -> list[tuple[str, str, int]]:
    path = folder / "job.sh"
    path.write_text("\n".join([*lines, ""]), "utf-8")
    try:
        said = workflow.check([str(path)], **known).findings  # type: ignore[arg-type] # as the command line has them
    except Invalid as error:
        assert error.code == "script-nothing"
        return []
    return [(one.code, one.key, one.line) for one in said if one.code.startswith("launcher-")]


TRAINER = "python -m verl.trainer.main_ppo data.train_files=a.parquet data.val_files=b.parquet trainer.n_gpus_per_node=8"


def test_in_a_script_it_is_found_beside_the_trainer(tmp_path: Path) -> None:
    known = {"nodes": 1, "gpus_per_node": 8}
    head, job = "ray start --head --num-gpus 8", "ray job submit --address http://127.0.0.1:8265 --"
    assert not script(tmp_path, head, f"{job} {TRAINER}", **known)
    wrong = job.replace("8265", "6379")
    said = script(tmp_path, head.replace("8", "16"), f"{wrong} {TRAINER}", "vllm serve m -tp 16 &", **known)
    assert said == [
        ("launcher-processes", "--tensor-parallel-size", 3),
        ("launcher-processes", "--num-gpus", 1),
        ("launcher-rendezvous", "--address", 2),
    ]
    for inner in ("bash train.sh", 'bash -c "echo hi"', "echo hi"):
        assert script(tmp_path, f"{wrong} {inner}", **known) == [("launcher-rendezvous", "--address", 1)]


def test_what_a_script_leaves_open_is_not_guessed(tmp_path: Path) -> None:
    known = {"nodes": 1, "gpus_per_node": 8}
    for line in (
        "ray start $ARGS",
        'ray start --address "$HEAD" --num-gpus $GPUS',
        "ray start --address $HEAD:6379",
        "ray job submit --address=$WHERE -- ls",
        "vllm serve $MODEL --tensor-parallel-size $TP --nnodes $N",
        'vllm serve m --nnodes 1 "$@"',
    ):
        assert not script(tmp_path, line, **known), line


def test_srun_without_a_count_of_its_own_takes_that_of_the_script(tmp_path: Path) -> None:
    start = "srun ray start --head --block"
    assert script(tmp_path, "#!/bin/bash", "#SBATCH --nodes=2", start) == [("launcher-nested", "--head", 3)]
    assert not script(tmp_path, "#!/bin/bash", "#SBATCH --nodes=1", start)
    one = "srun --nodes=1 --ntasks=1 -w $first ray start --head --block"
    assert not script(tmp_path, "#!/bin/bash", "#SBATCH --nodes=2", one)


def test_it_is_nothing_that_could_be_imported(tmp_path: Path) -> None:
    from tuneport.experiment import project

    new_project(tmp_path / "p")
    here = project.Folder(tmp_path / "p", {})
    path = tmp_path / "job.sh"
    path.write_text(f"ray start --head --num-gpus 16\n{TRAINER}\n", "utf-8")
    with pytest.raises(Invalid) as refused:
        workflow.import_command(["ray", "start", "--head", "--num-gpus", "16"], "x", here, gpus_per_node=8)
    assert refused.value.code == "import-broken"
    assert workflow.import_command([str(path)], "x", here, gpus_per_node=8).method.startswith("verl/")


@pytest.mark.engine
@pytest.mark.parametrize("command", [case[3] for case in [*NODES[:5], NODES[7], *JOBS[:2]]])
def test_ray_itself_refuses_at_once(command: str) -> None:
    asked = [str(RAY), *command.split()[1:]]
    ended = subprocess.run(asked, capture_output=True, timeout=60, env={**os.environ, "RAY_ADDRESS": ""})
    assert ended.returncode in (1, 2)
