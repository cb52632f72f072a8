"""The Kubernetes fleet and an API in memory: what is asked, what is made of answers, who is told to ask."""

from __future__ import annotations

import json
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tuneport.compiler.ray_cluster import SCRIPT
from tuneport.errors import TuneportError, Unavailable
from tuneport.fleets.failure import NotStarted
from tuneport.types import Command, FileSpec, Pool
from tuneport_fleet_kubernetes import kinds, kubeconfig, logs, states
from tuneport_fleet_kubernetes.api import Api
from tuneport_fleet_kubernetes.fleet import KubernetesFleet
from tuneport_fleet_kubernetes.names import JOB, fitting

sys.path.insert(0, str(Path(__file__).parent))
from kube_fake import Cluster, Server
from kube_support import SEMANTICS, own_state, plan, semantics, shell


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    own_state(tmp_path, monkeypatch)
    made = Cluster()
    server = Server(made)
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
    yield made
    server.close()


def submitted(fleet: KubernetesFleet, key: str, **more: Any) -> str:
    return fleet.submit({**fleet.render(plan(shell("true"), **more), key), "source": ""}, key)


def test_the_api_in_memory_does_as_the_real_one(cluster: Cluster) -> None:
    assert semantics(Api(kubeconfig.find(), 5)) == SEMANTICS


def test_the_kind_of_workload_is_what_the_cluster_has(cluster: Cluster) -> None:
    def chosen(*commands: Command, **declared: Any) -> str:
        return str(KubernetesFleet(declared).render(plan(*commands or (shell("true"),)), "a-1")["kind"])

    assert chosen() == "jobset" and chosen(workload="job") == "job"
    cluster.kinds["/apis/jobset.x-k8s.io/v1alpha2"] = []
    assert chosen() == "trainjob"
    with pytest.raises(Unavailable) as caught:
        chosen(shell("a"), shell("b", "other"))
    assert caught.value.code == "fleet-kind-missing"
    del cluster.kinds["/apis/trainer.kubeflow.org/v1alpha1"]
    assert chosen() == "job"
    fleet = KubernetesFleet({"workload": "trainjob"})
    with pytest.raises(Unavailable) as caught:
        submitted(fleet, "sft-abc-1")
    assert caught.value.code == "fleet-kind-missing" and "Trainer" in caught.value.hint
    fleet.cancel("sft-abc-1")
    assert not cluster.objects, "nothing is left of what was refused"
    assert fleet.poll(["sft-abc-1"])["sft-abc-1"].state == "STOPPED"


def test_what_belongs_to_a_job_goes_with_it(cluster: Cluster) -> None:
    fleet = KubernetesFleet({"workload": "job"})
    handle = submitted(fleet, "sft-abc-1")
    main = cluster.objects["jobs", "ns", "sft-abc-1"]
    for plural in ("configmaps", "services"):
        (owner,) = cluster.objects[plural, "ns", "sft-abc-1"]["metadata"]["ownerReferences"]
        assert owner["uid"] == main["metadata"]["uid"] and owner["kind"] == "Job"
    fleet.cancel(handle)
    assert not cluster.objects


def test_a_submission_that_was_cut_short_goes_on_where_it_was(cluster: Cluster) -> None:
    fleet = KubernetesFleet({"workload": "job"})
    request = {**fleet.render(plan(shell("true")), "sft-abc-1"), "source": ""}
    for item in request["objects"][:-1]:
        plural = {"ConfigMap": "configmaps", "Service": "services"}[item["kind"]]
        fleet.api.create(f"/api/v1/namespaces/ns/{plural}", item)
    assert fleet.submit(request, "sft-abc-1") == "sft-abc-1@job"
    cluster.objects["jobs", "ns", "sft-xyz-1"] = {"metadata": {"name": "sft-xyz-1", "annotations": {}}}
    with pytest.raises(Unavailable) as caught:
        submitted(fleet, "sft-xyz-1")
    assert "somebody else's" in caught.value.message
    assert fleet.find("sft-xyz-1") is None
    cluster.objects["configmaps", "ns", "sft-own-1"] = {"metadata": {"name": "sft-own-1"}}
    with pytest.raises(Unavailable) as caught:
        submitted(fleet, "sft-own-1")
    assert "ConfigMap sft-own-1 is there already" in caught.value.message
    fleet.cancel("sft-own-1")
    assert ("configmaps", "ns", "sft-own-1") in cluster.objects, "what is somebody else's stays"


def test_what_was_created_before_a_crash_still_gets_its_owner(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = KubernetesFleet({"workload": "job"})
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(fleet.api, "merge", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        submitted(fleet, "sft-abc-1")
    assert fleet.find("sft-abc-1") == "sft-abc-1@job"
    handle = submitted(KubernetesFleet({"workload": "jobset"}), "sft-abc-1")
    assert handle == "sft-abc-1@job", "it is what was created, whatever would be now"
    (owner,) = cluster.objects["configmaps", "ns", "sft-abc-1"]["metadata"]["ownerReferences"]
    assert owner["uid"] == cluster.objects["jobs", "ns", "sft-abc-1"]["metadata"]["uid"]


def test_five_hundred_jobs_are_asked_about_in_at_most_five_calls(cluster: Cluster) -> None:
    fleet = KubernetesFleet({"workload": "jobset"})
    handles = []
    for number in range(500):
        name = f"sft-{number:03}-1"
        metadata = {"name": name, "labels": {JOB: name}, "annotations": {"tuneport.io/key": name}}
        said = {"replicatedJobsStatus": [{"name": "trainer", "ready": 1}]}
        cluster.objects["jobsets", "ns", name] = {"metadata": metadata, "status": said}
        handles.append(f"{name}@jobset")
    cluster.calls.clear()
    found = fleet.poll(handles)
    assert len(found) == 500 and {status.state for status in found.values()} == {"RUNNING"}
    assert len(cluster.calls) == 1
    # Of those that only their pods can tell about, one more.
    for number in range(0, 500, 10):
        cluster.objects["jobsets", "ns", f"sft-{number:03}-1"]["status"] = {}
    cluster.calls.clear()
    assert [status.state for status in fleet.poll(handles).values()].count("QUEUED") == 50
    assert len(cluster.calls) == 2
    for number in range(500):
        cluster.objects["jobsets", "ns", f"sft-{number:03}-1"]["status"] = {}
    pod = {"metadata": {"name": "p", "labels": {JOB: "sft-499-1"}}, "status": {"phase": "Running"}}
    cluster.objects["pods", "ns", "p"] = pod
    cluster.calls.clear()
    states = [status.state for status in fleet.poll(handles).values()]
    assert (states.count("QUEUED"), states[499]) == (499, "RUNNING")
    assert len(cluster.calls) == 2


def test_names_of_any_length_fit_into_the_first_line_of_a_request() -> None:
    for width, least in ((15, 400), (27, 250), (32, 200)):
        parts = list(fitting(f"{number:0{width}}" for number in range(1000)))
        assert [name for some in parts for name in some] == [f"{number:0{width}}" for number in range(1000)]
        assert len(parts[0]) >= least
        query = urllib.parse.urlencode({"labelSelector": f"{JOB} in ({','.join(parts[0])})"})
        assert len(f"GET {kinds.place('trainjob', 'n' * 63)}?{query} HTTP/1.1") < 8000
    assert not list(fitting([]))


ANSWERS: list[tuple[int, Any, str]] = [
    (500, {"message": "etcd is slow"}, "fleet-unreachable"),
    (429, b"Too many requests", "fleet-unreachable"),
    (503, b"", "fleet-unreachable"),
    (401, {"reason": "Unauthorized"}, "fleet-auth"),
    (403, {"reason": "Forbidden", "message": "no"}, "fleet-auth"),
    (400, {"message": "bad"}, "fleet-refused"),
    (302, b"", "fleet-refused"),
    (200, b"<html>", "fleet-answer"),
    (200, b"\xff\xfe", "fleet-answer"),
    (200, b"[]", "fleet-answer"),
    (200, b'{"items": 3}', "fleet-answer"),
]


@pytest.mark.parametrize(("code", "body", "said"), ANSWERS)
def test_odd_answers_are_lost_contact_and_never_an_end(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, code: int, body: Any, said: str
) -> None:
    fleet = KubernetesFleet({"workload": "job"})
    request = {**fleet.render(plan(shell("true")), "sft-abc-1"), "source": ""}
    monkeypatch.setattr(cluster, "answer", lambda *_: (code, body))
    with pytest.raises(Unavailable) as caught:
        fleet.poll(["sft-abc-1@job"])
    assert caught.value.code == said and caught.value.message
    if said in ("fleet-unreachable", "fleet-answer"):
        with pytest.raises(NotStarted):
            fleet.submit(request, "sft-abc-1")
    else:
        with pytest.raises(Unavailable):
            fleet.submit(request, "sft-abc-1")
    assert not cluster.objects


def test_the_check_says_what_is_missing_and_what_to_do(cluster: Cluster) -> None:
    node = {
        "metadata": {"name": "n", "labels": {"gpu": "h200"}},
        "status": {
            "allocatable": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    drained = {**node, "spec": {"unschedulable": True}}
    cluster.nodes = [node, node, drained]
    shape = {"gpus_per_node": 8, "selector": {"gpu": "h200"}, "count": 2}
    fleet = KubernetesFleet({"nodes": {"h200": shape}})
    probes = list(fleet.probes())
    assert all(probe.ok for probe in probes), probes
    assert fleet.capabilities().accelerators == 24
    text = "\n".join(f"{probe.what}: {probe.found}" for probe in probes)
    assert "2 of 3 nodes usable, 16 cards" in text and "JobSet (jobset.x-k8s.io/v1alpha2)" in text

    def bad(**declared: Any) -> dict[str, str]:
        found = [probe for probe in KubernetesFleet(declared).probes() if not probe.ok]
        assert all(probe.hint for probe in found), found
        return {probe.what: probe.found for probe in found}

    shape["count"] = 3
    assert set(bad(nodes={"h200": shape})) == {"nodes"}
    assert set(bad(claim="c", queue="q", priority_class="p")) == {"claim", "queue", "priority"}
    assert set(bad(namespace="other")) == {"namespace"}
    cluster.deny = {"create jobsets", "get pods"}
    assert bad()["rights"] == "this user may not get pods/log, create jobsets"
    cluster.deny.clear()
    cluster.kinds["/apis/jobset.x-k8s.io/v1alpha2"] = []
    assert set(bad(workload="jobset")) == {"workload"}
    cluster.token = "another"
    assert set(bad()) == {"auth"}
    assert set(bad(context="none")) == {"reach"}


CONDITION = {"status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}
META = {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}


def said(kind: str, status_: dict[str, Any], pods: Any = (), **more: Any) -> tuple[Any, ...]:
    found = states.status(kind, {"metadata": {**META, **more}, "status": status_}, list(pods))
    assert found is not None
    return found.state, found.cause, found.exit_code


def pod(phase: str, role: str = "trainer", state: Any = None, **more: Any) -> dict[str, Any]:
    statuses = [{"name": "node", "state": state}] if state else []
    metadata = {"name": f"x-{role}-0", "labels": {"tuneport.io/role": role}}
    spec = {"nodeName": "n1"}
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase, "containerStatuses": statuses, **more},
    }


def ended(code: int, when: str = "2026-01-01T00:00:09Z", reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "finishedAt": when, "reason": reason}}


def test_states() -> None:
    done = {"conditions": [{**CONDITION, "type": "Complete"}], "startTime": META["creationTimestamp"]}
    assert said("job", done) == ("SUCCEEDED", "ended with exit code 0", 0)
    assert said("jobset", {"conditions": [{**CONDITION, "type": "Completed"}]})[0] == "SUCCEEDED"
    not_yet = {"conditions": [{**CONDITION, "type": "Complete", "status": "False"}]}
    assert said("trainjob", not_yet) == ("QUEUED", "waits for its pods", None)
    failed = {
        "conditions": [{**CONDITION, "type": "Failed", "reason": "BackoffLimitExceeded", "message": "m"}]
    }
    assert said("job", failed) == ("FAILED", "BackoffLimitExceeded: m", None)
    later = pod("Failed", "critic", ended(143))
    first = pod("Failed", "actor", ended(7, "2026-01-01T00:00:08Z"))
    assert said("job", failed, [later, first]) == ("FAILED", "actor ended with exit code 7 on n1", 7)
    memory = pod("Failed", "actor", ended(137, reason="OOMKilled"))
    assert said("job", failed, [memory])[1:] == ("actor ran out of memory on n1", 137)
    lost = pod("Failed", reason="NodeLost", message="Node n1 is gone")
    assert said("job", failed, [lost])[1] == "trainer was lost on n1: NodeLost: Node n1 is gone"
    late = {"conditions": [{**CONDITION, "type": "Failed", "reason": "DeadlineExceeded"}]}
    assert said("job", late, [later]) == ("FAILED", "ran into its time limit", 143)
    image = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    assert said("job", {}, [pod("Pending", state=image)]) == (
        "QUEUED", "x-trainer-0 cannot start: ImagePullBackOff: not found", None,
    )  # fmt: skip
    unplaced = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    waiting = pod("Pending", conditions=[unplaced])
    assert said("job", {}, [waiting])[1] == "waits for nodes: 0/3 nodes are available"
    assert said("job", {}, [waiting, pod("Running", "other")])[0] == "RUNNING"
    queued = {"conditions": [{**CONDITION, "type": "Suspended"}]}
    assert said("jobset", queued, labels={"kueue.x-k8s.io/queue-name": "q"})[1] == "waits in queue q"
    assert said("job", {}, deletionTimestamp="2026-01-01T00:00:00Z")[0] == "RUNNING"


def test_states_of_rayjobs() -> None:
    assert said("rayjob", {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"})[0] == "SUCCEEDED"
    assert said("rayjob", {"jobStatus": "RUNNING"})[0] == "RUNNING"
    assert said("rayjob", {"jobDeploymentStatus": "Initializing"})[0] == "QUEUED"
    assert said("rayjob", {"jobDeploymentStatus": "Suspended"})[1] == "is suspended"
    assert said("rayjob", {"jobStatus": "FAILED", "message": "exit 1"})[:2] == ("FAILED", "exit 1")
    late = {"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded"}
    assert said("rayjob", late)[:2] == ("FAILED", "ran into its time limit")
    assert said("rayjob", {"jobStatus": "STOPPED"})[0] == "STOPPED"


def test_a_log_of_two_nodes_goes_on_where_it_stopped_whatever_the_clock_does() -> None:
    def stamped(*rows: tuple[str, str]) -> bytes:
        return b"".join(f"2026-01-01T00:00:{second}Z {text}\n".encode() for second, text in rows)

    def node(index: int) -> dict[str, Any]:
        labels = {"tuneport.io/nodes": "2"}
        return {"metadata": {"name": f"p{index}", "annotations": {logs.INDEX: str(index)}, "labels": labels}}

    # Two lines of one moment, and a clock that goes back by a second.
    whole = [
        stamped(("01.5", "a"), ("01.5", "b"), ("03.000000001", "c"), ("02.5", "d")),
        stamped(("01.25", "x"), ("09.5", "y")),
    ]

    def read(of: Any, since: int) -> bytes:
        rows = whole[int(of["metadata"]["name"][1:])].splitlines(keepends=True)
        first = since // 1_000_000_000 - 1_767_225_600  # the minute of these lines
        return b"".join(row for row in rows if int(row[17:19]) >= first)

    def lines(since: int) -> list[Any]:
        return list(logs.lines(lambda: [node(0), node(1)], read, lambda: True, "trainer", since))

    every = lines(0)
    assert [line.text for line in every] == ["0: a", "0: b", "0: c", "0: d", "1: x", "1: y"]
    for number, line in enumerate(every):
        assert [later.text for later in lines(line.offset)] == [one.text for one in every[number + 1 :]]


def write(folder: Path, **more: Any) -> Path:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "https://h:6443/"}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "current-context": "one",
        **more,
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(document))
    return file


def test_a_kubeconfig_is_read_as_kubectl_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_state(tmp_path, monkeypatch)
    with pytest.raises(Unavailable) as none:
        kubeconfig.find()
    assert none.value.code == "fleet-unconfigured" and none.value.hint
    file = write(tmp_path)
    other = tmp_path / "b"
    other.mkdir()
    (other / "token").write_text("from-file\n")
    user = {"name": "v", "user": {"tokenFile": "token"}}
    two = {"name": "two", "context": {"cluster": "c", "user": "v", "namespace": "space"}}
    second = write(other, users=[user], contexts=[two], clusters=[])
    monkeypatch.setenv("KUBECONFIG", f"{file}:{second}:{tmp_path}/missing")
    found = kubeconfig.find()
    assert (found.server, found.namespace, found.context) == ("https://h:6443", "default", "one")
    assert (
        found.headers() == {"Authorization": "Bearer t"} and kubeconfig.find(namespace="n").namespace == "n"
    )
    found = kubeconfig.find("two")
    assert found.namespace == "space" and found.headers() == {"Authorization": "Bearer from-file"}
    with pytest.raises(TuneportError) as unknown:
        kubeconfig.find("three")
    assert "one, two" in unknown.value.hint


def test_a_program_that_knows_who_one_is_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_state(tmp_path, monkeypatch)
    program = tmp_path / "who"
    said = {"status": {"token": "issued", "expirationTimestamp": "2999-01-01T00:00:00Z"}}
    program.write_text(
        f"#!/bin/sh\necho x >>{tmp_path}/asked\n[ -n \"$A\" ] || exit 3\necho '{json.dumps(said)}'\n"
    )
    program.chmod(0o755)
    entry: dict[str, Any] = {"command": "./who", "env": [{"name": "A", "value": "1"}]}
    monkeypatch.setenv("KUBECONFIG", str(write(tmp_path, users=[{"name": "u", "user": {"exec": entry}}])))
    found = kubeconfig.find()
    assert found.headers() == found.headers() == {"Authorization": "Bearer issued"}
    assert (tmp_path / "asked").read_text() == "x\n"
    for change, word in (({"env": []}, "exit code 3"), ({"command": "/none/who"}, "cannot be run")):
        users = [{"name": "u", "user": {"exec": {**entry, **change}}}]
        monkeypatch.setenv("KUBECONFIG", str(write(tmp_path, users=users)))
        with pytest.raises(Unavailable) as caught:
            kubeconfig.find().headers()
        assert caught.value.code == "fleet-auth" and word in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "a: [",
        "\x00",
        "clusters: 3",
        "current-context: x",
        "contexts: [3]\ncurrent-context: y",
        "é" * 9,
    ],
)
def test_a_broken_kubeconfig_is_said_to_be_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    own_state(tmp_path, monkeypatch)
    file = tmp_path / "config"
    file.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(file))
    with pytest.raises(TuneportError) as caught:
        kubeconfig.find()
    assert str(file) in caught.value.message


def test_in_a_pod_its_own_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_state(tmp_path, monkeypatch)
    for name, text in (("token", "pod"), ("namespace", "inside"), ("ca.crt", "")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(kubeconfig, "POD", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = kubeconfig.find()
    assert (found.server, found.namespace) == ("https://10.0.0.1:443", "inside")
    assert found.headers() == {"Authorization": "Bearer pod"}


def test_the_head_of_a_ray_cluster_needs_no_node_of_its_own(cluster: Cluster) -> None:
    files = {SCRIPT: FileSpec("text", "")}
    pools = (Pool("student", "h200", 2, 8), Pool("teacher", "h200", 2, 8))
    what = plan(
        Command("actor", ("a",), {}, files, "student"),
        Command("teacher", ("a",), {}, files, "teacher"),
        pools=pools,
    )
    spec = KubernetesFleet({}).render(what, "sft-abc-1")["objects"][-1]["spec"]["rayClusterSpec"]
    roles = [spec["headGroupSpec"]["template"]["metadata"]["labels"]["tuneport.io/role"]]
    assert "affinity" not in spec["headGroupSpec"]["template"]["spec"]
    for group in spec["workerGroupSpecs"]:
        template = group["template"]
        roles.append(template["metadata"]["labels"]["tuneport.io/role"])
        rule = template["spec"]["affinity"]["podAntiAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        assert rule[0]["labelSelector"]["matchLabels"]["tuneport.io/role"] == roles[-1]
    assert roles == ["ray-head", "ray-student", "ray-teacher"]


def test_pools_are_told_apart(cluster: Cluster) -> None:
    pools = (Pool("student", "h200", 2, 8), Pool("teach-er", "l40", 1, 4))
    what = plan(
        Command("actor", ("a",), {}, {}, "student"),
        Command("teacher", ("b",), {}, {}, "teach-er"),
        pools=pools,
    )
    request = KubernetesFleet({"workload": "jobset"}).render(what, "sft-abc-1")
    jobs = request["objects"][-1]["spec"]["replicatedJobs"]
    for job, (nodes, cards) in zip(jobs, (("2", "8"), ("1", "4")), strict=True):
        (own,) = job["template"]["spec"]["template"]["spec"]["containers"]
        env = {item["name"]: item.get("value") for item in own["env"]}
        assert (env["TUNEPORT_CLUSTER_NODES"], env["TUNEPORT_CLUSTER_GPUS_PER_NODE"]) == (nodes, cards)
        assert env["TUNEPORT_CLUSTER_STUDENT_HEAD_ADDR"] == "sft-abc-1-actor-0-0.sft-abc-1"
        assert env["TUNEPORT_CLUSTER_TEACH_ER_HEAD_ADDR"] == "sft-abc-1-teacher-0-0.sft-abc-1"
        assert env["TUNEPORT_CLUSTER_TEACH_ER_NODES"] == "1"
