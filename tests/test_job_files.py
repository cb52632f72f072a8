"""`tp check` of what people hand to engines as YAML: objects of Kubernetes, and tasks of SkyPilot."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tuneport import api, workflow
from tuneport.errors import Invalid
from tuneport.experiment.create import new_project
from tuneport.jobfiles.pods import quantity
from tuneport.text import guess_anew
from tuneport.types import Finding

TREE = Path(__file__).parents[1]
REPORTS = json.loads((Path(__file__).parent / "data/reports/job-files.json").read_text("utf-8"))
PUBLISHED = sorted((TREE / "plugins/fleet-kubernetes/tests/golden").glob("*.yaml"))

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 2
  completions: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      subdomain: train
      volumes: [{name: shm, emptyDir: {medium: Memory}}]
      containers:
        - name: t
          image: pytorch
          env:
            - {name: MASTER_ADDR, value: train-0.train}
            - {name: MASTER_PORT, value: "29500"}
          resources: {limits: {nvidia.com/gpu: 8}}
          volumeMounts: [{name: shm, mountPath: /dev/shm}]
          command:
            - torchrun
            - --nnodes=2
            - --nproc_per_node=8
            - --node_rank=$(JOB_COMPLETION_INDEX)
            - --master_addr=$(MASTER_ADDR)
            - --master_port=$(MASTER_PORT)
            - train.py
---
apiVersion: v1
kind: Service
metadata: {name: train}
spec: {clusterIP: None, selector: {job-name: train}}
"""
RAY = """\
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: train}
spec:
  entrypoint: >-
    python -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=8
  shutdownAfterJobFinishes: true
  ttlSecondsAfterFinished: 60
  rayClusterSpec:
    rayVersion: "2.46.0"
    headGroupSpec:
      rayStartParams: {num-gpus: "0"}
      template: {spec: {containers: [{name: head, image: "rayproject/ray:2.46.0"}]}}
    workerGroupSpecs:
      - groupName: w
        replicas: 2
        minReplicas: 2
        maxReplicas: 2
        rayStartParams: {object-store-memory: "20000000000"}
        template:
          spec:
            containers:
              - name: w
                image: rayproject/ray:2.46.0
                resources: {limits: {memory: 64Gi, nvidia.com/gpu: 8}}
"""
SKY = """\
name: train
num_nodes: 2
resources: {accelerators: "H100:8"}
envs: {MODEL: Qwen/Qwen3-8B}
run: |
  torchrun --nnodes=$SKYPILOT_NUM_NODES --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE \\
    --node_rank=$SKYPILOT_NODE_RANK --master_addr=$(echo "$SKYPILOT_NODE_IPS" | head -n1) train.py
"""


def said(folder: Path, text: str, **asked: Any) -> list[Finding]:
    """What is more than a note."""
    guess_anew()
    file = folder / "job.yaml"
    file.write_text(text, "utf-8")
    found = workflow.check([str(file)], **asked).findings
    return [finding for finding in found if finding.severity != "note"]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report["id"])
def test_a_reported_mistake_is_found(report: dict[str, Any], tmp_path: Path) -> None:
    found = said(tmp_path, report["file"])
    level = report["expected_severity"]
    named = [one.key for one in found if one.severity == level]
    assert any(key.endswith(fault) for key in named for fault in report["fault_keys"]), found


@pytest.mark.parametrize("text", [JOB, SKY], ids=["job", "sky"])
def test_nothing_is_said_against_what_is_right(text: str, tmp_path: Path) -> None:
    assert said(tmp_path, text) == []


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: file.stem)
def test_nothing_is_said_against_what_our_own_fleet_writes(file: Path) -> None:
    codes = {one.code for one in workflow.check([str(file)]).findings if one.severity != "note"}
    assert not {code for code in codes if code.startswith(("kube", "ray", "launcher", "yaml"))}


@pytest.mark.parametrize(
    ("old", "new", "code", "key"),
    [
        ("      restartPolicy: Never\n", "", "kube-refused", "restartPolicy"),
        ("restartPolicy: Never", "restartPolicy: Always", "kube-refused", "restartPolicy"),
        ("  completions: 2\n", "", "kube-refused", "completions"),
        ("name: shm, mountPath: /dev/shm", "name: data, mountPath: /dev/shm", "kube-refused", "name"),
        ("{nvidia.com/gpu: 8}", "{nvidia.com/gpu: 8}, requests: {nvidia.com/gpu: 4}", "kube-refused", "gpu"),
        ("limits: {nvidia.com/gpu: 8}", "requests: {nvidia.com/gpu: 8}", "kube-refused", "gpu"),
        ("{nvidia.com/gpu: 8}", '{nvidia.com/gpu: "7.5"}', "kube-refused", "gpu"),
        ("gpu: 8}", "gpu: 8, memory: 1Gi}, requests: {memory: 2Gi}", "kube-refused", "memory"),
        ('"29500"', "29500", "kube-field", "value"),
        ("image: pytorch", "imgae: pytorch", "kube-field", "imgae"),
        ("completions: 2", "completions: two", "kube-field", "completions"),
        ("medium: Memory", "medium: [Memory]", "kube-field", "medium"),
        ("mountPath: /dev/shm", "mountPath: /shm", "kube-shm", "volumeMounts"),
        ("      subdomain: train\n", "", "kube-address", "value"),
        ("  completionMode: Indexed\n", "", "kube-index", "3"),
        ("clusterIP: None", "type: ClusterIP", "kube-address", "value"),
        ("subdomain: train", "subdomain: train\n      hostNetwork: true", "kube-address", "value"),
        ("value: train-0.train", "value: localhost", "kube-address", "value"),
        ("subdomain: train", "subdomain: other", "kube-address", "value"),
        ("apiVersion: batch/v1\nkind: Job", "apiVersion: v1\nkind: Job", "kube-field", "apiVersion"),
        ("name: t\n", "name: My_T\n", "kube-refused", "name"),
        ("volumes:", "initContainers: [{name: i, resources: {requests: {a.b/efa: 1}}}]\n      volumes:",
         "kube-refused", "efa"),
        ("- {name: MASTER_PORT", '- {name: NODE_RANK, value: "0"}\n            - {name: MASTER_PORT',
         "kube-rank", "value"),
        ("- {name: MASTER_PORT", '- {name: WORLD_SIZE, value: "7"}\n            - {name: MASTER_PORT',
         "kube-rank", "value"),
        ("$(MASTER_PORT)", "$(PORT)", "kube-variable", "5"),
        ("$(MASTER_PORT)", "$MASTER_PORT", "kube-variable", "5"),
        ("--nnodes=2", "--nnodes=4", "launcher-rendezvous", "--nnodes"),
        ("nproc_per_node=8", "nproc_per_node=16", "launcher-processes", "--nproc_per_node"),
    ],
)  # fmt: skip
def test_a_job_with_a_mistake(old: str, new: str, code: str, key: str, tmp_path: Path) -> None:
    assert old in JOB
    found = said(tmp_path, JOB.replace(old, new))
    assert (code, key) in {(one.code, one.key.rpartition(".")[2].rpartition("/")[2]) for one in found}, found
    assert all(one.line for one in found)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ('{num-gpus: "0"}', "{num-gpus: 0}", "kube-field"),
        ("memory: 64Gi", "memory: 16Gi", "ray-memory"),
        ("object-store-memory", 'num-gpus: "16", object-store-memory', "ray-gpus"),
        ("minReplicas: 2", "minReplicas: 3", "ray-refused"),
        ("replicas: 2\n", "replicas: 5\n", "ray-replicas"),
        ("head, image: \"rayproject/ray:2.46.0\"", "head, image: \"rayproject/ray:2.52.0\"", "ray-version"),
        ("  shutdownAfterJobFinishes: true\n", "", "ray-refused"),
        ("  ttlSeconds", "  backoffLimit: 1\n  submissionMode: InteractiveMode\n  ttlSeconds", "ray-refused"),
        ("trainer.nnodes=2", "trainer.nnodes=4", "verl-nodes-missing"),
        ("entrypoint:", "entripoint: x\n  entrypoint:", "kube-field"),
        ("{num-gpus: ", "{num_gpus: ", "ray-refused"),
        ("image: rayproject/ray:2.46.0\n", "image: rayproject/ray:2.40.0\n", "ray-version"),
        ("metadata: {name: train}", "metadata: {name: 1train}", "ray-refused"),
        ("  ttlSeconds", "  submissionMode: K8sjobMode\n  ttlSeconds", "ray-refused"),
        ("  ttlSeconds", "  activeDeadlineSeconds: 0\n  ttlSeconds", "ray-refused"),
    ],
)  # fmt: skip
def test_a_ray_job_with_a_mistake(old: str, new: str, code: str, tmp_path: Path) -> None:
    assert old in RAY
    before = {(one.code, one.key) for one in said(tmp_path, RAY)}
    assert not {one for one, _ in before if one.startswith(("kube", "ray"))}
    found = [one for one in said(tmp_path, RAY.replace(old, new, 1)) if (one.code, one.key) not in before]
    assert code in {one.code for one in found}, found


@pytest.mark.parametrize(
    ("old", "new", "code", "line"),
    [
        ("num_nodes: 2", "num_node: 2", "sky-field", 2),
        ("num_nodes: 2", "num_nodes: two", "sky-field", 2),
        ("num_nodes: 2", "num_nodes: 0", "sky-field", 2),
        ("$SKYPILOT_NODE_RANK", "$SKYPILOT_NODE_ID", "sky-variable", 5),
        ("=$SKYPILOT_NUM_GPUS_PER_NODE", "=16", "launcher-processes", 6),
        ("=$SKYPILOT_NUM_NODES", "=4", "launcher-rendezvous", 6),
        ("=$SKYPILOT_NODE_RANK", "=0", "launcher-copies", 6),
        ("$SKYPILOT_NODE_RANK", "$SKY_NODE_RANK", "sky-variable", 5),
        ('=$(echo "$SKYPILOT_NODE_IPS" | head -n1)', "=$SKYPILOT_NODE_IPS", "sky-variable", 5),
        ("run: |", "setup: echo $SKYPILOT_NODE_RANK\nrun: |", "sky-variable", 5),
        ("accelerators:", "accelerator:", "sky-field", 3),
        ("MODEL:", "A-MODEL:", "sky-field", 4),
    ],
)
def test_a_task_with_a_mistake(old: str, new: str, code: str, line: int, tmp_path: Path) -> None:
    assert old in SKY
    found = said(tmp_path, SKY.replace(old, new, 1))
    assert (code, line) in {(one.code, one.line) for one in found}, found


PYTORCH = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train}
spec:
  pytorchReplicaSpecs:
    Master: {replicas: 1, template: {spec: {containers: [&c
      {name: pytorch, image: x, resources: {limits: {nvidia.com/gpu: 1}},
       command: [torchrun, --nnodes=2, train.py]}]}}}
    Worker: {replicas: 1, template: {spec: {containers: [*c]}}}
"""


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("", "", ""),
        ("name: pytorch", "name: torch", "kube-refused"),
        ("Master: {replicas: 1", "Master: {replicas: 2", "kube-refused"),
        ("Worker:", "Workers:", "kube-refused"),
        ("nnodes=2", "nnodes=3", "launcher-rendezvous"),
    ],
)
def test_a_pytorch_job(old: str, new: str, code: str, tmp_path: Path) -> None:
    found = {one.code for one in said(tmp_path, PYTORCH.replace(old, new))}
    assert code in found if code else not found


@pytest.mark.parametrize(
    "text",
    [
        JOB.replace("gpu: 8", "gpu: $GPUS")
        .replace("per_node=8", "per_node=$GPUS")
        .replace("nnodes=2", "nnodes=$N"),
        JOB.replace("value: train-0.train", "value: etcd-0.etcd"),
        JOB.replace("command:", "command: [tini, --, bash, -c, 'echo $(hostname)']\n          args:"),
        JOB.replace("nnodes=2", "nnodes=1").replace(
            "            - --node_rank=$(JOB_COMPLETION_INDEX)\n", ""
        ),
        JOB + "---\n" + JOB.replace("name: train}", "name: other}").replace("nnodes=2", "nnodes=4"),
        SKY.replace("H100:8", "tpu-v5litepod-8"),
        SKY.replace('"H100:8"', "{H100:8, A100:8}"),
        SKY.replace('"H100:8"', "{H100:8, A100:4}").replace("=$SKYPILOT_NUM_GPUS_PER_NODE", "=8"),
        "name: pool\nresources: {accelerators: H100}\nsetup: echo\n",
    ],
    ids=[
        "filled-in-later",
        "other-service",
        "shell",
        "each-for-itself",
        "two-objects",
        "tpu",
        "set",
        "other-set",
        "pool",
    ],
)
def test_what_cannot_be_known_is_no_mistake(text: str, tmp_path: Path) -> None:
    assert not [
        one for one in said(tmp_path, text) if one.code != "launcher-rendezvous" or one.severity == "error"
    ]


def test_a_loop_without_end_leaves_the_rest_judged(tmp_path: Path) -> None:
    watch = "{name: watch, image: x, command: [sh, -c, 'while true; do sleep 30; done']}"
    job = JOB.replace("containers:", f"containers:\n        - {watch}").replace('"29500"', "29500")
    assert [one.code for one in said(tmp_path, job)] == ["kube-field"]


@pytest.mark.parametrize(
    ("run", "line"),
    [
        ("run: trl sft --lerning_rate 1\n", 2),
        ("run: |-\n  trl sft --lerning_rate 1\n", 3),
        ("run:\n  |\n  echo\n  trl sft --lerning_rate 1\n", 5),
        ('run: "echo\\ntrl sft --lerning_rate 1"\n', 2),
    ],
)
def test_a_finding_stands_on_its_line(run: str, line: int, tmp_path: Path) -> None:
    found = said(tmp_path, f"num_nodes: 1\n{run}")
    assert [one.line for one in found if one.code == "key-unknown"] == [line]


@pytest.mark.parametrize(
    "text",
    [
        "{apiVersion: ray.io, kind: RayJob, spec: {entrypoint: echo}}",
        "{resources: {any_of: 5}, run: echo}",
        "{resources: {accelerators: 'H100:1e400'}, run: echo}",
        "{resources: {accelerators: {H100: %s}}, run: echo}" % ("9" * 400),
        "{apiVersion: v1, kind: Pod, spec: {volumes: [{name: {}}], containers: [{volumeMounts: [{}]}]}}",
    ],
)
def test_odd_values_are_findings_or_nothing(text: str, tmp_path: Path) -> None:
    assert all(one.line for one in said(tmp_path, text))


def test_a_program_that_every_machine_would_start(tmp_path: Path) -> None:
    run = "python -m verl.trainer.main_ppo trainer.nnodes=2"
    task = SKY[: SKY.index("run:")]
    assert "launcher-copies" in {one.code for one in said(tmp_path, f"{task}run: {run}\n")}
    first = f'if [ "$SKYPILOT_NODE_RANK" = 0 ]; then {run}; fi'
    assert "launcher-copies" not in {one.code for one in said(tmp_path, f"{task}run: |\n  {first}\n")}


def test_what_the_file_leaves_open_is_not_judged(tmp_path: Path) -> None:
    job = JOB.replace("value: train-0.train", "valueFrom: {configMapKeyRef: {name: c, key: k}}")
    assert said(tmp_path, job) == []
    given = said(
        tmp_path, SKY.replace("MODEL: Qwen/Qwen3-8B", "N: null").replace("=$SKYPILOT_NUM_NODES", "=$N")
    )
    assert given == []
    task = SKY.replace("=$SKYPILOT_NUM_NODES", "=$N")
    assert "launcher-rendezvous" in {one.code for one in said(tmp_path, task, env={"N": "4"})}


def test_an_experiment_is_made_of_what_a_file_starts(tmp_path: Path) -> None:
    project = api.open_project(new_project(tmp_path / "project"))
    file = tmp_path / "job.yaml"
    file.write_text(RAY, "utf-8")
    made = workflow.import_command([str(file)], "one", project.folder)
    assert made.method.startswith("verl/") and "trainer.nnodes" in dict(made.left)
    file.write_text(SKY, "utf-8")
    with pytest.raises(Invalid, match="starts nothing that could be imported"):
        project.import_command("two", [str(file)])


def test_what_is_no_job_file_is_refused(tmp_path: Path) -> None:
    for text, code in (
        ("a: 1\n", "job-file"),
        ("- a\n", "job-file"),
        ("kind: Job\nspec: {{ .Values.spec }}\n", "job-file"),
        ("---\na: 1\n" * 201, "yaml-documents"),
    ):
        with pytest.raises(Invalid) as caught:
            said(tmp_path, text)
        assert caught.value.code == code
    assert [one.code for one in said(tmp_path, "kind: [\n")] == ["yaml-syntax"]


def test_the_known_fields_are_those_of_the_published_schemas() -> None:
    schemas = TREE.parent / "shared/k8s-schemas"
    if not schemas.is_dir():
        pytest.skip(f"the published schemas are not in {schemas}")
    sys.path.insert(0, str(TREE / "tools"))
    from kube_fields import TABLE, written

    assert written(schemas) == TABLE.read_text("utf-8"), "python tools/kube_fields.py FOLDER"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8", 8),
        (8, 8),
        ("500m", 0.5),
        ("64Gi", 64 * 2**30),
        ("1e3", 1000),
        ("2k", 2000),
        ("", None),
        ("x", None),
    ],
)
def test_quantities(text: Any, number: float | None) -> None:
    assert quantity(text) == number
