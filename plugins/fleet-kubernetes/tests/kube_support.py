"""A cluster for tests, in memory or real, and plans to run on it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tuneport.testing.fleets import FleetTests, lost_after
from tuneport.types import Command, LaunchPlan, Pool, RuntimeNeed, Value
from tuneport_fleet_kubernetes.fleet import KubernetesFleet

GOLDEN = Path(__file__).parent / "golden"
DIGEST = "sha256:" + "0" * 64
IMAGE = RuntimeNeed("custom-1", image=f"registry/trainer@{DIGEST}")
FULL: dict[str, Any] = {
    "namespace": "ns",
    "queue": "training",
    "claim": "jobs",
    "mounts": {
        "/data": {"claim": "data", "read_only": True, "path": "sets"},
        "/models": {"host_path": "/srv/models"},
    },
    "secrets": {"HF_TOKEN": "hub/token"},
    "pull_secrets": ["registry"],
    "service_account": "trainer",
    "priority_class": "research",
    "environment": {"NCCL_DEBUG": "INFO"},
    "cpus_per_gpu": 12,
    "memory_per_gpu": "128Gi",
    "shared_memory": "256Gi",
    "head": {"cpus": 8, "memory": "32Gi", "selector": {"pool": "cpu"}},
    "labels": {"team": "alignment"},
    "annotations": {"example.org/cost": "42"},
    "limits": {"time": "1-12:00:00"},
    "nodes": {
        "h200": {
            "gpus_per_node": 8,
            "count": 4,
            "resources": {"rdma/hca_shared": 8},
            "selector": {"node.kubernetes.io/instance-type": "h200"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
        "l40": {"gpus_per_node": 4, "selector": {"node.kubernetes.io/instance-type": "l40"}},
    },
}
"""Every setting that a fleet may have, but `workload`."""


def own_state(folder: Path, monkeypatch: Any) -> None:
    """A state folder nobody else uses, and no kubeconfig of this machine's user."""
    for name in list(os.environ):
        if name.startswith(("TUNEPORT_", "KUBE")) and "CACHE" not in name and "_TEST_" not in name:
            monkeypatch.delenv(name)
    monkeypatch.setenv("TUNEPORT_STATE_DIR", str(folder / "state of ü"))
    monkeypatch.setenv("HOME", str(folder))


def plan(
    *commands: Command, pools: tuple[Pool, ...] = (Pool("main", "cpu", 1, 1),), **more: Any
) -> LaunchPlan:
    return LaunchPlan(
        **{
            "method": "custom/custom",
            "release": "custom 1",
            "runtime": IMAGE,
            "pools": pools,
            "commands": commands,
            **more,
        }
    )


def shell(text: str, role: str = "trainer", pool: str = "main", **env: Value) -> Command:
    return Command(role, ("sh", "-c", text), env, {}, pool)


def until(what: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.2)
    return value


class KubernetesTests(FleetTests):
    """The contract; `Nodes` run what the API accepts."""

    kind = "kubernetes"
    runtime = IMAGE

    @contextlib.contextmanager
    def away(self, fleet: KubernetesFleet) -> Iterator[None]:
        access = fleet.api.access
        real, access.server = access.server, "http://127.0.0.1:9"
        try:
            yield
        finally:
            access.server = real

    def reply_lost(self, fleet: KubernetesFleet) -> contextlib.AbstractContextManager[None]:
        return lost_after(fleet.api, "create", lambda path, _: path.endswith("/jobsets"))

    def seam(self, fleet: KubernetesFleet) -> tuple[Any, str, Callable[..., Any]]:
        return fleet.api, "_call", lambda method, *_: b"<html>busy" if method == "GET" else None

    def known(self, fleet: KubernetesFleet, key: str) -> int:
        place = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{fleet.api.access.namespace}/jobsets"
        items = fleet.api.get(place)["items"]
        return sum(item["metadata"]["annotations"].get("tuneport.io/key") == key for item in items)


def semantics(api: Any) -> list[str]:
    """What the fleet relies on, as an API server does it: the one in memory must do as the real one."""
    from tuneport.errors import TuneportError
    from tuneport_fleet_kubernetes.api import Missing, Taken

    place = f"/api/v1/namespaces/{api.access.namespace}/configmaps"
    jobs = place.replace("/api/v1", "/apis/jobset.x-k8s.io/v1alpha2").replace("configmaps", "jobsets")
    seen: list[str] = []

    def look(what: str, ask: Any, tell: Any = lambda answer: "") -> Any:
        try:
            answer = ask()
        except (Missing, Taken) as error:
            seen.append(f"{what}: {type(error).__name__}")
        except TuneportError as error:
            seen.append(f"{what}: {error.code}")
        else:
            seen.append(f"{what}: fine {tell(answer)}".strip())
            return answer
        return None

    def map_(name: str, **labels: str) -> dict[str, Any]:
        metadata = {"name": name, "labels": {"a": "1", **labels}}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "v"}}

    def set_(name: str) -> dict[str, Any]:
        job = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "n", "image": "i"}]}}}
        spec = {"replicatedJobs": [{"name": "r", "template": {"spec": job}}]}
        api_version = "jobset.x-k8s.io/v1alpha2"
        return {"apiVersion": api_version, "kind": "JobSet", "metadata": {"name": name}, "spec": spec}

    def names(page: Any) -> str:
        return " ".join(item["metadata"]["name"] for item in page)

    look("get of nothing", lambda: api.get(f"{place}/sem-a"))
    look("create", lambda: api.create(place, map_("sem-a")), lambda made: bool(made["metadata"]["uid"]))
    look("create again", lambda: api.create(place, map_("sem-a")))
    look("create another", lambda: api.create(place, map_("sem-b", more="x")))
    look("a name with a capital", lambda: api.create(place, map_("Sem")))
    look("a kind nobody has", lambda: api.create("/apis/none.io/v1/namespaces/ns/things", map_("x")))
    look("list of two", lambda: api.objects(place, "a", ["0", "1"]), names)
    look("list by the other label", lambda: api.objects(place, "more", ["x", "y"]), names)
    look("list of none", lambda: api.objects(place, "more", ["y"]), names)
    owner = look("create an owner", lambda: api.create(jobs, set_("sem-o")), lambda made: made["kind"])
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": "JobSet",
        "name": "sem-o",
        "uid": owner["metadata"]["uid"],
    }
    change = {"metadata": {"ownerReferences": [reference]}}
    look("merge", lambda: api.merge(f"{place}/sem-a", change), lambda made: made["data"])
    said = {"status": {"conditions": []}}
    look("status", lambda: api.merge(f"{jobs}/sem-o/status", said), lambda made: "status" in made)
    look("delete", lambda: api.delete(f"{jobs}/sem-o"))
    for _ in range(100):
        with contextlib.suppress(Missing):
            api.get(f"{place}/sem-a")
            time.sleep(0.1)
            continue
        break
    look("get of what was owned", lambda: api.get(f"{place}/sem-a"))
    look("get of the owner", lambda: api.get(f"{jobs}/sem-o"))
    look("delete of nothing", lambda: api.delete(f"{jobs}/sem-o"))
    look("delete of what is not owned", lambda: api.delete(f"{place}/sem-b"))
    api.access.user = {"token": "wrong"}
    look("a stranger", lambda: api.get(place))
    return seen


SEMANTICS = [
    "get of nothing: Missing",
    "create: fine True",
    "create again: Taken",
    "create another: fine",
    "a name with a capital: fleet-refused",
    "a kind nobody has: Missing",
    "list of two: fine sem-a sem-b",
    "list by the other label: fine sem-b",
    "list of none: fine",
    "create an owner: fine JobSet",
    "merge: fine {'k': 'v'}",
    "status: fine True",
    "delete: fine",
    "get of what was owned: Missing",
    "get of the owner: Missing",
    "delete of nothing: fine",
    "delete of what is not owned: fine",
    "a stranger: fleet-auth",
]
