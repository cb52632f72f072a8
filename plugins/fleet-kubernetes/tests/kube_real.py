"""A real API server for tests, with the published kinds in it, and a node that it can ask for logs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kube_fake import SCHEMAS
from kube_nodes import NODE, Nodes
from tuneport.settings import cache_dir
from tuneport_fleet_kubernetes.api import Api, Missing, Taken
from tuneport_fleet_kubernetes.kubeconfig import find

SCRIPT = Path(__file__).parents[3] / "tools/engines/kubernetes.sh"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def sim(verb: str, folder: Path) -> None:
    done = subprocess.run(
        [str(SCRIPT), verb, str(folder)],
        capture_output=True,
        text=True,
        timeout=180,
        stdin=subprocess.DEVNULL,
        check=False,
        env={**os.environ, "TUNEPORT_CACHE_DIR": str(cache_dir())},
    )
    assert done.returncode == 0, done.stderr


def cluster() -> Iterator[Path]:
    """For a fixture: the folder of a cluster with namespace `ns` and the published kinds."""
    if not list(cache_dir().glob("engines/kubernetes-*/ready")):
        missing = "no Kubernetes here: tools/engines/kubernetes.sh install (ten minutes)"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    if not SCHEMAS.is_dir():
        pytest.skip(f"the published schemas are not in {SCHEMAS}")
    folder = Path(tempfile.mkdtemp(prefix="tp-kube-"))
    sim("up", folder / "sim")
    try:
        api = admin(folder / "sim")
        api.create(
            "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
        )
        places = [_define(api, plural) for plural in ("jobsets", "rayjobs", "trainjobs", "localqueues")]
        until = time.monotonic() + 60
        for place in places:
            while not _known_there(api, place):
                assert time.monotonic() < until, f"{place} did not become known"
                time.sleep(0.2)
        yield folder / "sim"
    finally:
        sim("down", folder / "sim")
        shutil.rmtree(folder)


def admin(folder: Path) -> Api:
    before = os.environ.get("KUBECONFIG")
    os.environ["KUBECONFIG"] = str(folder / "kubeconfig")
    try:
        return Api(find(), 10)
    finally:
        os.environ.pop("KUBECONFIG")
        if before is not None:
            os.environ["KUBECONFIG"] = before


def _define(api: Api, plural: str) -> str:
    """Make a kind known, as its project publishes it, without what a server of 1.20 does not know. Returns
    where its objects will be."""
    rows = [row for row in json.loads((SCHEMAS / "index.json").read_text()) if row["plural"] == plural]
    kind, group = rows[0]["kind"], rows[0]["group"]
    versions = [
        {
            "name": row["version"],
            "served": row["served"],
            "storage": row["storage"],
            "subresources": {"status": {}} if "status" in row["subresources"] else {},
            "schema": {"openAPIV3Schema": _known(json.loads((SCHEMAS / row["file"]).read_text()))},
        }
        for row in rows
    ]
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    metadata = {
        "name": f"{plural}.{group}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
    }
    api.create(
        CRDS,
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": metadata,
            "spec": {"group": group, "scope": rows[0]["scope"], "names": names, "versions": versions},
        },
    )
    return f"/apis/{group}/{versions[-1]['name']}/namespaces/ns/{plural}"


def _known_there(api: Api, place: str) -> bool:
    try:
        api.get(place)
    except Missing:
        return False
    return True


def _known(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_known(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    later = ("x-kubernetes-validations", "x-kubernetes-list-map-keys")
    found = {name: _known(item) for name, item in schema.items() if name not in later}
    if found.get("default") == "" and "type" in found:
        del found["default"]  # 1.20 takes an empty text for null
    if found.get("x-kubernetes-list-type") == "map":  # its keys may need such a default
        found["x-kubernetes-list-type"] = "atomic"
    return found


class RealNodes(Nodes):
    """Pods of a real cluster, whose API server fetches their logs here."""

    def __init__(self, sim_folder: Path, folder: Path, bins: str = "") -> None:
        nodes = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                data = nodes.log(url.path.split("/")[3], parse_qs(url.query))
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sim_folder / "pki/apiserver.crt", sim_folder / "pki/apiserver.key")
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        api = admin(sim_folder)
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {"gpu": "h200"}}}
        with contextlib.suppress(Taken):
            api.create("/api/v1/nodes", node)
        said = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._http.server_address[1]}},
            "conditions": [{"type": "Ready", "status": "True"}],
            "capacity": {"nvidia.com/gpu": "8"},
            "allocatable": {"nvidia.com/gpu": "8"},
        }
        api.merge(f"/api/v1/nodes/{NODE}/status", {"status": said})
        super().__init__(api, folder, bins, jobs=False)

    def close(self) -> None:
        super().close()
        self._http.shutdown()
        self._http.server_close()
