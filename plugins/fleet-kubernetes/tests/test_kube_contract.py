"""The contract of fleets, on an API in memory whose pods are processes of this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tuneport_fleet_kubernetes.api import Api
from tuneport_fleet_kubernetes.fleet import KubernetesFleet
from tuneport_fleet_kubernetes.kubeconfig import find

sys.path.insert(0, str(Path(__file__).parent))
from kube_fake import Cluster, Server
from kube_nodes import Nodes, can_mount
from kube_support import KubernetesTests, own_state

pytestmark = pytest.mark.skipif(not can_mount(), reason="not root: containers need mounts of their own")


class TestKubernetes(KubernetesTests):
    @pytest.fixture
    def fleet(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesFleet]:
        own_state(tmp_path, monkeypatch)
        cluster = Cluster()
        server = Server(cluster)
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        nodes = Nodes(Api(find(), 5), tmp_path)
        cluster.log = nodes.log
        yield KubernetesFleet({"workload": "jobset", "timeout": 5})
        nodes.close()
        server.close()
