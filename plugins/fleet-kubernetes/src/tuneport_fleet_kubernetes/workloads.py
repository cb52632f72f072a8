"""The object that runs a plan, a RayJob, JobSet, TrainJob or Indexed Job, and what it needs beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tuneport.errors import Invalid, Unavailable
from tuneport.fleets import shell
from tuneport.types import Command, Json, Pool

from tuneport_fleet_kubernetes import pods
from tuneport_fleet_kubernetes.kinds import API
from tuneport_fleet_kubernetes.names import FILES, HEAD, KEY, PORT, RANK, WORK, labels, slug
from tuneport_fleet_kubernetes.pods import Site
from tuneport_fleet_kubernetes.settings import KEEP, seconds

ENTRY = "tuneport-entry.sh"
RUNTIME = "torch-distributed"
"""The ClusterTrainingRuntime that Kubeflow Trainer brings for torchrun."""
_IN_POD = {"node_rank": f"${RANK}", "head_addr": f"${HEAD}", "head_port": PORT}


def heads(kind: str, name: str, items: Sequence[Command], pools: Mapping[str, Pool]) -> dict[str, str]:
    """The address of the first node of each pool, as the headless service of the job gives it."""
    stems = {"jobset": "{name}-{role}-0-0", "trainjob": "{name}-node-0-0", "job": "{name}-0"}
    if kind == "rayjob":
        return {}
    found: dict[str, str] = {}
    for item in items:
        if item.pool in pools and item.pool not in found:
            found[item.pool] = f"{stems[kind].format(name=name, role=slug(item.role))}.{name}"
    return found


def workload(kind: str, site: Site, items: Sequence[Command]) -> list[dict[str, Any]]:
    """The objects, the one that owns the others last.

    Raises:
        Unavailable: this kind of workload cannot run several roles. Invalid: a setting is none.
    """
    pools = {pool.name: pool for pool in site.pools}
    if kind == "rayjob":
        return [_rayjob(site, items, pools)]
    if kind == "jobset":
        return [_jobset(site, items, pools)]
    if len(items) > 1:
        raise Unavailable(
            f"{len(items)} roles ({', '.join(item.role for item in items)}) need a JobSet, and this fleet "
            f"uses {API[kind][1]}s",
            code="fleet-kind-missing",
            hint="install JobSet in the cluster, or set `workload: jobset` if it is there",
        )
    (item,) = items
    if kind == "trainjob":
        return [_trainjob(site, item, pools[item.pool])]
    return [_service(site), _job(site, item, pools[item.pool])]


def entry(item: Command) -> str:
    """The script that a Ray cluster runs: KubeRay hands on one line of text, so the command is in a file."""
    words = " ".join(shell.word(value, _IN_POD) for value in item.argv)
    return f"#!/bin/sh\ncd {WORK} || exit 1\n{pods.MODULES}\nexec {words}\n"


def _object(kind: str, site: Site, spec: Mapping[str, Any]) -> dict[str, Any]:
    version, word, _ = API[kind]
    own = labels(site.name, site.settings.get("labels", {}))
    if "queue" in site.settings:
        own["kueue.x-k8s.io/queue-name"] = site.settings["queue"]
    notes = {**site.settings.get("annotations", {}), KEY: site.key}
    return {
        "apiVersion": version,
        "kind": word,
        "metadata": {"name": site.name, "labels": own, "annotations": notes},
        "spec": dict(spec),
    }


def _ending(settings: Mapping[str, Json]) -> dict[str, Any]:
    limit = seconds(settings)
    return {"activeDeadlineSeconds": limit} if limit is not None else {}


def _indexed(site: Site, item: Command, pool: Pool) -> dict[str, Any]:
    """The specification of an Indexed Job: pod N is node N. What fails is not tried again unasked."""
    return {
        "completionMode": "Indexed",
        "completions": pool.nodes,
        "parallelism": pool.nodes,
        "backoffLimit": 0,
        **_ending(site.settings),
        "template": pods.pod(site, [pods.node(site, item, pool)], pool, item.role),
    }


def _job(site: Site, item: Command, pool: Pool) -> dict[str, Any]:
    spec = _indexed(site, item, pool)
    spec["template"]["spec"]["subdomain"] = site.name
    return _object("job", site, {"ttlSecondsAfterFinished": site.settings.get("keep", KEEP), **spec})


def _service(site: Site) -> dict[str, Any]:
    own = labels(site.name, site.settings.get("labels", {}))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": site.name, "labels": own},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # nodes look for each other before they are ready
            "selector": labels(site.name, {}),
        },
    }


def _jobset(site: Site, items: Sequence[Command], pools: Mapping[str, Pool]) -> dict[str, Any]:
    names = [slug(item.role) for item in items]
    if len(set(names)) < len(names):
        raise Invalid(
            f"two roles are both called {max(names, key=names.count)!r} in a JobSet", code="plan-role"
        )
    replicated = [
        {"name": name, "replicas": 1, "template": {"spec": _indexed(site, item, pools[item.pool])}}
        for name, item in zip(names, items, strict=True)
    ]
    return _object(
        "jobset",
        site,
        {
            "network": {"enableDNSHostnames": True, "subdomain": site.name, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": 0},
            "ttlSecondsAfterFinished": site.settings.get("keep", KEEP),
            "replicatedJobs": replicated,
        },
    )


def _trainjob(site: Site, item: Command, pool: Pool) -> dict[str, Any]:
    """A TrainJob takes its pods from a runtime of the cluster; what that cannot know is laid over it."""
    template = pods.pod(site, [], pool, item.role)
    spec, own = template["spec"], pods.node(site, item, pool)
    patch = {name: spec[name] for name in _PATCHED if name in spec}
    patch["containers"] = [{name: own[name] for name in ("name", "securityContext", "volumeMounts")}]
    metadata = {"labels": template["metadata"]["labels"]}
    jobs = [{"name": "node", "template": {"spec": {"template": {"metadata": metadata, "spec": patch}}}}]
    runtime = {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime"}
    return _object(
        "trainjob",
        site,
        {
            "runtimeRef": {**runtime, "name": site.settings.get("runtime", RUNTIME)},
            "trainer": {
                **{name: own[name] for name in ("image", "command", "args", "env")},
                "numNodes": pool.nodes,
                "resourcesPerNode": own["resources"],
            },
            "runtimePatches": [
                {
                    "manager": "tuneport.io/fleet",
                    "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
                }
            ],
            **_ending(site.settings),
        },
    )


_PATCHED = (
    "affinity", "imagePullSecrets", "nodeSelector", "securityContext", "serviceAccountName", "tolerations",
    "volumes",
)  # fmt: skip
"""What a patch of a runtime may say about its pods."""


def _rayjob(site: Site, items: Sequence[Command], pools: Mapping[str, Pool]) -> dict[str, Any]:
    """A cluster for this job alone: a head without cards, and one group of workers for each pool. The plan's
    first command runs on the head; the others only bring up what KubeRay brings up."""
    first = items[0]
    driver = pools[first.pool]
    head = pods.ray(site, first, driver, site.settings.get("head", {}))
    group_names: dict[str, str] = {}
    groups = []
    for item in items:
        if item.pool in group_names:
            continue
        pool = pools[item.pool]
        group_names[item.pool] = slug(pool.name)
        groups.append(
            {
                "groupName": slug(pool.name),
                "replicas": pool.nodes,
                "minReplicas": pool.nodes,
                "maxReplicas": pool.nodes,
                "rayStartParams": {"resources": json.dumps(json.dumps({f"pool-{slug(pool.name)}": 1}))},
                "template": pods.ray(site, item, pool, None),
            }
        )
    return _object(
        "rayjob",
        site,
        {
            "entrypoint": f"/bin/sh {FILES}/{ENTRY}",
            "submissionMode": "K8sJobMode",
            "backoffLimit": 0,
            # The cluster goes at once: a time to live would keep its cards. The RayJob and its log stay.
            "shutdownAfterJobFinishes": True,
            **_ending(site.settings),
            "submitterPodTemplate": _submitter(site, first),
            "rayClusterSpec": {
                "headGroupSpec": {"rayStartParams": {"num-gpus": "0"}, "template": head},
                "workerGroupSpecs": groups,
            },
        },
    )


def _submitter(site: Site, item: Command) -> dict[str, Any]:
    """The pod that hands the command to the cluster and prints what it writes: the job's log."""
    own = {
        "name": "ray-job-submitter",
        "image": site.image,
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 - the container's
        "resources": {
            "requests": {"cpu": "500m", "memory": "512Mi"},
            "limits": {"cpu": "1", "memory": "1Gi"},
        },
        "securityContext": pods.contained(),
    }
    template = pods.pod(site, [own], None, item.role)
    del template["spec"]["volumes"]
    return template
