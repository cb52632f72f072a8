"""An API server that keeps objects in memory: names are unique, deletion waits for what belongs to an object,
and unknown fields are refused where the published schemas lie beside the repository. A test in
`test_kube_engine.py` holds it to the real one."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tuneport_fleet_kubernetes.kinds import API

SCHEMAS = Path(__file__).parents[4] / "shared/k8s-schemas"
KINDS = {
    "/api/v1": ["configmaps", "services", "pods", "persistentvolumeclaims"],
    "/apis/batch/v1": ["jobs"],
    "/apis/jobset.x-k8s.io/v1alpha2": ["jobsets"],
    "/apis/trainer.kubeflow.org/v1alpha1": ["trainjobs"],
    "/apis/ray.io/v1": ["rayjobs"],
}
_PATH = re.compile(
    r"(?P<group>/api/v1|/apis/[^/]+/[^/]+)/namespaces/(?P<ns>[^/]+)/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[a-z]+))?\Z"
)


@cache
def strict() -> Callable[[dict[str, Any]], list[tuple[str, str]]] | None:
    """The strict check of objects against the published schemas; None where they are not here."""
    if not (SCHEMAS / "check.py").exists():
        return None
    sys.path.insert(0, str(SCHEMAS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its files to the garbage collector
        import check

        for kind in ("ConfigMap", "Service"):
            check.validator("v1", kind)  # type: ignore[attr-defined]
        for version, kind, _ in API.values():
            check.validator(version, kind)  # type: ignore[attr-defined]
    return check.errors  # type: ignore[no-any-return,attr-defined]


class Cluster:
    """The objects, by (plural, namespace, name), and what is asked for: `calls` in order. `kinds` are those
    that it has; `log` answers for a pod; `deny` names verbs that this user lacks."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.calls: list[str] = []
        self.kinds = {group: list(plurals) for group, plurals in KINDS.items()}
        self.log: Callable[[str, dict[str, list[str]]], bytes] = lambda *_: b""
        self.nodes: list[dict[str, Any]] = []
        self.deny: set[str] = set()
        self.token = "t0ken"
        self.lock = threading.RLock()
        self.errors = strict()

    def answer(self, method: str, target: str, token: str, body: bytes) -> tuple[int, Any]:
        url = urlsplit(target)
        query = parse_qs(url.query)
        self.calls.append(f"{method} {url.path}")
        if token != f"Bearer {self.token}":
            return status(401, "Unauthorized", "Unauthorized")
        document = json.loads(body) if body else {}
        with self.lock:
            if url.path == "/version":
                return 200, {"major": "1", "minor": "33", "gitVersion": "v1.33.1"}
            if url.path == "/api/v1/nodes":
                return 200, {"kind": "NodeList", "items": self.nodes}
            if url.path in self.kinds:
                return 200, {"resources": [{"name": name} for name in self.kinds[url.path]]}
            if url.path.endswith("/selfsubjectaccessreviews"):
                asked = document["spec"]["resourceAttributes"]
                allowed = f"{asked['verb']} {asked['resource']}" not in self.deny
                return 201, {**document, "status": {"allowed": allowed}}
            if re.fullmatch(r"/api/v1/namespaces/[^/]+", url.path):
                name = url.path.rpartition("/")[2]
                return (200, {"kind": "Namespace"}) if name == "ns" else missing("namespaces", name)
            found = _PATH.match(url.path)
            if found is None or found["plural"] not in self.kinds.get(found["group"], ()):
                return status(404, "NotFound", "the server could not find the requested resource")
            return self._resource(method, found, query, document)

    def _resource(
        self, method: str, path: re.Match[str], query: dict[str, list[str]], document: dict[str, Any]
    ) -> tuple[int, Any]:
        plural, ns, name = path["plural"], path["ns"], path["name"]
        if method == "POST":
            return self._create(plural, ns, document)
        if name is None:
            wanted = _selector(query.get("labelSelector", [""])[0])
            items = [
                item
                for (kind, space, _), item in sorted(self.objects.items())
                if (kind, space) == (plural, ns) and wanted(item["metadata"].get("labels") or {})
            ]
            return 200, {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}
        item = self.objects.get((plural, ns, name))
        if item is None:
            return missing(plural, name)
        if path["sub"] == "log":
            return 200, self.log(name, query)
        if method == "PATCH":
            _merge(item, document)
        elif method == "DELETE":
            self._delete((plural, ns, name), item, document)
        return 200, item

    def _create(self, plural: str, ns: str, document: dict[str, Any]) -> tuple[int, Any]:
        name = document["metadata"]["name"]
        if (plural, ns, name) in self.objects:
            return status(409, "AlreadyExists", f'{plural} "{name}" already exists')
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) or len(name) > 63:
            return status(422, "Invalid", f"metadata.name: {name!r}")
        wrong = self.errors(document) if self.errors is not None and plural != "pods" else []
        if wrong:
            return status(400, "BadRequest", f"strict decoding error: {wrong}")
        item = json.loads(json.dumps(document))
        item["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "namespace": ns}
        self.objects[plural, ns, name] = item
        return 201, item

    def _delete(self, key: tuple[str, str, str], item: dict[str, Any], options: dict[str, Any]) -> None:
        """Pods go when their node says so; an owner goes when nothing belongs to it."""
        item["metadata"].setdefault("deletionTimestamp", now())
        running = (item.get("spec") or {}).get("nodeName")
        if key[0] != "pods" or not running or options.get("gracePeriodSeconds") == 0:
            owned = self._owned(item)
            for other in owned:
                self._delete(other, self.objects[other], {})
            if not self._owned(item):
                self.objects.pop(key, None)
        self._collect()

    def _owned(self, item: dict[str, Any]) -> list[tuple[str, str, str]]:
        uid = item["metadata"]["uid"]
        return [
            key
            for key, other in self.objects.items()
            if any(owner["uid"] == uid for owner in other["metadata"].get("ownerReferences") or ())
        ]

    def _collect(self) -> None:
        for key, item in list(self.objects.items()):
            if item["metadata"].get("deletionTimestamp") and key[0] != "pods" and not self._owned(item):
                self.objects.pop(key, None)


def _selector(text: str) -> Callable[[dict[str, str]], bool]:
    """Equality and `in`, of which there may be several."""
    wanted: list[tuple[str, set[str]]] = []
    for name, values, equal in re.findall(r"([^\s,=]+) in \(([^)]*)\)|([^,]+)", text):
        if name:
            wanted.append((name, {value.strip() for value in values.split(",")}))
        elif equal:
            key, _, value = equal.partition("=")
            wanted.append((key, {value}))
    return lambda labels: all(labels.get(name) in values for name, values in wanted)


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    for name, value in patch.items():
        if isinstance(value, dict) and isinstance(target.get(name), dict):
            _merge(target[name], value)
        elif value is None:
            target.pop(name, None)
        else:
            target[name] = value


def status(code: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}


def missing(plural: str, name: str) -> tuple[int, dict[str, Any]]:
    return status(404, "NotFound", f'{plural} "{name}" not found')


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Server:
    """Serves a cluster on a port of this machine; `kubeconfig(folder)` writes how to reach it."""

    def __init__(self, cluster: Cluster) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                token = self.headers.get("Authorization", "")
                code, said = cluster.answer(self.command, self.path, token, body)
                data = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815 - named by http.server

            def log_message(self, *_: Any) -> None:
                pass

        self._token = cluster.token
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def kubeconfig(self, folder: Path) -> Path:
        file = folder / "kubeconfig"
        document = {
            "clusters": [{"name": "c", "cluster": {"server": self.address}}],
            "users": [{"name": "u", "user": {"token": self._token}}],
            "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
            "current-context": "test",
        }
        file.write_text(json.dumps(document))
        return file

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
