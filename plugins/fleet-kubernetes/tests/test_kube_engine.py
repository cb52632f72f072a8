"""Jobs on a real Kubernetes API, whose pods are processes of this machine."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from tuneport import workflow
from tuneport.errors import Unavailable
from tuneport.experiment import create, fleets
from tuneport.jobs.control import Control
from tuneport.runtimes import resolve_python
from tuneport.types import Command, Pool, Ref, RuntimeNeed
from tuneport_fleet_kubernetes.fleet import KubernetesFleet

sys.path.insert(0, str(Path(__file__).parent))
from kube_nodes import can_mount
from kube_real import RealNodes, admin, cluster, sim
from kube_support import DIGEST, GOLDEN, SEMANTICS, KubernetesTests, own_state, plan, semantics, shell, until

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not can_mount(), reason="not root: containers need mounts of their own"),
]


@pytest.fixture(scope="module")
def kube() -> Iterator[Path]:
    yield from cluster()


@pytest.fixture
def nodes(kube: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealNodes]:
    own_state(tmp_path, monkeypatch)
    monkeypatch.setenv("KUBECONFIG", str(kube / "kubeconfig"))
    made = RealNodes(kube, tmp_path)
    yield made
    made.close()


class TestKubernetes(KubernetesTests):
    @pytest.fixture
    def fleet(self, nodes: RealNodes) -> KubernetesFleet:
        return KubernetesFleet({"timeout": 10})


def test_the_api_in_memory_does_as_the_real_one(kube: Path) -> None:
    assert semantics(admin(kube)) == SEMANTICS


def test_the_api_takes_every_object(kube: Path) -> None:
    """The golden manifests, server-side: nothing is kept."""
    api = admin(kube)
    count = 0
    for file in sorted(GOLDEN.glob("*.yaml")):
        for item in yaml.safe_load_all(file.read_text("utf-8")):
            group = (
                f"/apis/{item['apiVersion']}" if "/" in item["apiVersion"] else f"/api/{item['apiVersion']}"
            )
            plural = f"{item['kind'].lower()}s"
            made = api._json("POST", f"{group}/namespaces/ns/{plural}", {"dryRun": "All"}, item)
            assert made["metadata"]["uid"]
            count += 1
    assert count >= 10


JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completions: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      volumes: [{name: shm, emptyDir: {medium: Memory}}]
      containers:
        - name: t
          image: pytorch
          env: [{name: MASTER_PORT, value: "29500"}]
          resources: {limits: {nvidia.com/gpu: 8, memory: 8Gi}, requests: {memory: 4Gi}}
          volumeMounts: [{name: shm, mountPath: /dev/shm}]
          command: [torchrun, train.py]
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("JOB", "JOB"),
        ("restartPolicy: Never", "hostname: a"),
        ("restartPolicy: Never", "restartPolicy: Always"),
        ("name: shm, mountPath", "name: data, mountPath"),
        ("requests: {memory", "requests: {nvidia.com/gpu: 4, memory"),
        ("limits: {nvidia.com/gpu: 8, memory: 8Gi}, requests: {", "requests: {nvidia.com/gpu: 8, "),
        ("gpu: 8", "gpu: 7.5"),
        ("memory: 4Gi", "memory: 16Gi"),
        ('"29500"', "29500"),
        ("completions: 2", "completions: two"),
        ("medium: Memory", "medium: [Memory]"),
        ("[torchrun, train.py]", "torchrun train.py"),
        ("[torchrun, train.py]", "[sleep, 600]"),
        ("memory: 8Gi", "memory: much"),
    ],
)
def test_the_api_refuses_the_objects_that_tp_check_says_it_refuses(
    kube: Path, tmp_path: Path, old: str, new: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB.replace(old, new), "utf-8")
    said = [one.code for one in workflow.check([str(file)]).findings if one.severity == "error"]
    document = yaml.safe_load(file.read_text("utf-8"))
    make = partial(
        admin(kube)._json, "POST", "/apis/batch/v1/namespaces/ns/jobs", {"dryRun": "All"}, document
    )
    if old == "JOB":
        assert not said and make()["metadata"]["uid"]
        return
    assert said
    with pytest.raises(Unavailable):
        make()


def test_the_fleet_says_what_the_cluster_has_and_what_is_missing(
    nodes: RealNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = {"h200": {"gpus_per_node": 8, "selector": {"gpu": "h200"}, "count": 1}}
    good = KubernetesFleet({"nodes": shapes})
    assert good.capabilities().accelerators == 8
    probes = {probe.what: probe for probe in good.probes()}
    assert all(probe.ok for probe in probes.values()), probes
    assert "v1.20.2" in probes["reach"].found and "RayJob (ray.io/v1)" in probes["kinds"].found
    shapes["h200"]["count"] = 2
    bad = {
        p.what: p
        for p in KubernetesFleet({"nodes": shapes, "claim": "none", "queue": "q"}).probes()
        if not p.ok
    }
    assert set(bad) == {"nodes", "claim", "queue"} and all(probe.hint for probe in bad.values())
    guest = {p.what: p for p in KubernetesFleet({"context": "guest"}).probes()}
    assert not guest["rights"].ok and "create jobsets" in guest["rights"].found and guest["rights"].hint
    lost = {p.what: p for p in KubernetesFleet({"namespace": "nope"}).probes()}
    assert not lost["namespace"].ok


def test_every_value_arrives_on_both_nodes_and_nothing_of_this_machine(
    nodes: RealNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEPORT_LEAK", "x")
    odd = "\n'$(x) $(HOME) $$ \"é\\ `y`"
    source = tmp_path / "exp"
    (source / "sub").mkdir(parents=True)
    (source / "sub/data ü.bin").write_bytes(b"\x00\xff")
    (source / "a.py").write_text("a = 1\n")
    digests = {
        name: "sha256:" + hashlib.sha256((source / name).read_bytes()).hexdigest()
        for name in ("sub/data ü.bin", "a.py")
    }
    show = (
        "import json,os,sys; e=os.environ; rank=e['TUNEPORT_CLUSTER_NODE_RANK'];"
        "json.dump([sys.argv[1:], e['ODD'], open('sub/data ü.bin','rb').read().hex(),"
        "e['TUNEPORT_CLUSTER_NODES'], e['TUNEPORT_CLUSTER_HEAD_ADDR'], e['TOKEN'],"
        "'TUNEPORT_LEAK' in e, os.getcwd(), sorted(os.listdir())],"
        " open(e['TUNEPORT_OUTPUT_DIR'] + '/' + rank, 'w')); import a; print('rank', rank)"
    )
    words = (Ref("python"), "-c", show, odd, Ref("node_rank", odd, prefix=odd), Ref("work_dir", "/x"))
    storage = tmp_path / "claims/jobs"
    fleet = KubernetesFleet({"claim": "jobs", "storage": str(storage), "secrets": {"TOKEN": "s/k"}})
    control = Control(load_fleet=lambda _kind, _settings: fleet)
    job = control.submit(
        plan(Command("trainer", words, {"ODD": odd}), source=digests, pools=(Pool("main", "h200", 2, 8),)),
        source_dir=source,
        fleet_name="k",
        fleet_kind="kubernetes",
    )
    done = control.wait(job.id, timeout=60)
    assert done.state == "SUCCEEDED", (done.cause, list(control.logs(job.id)))
    for rank in ("0", "1"):
        found = json.loads((control.output_dir(done) / rank).read_text())
        assert found[:4] == [[odd, odd + rank + odd, "/mnt/tuneport/work/x"], odd, "00ff", "2"]
        assert found[4:8] == [f"{job.id}-1-trainer-0-0.{job.id}-1", "<s/k>", False, "/mnt/tuneport/work"]
        assert {"a.py", "sub", "tuneport_report.py"} == set(found[8]) - {"__pycache__"}
    lines = [line.text for line in control.logs(job.id)]
    assert sorted(lines) == ["0: rank 0", "1: rank 1"]
    control.close()


def test_the_first_pod_that_fails_is_the_cause(nodes: RealNodes) -> None:
    fleet = KubernetesFleet({})
    control = Control(load_fleet=lambda _kind, _settings: fleet)
    job = control.submit(
        plan(shell("sleep 100", "actor"), shell("sleep 1; exit 7", "critic", "other"),
             pools=(Pool("main", "cpu", 1, 1), Pool("other", "cpu", 1, 1))),
        fleet_name="k", fleet_kind="kubernetes",
    )  # fmt: skip
    done = control.wait(job.id, timeout=60)
    assert (done.state, done.last.exit_code) == ("FAILED", 7)
    assert done.cause == "critic ended with exit code 7 on test-node"
    control.close()


def test_an_api_server_that_is_started_anew_loses_nothing(
    nodes: RealNodes, kube: Path, tmp_path: Path
) -> None:
    fleet = KubernetesFleet({"workload": "jobset", "timeout": 5})
    control = Control(load_fleet=lambda _kind, _settings: fleet)

    def submit(text: str) -> str:
        return control.submit(plan(shell(text)), fleet_name="k", fleet_kind="kubernetes").id

    job = submit(f"echo begun; sleep 2; echo ran >>{tmp_path}/ran")
    until(lambda: control.get(job).state == "RUNNING")
    sim("server-stop", kube)
    try:
        assert control.get(job).state == "UNKNOWN" and "cannot be reached" in control.get(job).cause
        later = submit(f"echo ran >>{tmp_path}/later")
    finally:
        sim("server-start", kube)
    until(lambda: control.recover() is not None and control.get(later).state == "SUCCEEDED")
    until(lambda: control.get(job).state == "SUCCEEDED")
    assert (tmp_path / "ran").read_text() == (tmp_path / "later").read_text() == "ran\n"
    # Somebody removes what ended: that is no end of another kind, and nothing is started again.
    nodes.api.delete(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets/{job}-1")
    assert control.get(job).state == "SUCCEEDED" and control.recover() == []
    until(lambda: fleet.poll([f"{job}-1@jobset"])[f"{job}-1@jobset"].state == "UNKNOWN")
    assert fleet.find(f"{job}-1") == f"{job}-1@jobset", "so that nothing is started again"
    control.close()


def test_digits_are_learned_by_torchrun_on_two_nodes(
    kube: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_state(tmp_path, monkeypatch)
    monkeypatch.setenv("KUBECONFIG", str(kube / "kubeconfig"))
    python = resolve_python(RuntimeNeed("pytorch-2.13.0", "cpu"))
    nodes = RealNodes(kube, tmp_path, bins=str(python.parent))
    root = create.new_project(tmp_path / "project")
    monkeypatch.chdir(root)
    (root / fleets.FILE).write_text(
        "fleets:\n"
        f"  k: {{kind: kubernetes, context: test, claim: jobs, storage: '{tmp_path}/claims/jobs',\n"
        "      images: digest, nodes: {cpu: {gpus_per_node: 1, count: 2}}}\n"
    )
    tp = [sys.executable, "-m", "tuneport"]
    new = [*tp, "new", "digits", "--method", "pytorch/image-classification", "--framework-version", "2.13.0"]
    subprocess.run(new, check=True, capture_output=True)
    words = [
        "--fleet",
        "k",
        "--profile",
        "cpu:2",
        "--set",
        "epochs=4",
        "--image",
        f"registry/pytorch@{DIGEST}",
    ]
    shown = subprocess.run(
        [*tp, "submit", "digits", *words, "--dry-run"], capture_output=True, text=True, check=True
    )
    done = subprocess.run(
        [*tp, "submit", "digits", *words, "--follow", "--json"],
        capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    nodes.close()
    assert done.returncode == 0, done.stdout + done.stderr
    job = json.loads(done.stdout)["job"]
    made = admin(kube).get(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets/{job}-1")
    said = yaml.safe_load(shown.stdout.replace("dry-run", job).rpartition("---\n")[2])
    (sent,), (told,) = (item["spec"]["replicatedJobs"] for item in (made, said))
    pods = [job["template"]["spec"]["template"]["spec"]["containers"] for job in (sent, told)]
    assert pods[0][0]["args"] == pods[1][0]["args"] and pods[0][0]["env"] == pods[1][0]["env"]
    shown = subprocess.run([*tp, "job", "metrics", job, "--json"], capture_output=True, text=True, check=True)
    (accuracy,) = [one for one in json.loads(shown.stdout)["series"] if one["name"] == "validation/accuracy"]
    assert accuracy["points"][-1][1] > 0.9, accuracy
