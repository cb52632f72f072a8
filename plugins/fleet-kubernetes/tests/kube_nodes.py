"""What a cluster has beside its API, for tests: a controller that makes the pods of JobSets and Jobs, and a
node that runs them. A pod's container is a process of this machine, made from the object that the API took
and from nothing else: its command, its environment, and its volumes, mounted in a namespace of its own.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tuneport.errors import Unavailable
from tuneport_fleet_kubernetes.api import Api, Missing, Taken
from tuneport_fleet_kubernetes.kinds import API
from tuneport_fleet_kubernetes.logs import INDEX
from tuneport_fleet_kubernetes.names import JOB

NODE = "test-node"
_MOUNTED = """
mount -t tmpfs tmpfs /mnt
while [ "$1" != -- ]; do mkdir -p "$2"; mount --bind "$1" "$2"; shift 2; done
shift
mount --bind "$1" /etc/hosts
shift
exec "$@"
"""


def can_mount() -> bool:
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


@dataclass
class Running:
    """A pod's process. `lines` are (time in nanoseconds, bytes), as a container runtime keeps them."""

    process: subprocess.Popen[bytes]
    lines: list[tuple[int, bytes]] = field(default_factory=list)
    reader: threading.Thread | None = None
    reported: bool = False


class Nodes:
    """`bins` is put first on the PATH of containers: it stands for what the image has. Without `jobs`, Jobs
    are left to the cluster's own controller."""

    def __init__(self, api: Api, folder: Path, bins: str = "", jobs: bool = True) -> None:
        self.api, self.folder, self.bins = api, folder, bins
        self.namespace = api.access.namespace
        self.kinds = ["jobset", "job"] if jobs else ["jobset"]
        self.pods: dict[str, Running] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join(20)
        for running in self.pods.values():
            _kill(running)

    def log(self, pod: str, query: dict[str, list[str]]) -> bytes:
        """What the kubelet answers: lines from a whole second on, each with its time."""
        running = self.pods.get(pod)
        since = query.get("sinceTime", [""])[0]
        start = 0
        if since:
            start = int(datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp()) * 10**9
        found = []
        for moment, line in list(running.lines) if running else []:
            if moment >= start:
                seconds, rest = divmod(moment, 10**9)
                stamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest:09d}Z"
                found.append(stamp.encode() + b" " + line)
        return b"".join(found)

    def _loop(self) -> None:
        while not self._over.wait(0.1):
            with contextlib.suppress(Unavailable, Missing, Taken):
                self.step()

    def step(self) -> None:
        pods = self._list("/api/v1", "pods")
        for kind in self.kinds:
            version, _, plural = API[kind]
            for item in self._list(f"/apis/{version}", plural):
                self._control(kind, item, pods)
        for pod in pods:
            self._run(pod)
        there = {pod["metadata"]["name"] for pod in pods}
        for name, running in self.pods.items():
            if name not in there:
                _kill(running)

    def _list(self, group: str, plural: str) -> list[dict[str, Any]]:
        try:
            items: list[dict[str, Any]] = self.api.get(f"{group}/namespaces/{self.namespace}/{plural}")[
                "items"
            ]
        except Missing:
            return []
        return items

    def _control(self, kind: str, item: dict[str, Any], pods: list[dict[str, Any]]) -> None:
        name = item["metadata"]["name"]
        conditions = (item.get("status") or {}).get("conditions") or []
        if item["metadata"].get("deletionTimestamp") or conditions or (item["spec"] or {}).get("suspend"):
            return
        mine = {pod["metadata"]["name"]: pod for pod in pods if pod["metadata"]["labels"].get(JOB) == name}
        wanted = dict(_pods(kind, item))
        for pod_name, pod in wanted.items():
            if pod_name not in mine:
                self.api.create(f"/api/v1/namespaces/{self.namespace}/pods", pod)
        phases = [(mine.get(one) or {}).get("status", {}).get("phase") for one in wanted]
        if "Failed" in phases:
            for one, pod in mine.items():
                if pod.get("status", {}).get("phase") == "Running" and one in self.pods:
                    _kill(self.pods[one])
            self._ended(kind, name, "Failed")
        elif phases and all(phase == "Succeeded" for phase in phases):
            self._ended(kind, name, "Complete" if kind == "job" else "Completed")

    def _ended(self, kind: str, name: str, how: str) -> None:
        version, _, plural = API[kind]
        condition = {
            "type": how,
            "status": "True",
            "reason": how,
            "message": how,
            "lastTransitionTime": _now(),
        }
        path = f"/apis/{version}/namespaces/{self.namespace}/{plural}/{name}/status"
        self.api.merge(path, {"status": {"conditions": [condition]}})

    def _run(self, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        place = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        running = self.pods.get(name)
        if pod["metadata"].get("deletionTimestamp"):
            if running is not None:
                _kill(running)
            self.api._call("DELETE", place, {}, {"gracePeriodSeconds": 0})
            return
        if running is None and not (pod.get("status") or {}).get("containerStatuses"):
            if not (pod.get("spec") or {}).get("nodeName"):
                return
            self.pods[name] = running = self._start(pod)
            self._report(place, "Running", {"running": {"startedAt": _now()}})
        elif running is not None and running.process.poll() is not None and not running.reported:
            if running.reader is not None:
                running.reader.join()
            code = running.process.returncode
            code = code if code >= 0 else 128 - code
            done = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": _now()}
            self._report(place, "Failed" if code else "Succeeded", {"terminated": done})
            running.reported = True

    def _report(self, place: str, phase: str, state: dict[str, Any]) -> None:
        container = {"name": "node", "state": state, "ready": phase == "Running", "restartCount": 0}
        more = {"image": "", "imageID": "", "started": True}
        said = {"phase": phase, "startTime": _now(), "containerStatuses": [{**container, **more}]}
        self.api.merge(f"{place}/status", {"status": said})

    def _start(self, pod: dict[str, Any]) -> Running:
        spec, (own,) = pod["spec"], pod["spec"]["containers"]
        env = self._environment(pod, own)
        words = [_expanded(word, env) for word in (*own["command"], *own.get("args", ()))]
        binds: list[str] = []
        for mount in own["volumeMounts"]:
            volume = next(item for item in spec["volumes"] if item["name"] == mount["name"])
            if not mount["mountPath"].startswith("/dev"):
                binds += [str(self._volume(pod, volume)), mount["mountPath"]]
        hosts = self.folder / f"{pod['metadata']['name']}.hosts"
        subdomain = spec.get("subdomain") or pod["metadata"]["labels"][JOB]
        others = [f"{_name(index, pod)}.{subdomain}" for index in range(8)]
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"127.0.0.1 {other}\n" for other in others))
        process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", _MOUNTED, "sh", *binds, "--", str(hosts), *words],
            env={"PATH": f"{self.bins}{':' if self.bins else ''}/usr/local/bin:/usr/bin:/bin", **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        running = Running(process)
        running.reader = threading.Thread(target=_read, args=(running,), daemon=True)
        running.reader.start()
        return running

    def _environment(self, pod: dict[str, Any], own: dict[str, Any]) -> dict[str, str]:
        env: dict[str, str] = {}
        for item in own["env"]:
            if "value" in item:
                env[item["name"]] = _expanded(item["value"], env)
                continue
            source = item["valueFrom"]
            if "fieldRef" in source:
                annotation = re.fullmatch(r"metadata\.annotations\['(.*)'\]", source["fieldRef"]["fieldPath"])
                env[item["name"]] = (
                    pod["metadata"]["annotations"][annotation[1]] if annotation else "127.0.0.1"
                )
            else:
                env[item["name"]] = f"<{source['secretKeyRef']['name']}/{source['secretKeyRef']['key']}>"
        return env

    def _volume(self, pod: dict[str, Any], volume: dict[str, Any]) -> Path:
        """A folder of this machine with the content of a volume."""
        if "persistentVolumeClaim" in volume:
            place = self.folder / "claims" / volume["persistentVolumeClaim"]["claimName"]
        elif "hostPath" in volume:
            place = Path(volume["hostPath"]["path"])
        else:
            place = self.folder / "volumes" / pod["metadata"]["name"] / volume["name"]
        place.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            name = volume["configMap"]["name"]
            content = self.api.get(f"/api/v1/namespaces/{self.namespace}/configmaps/{name}")
            (place / "..data").symlink_to("..2026")  # as the kubelet lays it out, to change all at once
            for item in volume["configMap"]["items"]:
                file = place / "..2026" / item["path"]
                top = item["path"].partition("/")[0]
                if not (place / top).is_symlink():
                    (place / top).symlink_to(f"..data/{top}")
                file.parent.mkdir(parents=True, exist_ok=True)
                binary = (content.get("binaryData") or {}).get(item["key"])
                text = (content.get("data") or {}).get(item["key"], "")
                file.write_bytes(base64.b64decode(binary) if binary is not None else text.encode())
                file.chmod(volume["configMap"]["defaultMode"])
        return place


def _pods(kind: str, item: dict[str, Any]) -> Any:
    """(name, pod) for each index of each job, as the controllers name them."""
    owner = {
        "apiVersion": item["apiVersion"],
        "kind": item["kind"],
        "name": item["metadata"]["name"],
        "uid": item["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    name = item["metadata"]["name"]
    specs = [(name, item["spec"])]
    if kind == "jobset":
        specs = [
            (f"{name}-{one['name']}-0", one["template"]["spec"]) for one in item["spec"]["replicatedJobs"]
        ]
    for stem, spec in specs:
        for index in range(spec["completions"]):
            template = spec["template"]
            metadata = {
                "name": f"{stem}-{index}",
                "labels": template["metadata"]["labels"],
                "annotations": {INDEX: str(index)},
                "ownerReferences": [owner],
            }
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
            yield metadata["name"], {**pod, "spec": {**template["spec"], "nodeName": NODE}}


def _name(index: int, pod: dict[str, Any]) -> str:
    """The name of the pod of another index of the same job."""
    return f"{pod['metadata']['name'].rpartition('-')[0]}-{index}"


def _expanded(text: str, env: dict[str, str]) -> str:
    """As k8s.io/kubernetes/third_party/forked/golang/expansion reads it."""
    return re.sub(
        r"\$(\$|\(([^()]*)\))?",
        lambda found: "$" if found[1] in (None, "$") else env.get(found[2], found[0]),
        text,
    )


def _read(running: Running) -> None:
    assert running.process.stdout is not None
    last = 0
    with running.process.stdout as stream:
        for line in stream:  # by a coarse clock: many lines have one time
            last = max(last, time.time_ns() // 1_000_000 * 1_000_000)
            running.lines.append((last, line))


def _kill(running: Running) -> None:
    if running.process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGTERM)
        try:
            running.process.wait(2)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.process.pid, signal.SIGKILL)
            running.process.wait()
    if running.reader is not None:
        running.reader.join(5)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
