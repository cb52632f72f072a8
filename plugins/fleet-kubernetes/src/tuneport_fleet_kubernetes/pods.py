"""The pods of a plan: one container each, for one role on one node of a pool."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuneport.errors import Invalid
from tuneport.fleets.layout import split_key
from tuneport.types import Command, Json, Pool, Ref, Value

from tuneport_fleet_kubernetes.names import FILES, HEAD, NODES, PORT, RANK, ROLE, STORAGE, WORK, labels, slug
from tuneport_fleet_kubernetes.settings import USER, times

INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
MODULES = f"export PYTHONPATH={WORK}${{PYTHONPATH:+:$PYTHONPATH}}"
"""In a shell of the container, because the image may have a PYTHONPATH of its own."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Site:
    """What all pods of a job have in common. `heads` maps each pool to the address of its first node, where
    that is known before; `files` maps the keys of the job's ConfigMap to paths below the work folder;
    `staged`: the experiment comes from the claim and not from there."""

    key: str
    name: str
    image: str
    settings: Mapping[str, Json]
    files: Mapping[str, str]
    staged: bool
    pools: Sequence[Pool]
    heads: Mapping[str, str]


def staging(site: Site) -> str:
    """Brings the job's files to where it runs, in every pod."""
    job, _ = split_key(site.key)
    own = shlex.quote(f"{STORAGE}/jobs/{job}/source/.")
    return (
        (f"cp -RL {own} {WORK}/ && " if site.staged else "")
        # In a volume of a ConfigMap the files are links into folders whose names begin with two dots.
        + f"cp -RL {FILES}/. {WORK}/ && rm -rf {WORK}/..?* && cd {WORK} && "
        + 'mkdir -p "$TUNEPORT_OUTPUT_DIR" "$TUNEPORT_LOG_DIR"'
    )


def node(site: Site, item: Command, pool: Pool) -> dict[str, Any]:
    """The container of a role, which takes its rank from the index of its pod."""
    known = {"node_rank": f"$({RANK})", "head_addr": site.heads[pool.name], "head_port": PORT}
    rank = {"name": RANK, "valueFrom": {"fieldRef": {"fieldPath": INDEX}}}
    head = {"name": HEAD, "value": site.heads[pool.name]}
    return {
        "name": "node",
        "image": site.image,
        # The command comes as arguments, which no shell ever reads.
        "command": ["/bin/sh", "-c", literal(f'{staging(site)} && {MODULES} && exec "$@"'), "tuneport"],
        "args": [word(value, known) for value in item.argv],
        "env": [rank, head, *environment(site, item, pool, known)],
        "resources": resources(site.settings, pool),
        "securityContext": contained(),
        "volumeMounts": mounts(site),
    }


def environment(site: Site, item: Command, pool: Pool, known: Mapping[str, str]) -> list[dict[str, Any]]:
    """Variables, after those that they may refer to. Secrets are named, never held."""
    job, attempt = split_key(site.key)
    root = f"{STORAGE}/jobs/{job}"
    # Who is not root has no home in most images, and no name.
    home: dict[str, Value] = {"HOME": WORK, "USER": "tuneport"} if site.settings.get("user", USER) else {}
    fixed: dict[str, Value] = {
        **home,
        "PYTHONUNBUFFERED": "1",
        **site.settings.get("environment", {}),
        **item.env,
        "TUNEPORT_JOB_ID": job,
        "TUNEPORT_ATTEMPT": str(attempt),
        "TUNEPORT_ROLE": item.role,
        "TUNEPORT_OUTPUT_DIR": f"{root}/{attempt}/output",
        "TUNEPORT_LOG_DIR": f"{root}/{attempt}/tensorboard",
        "TUNEPORT_REPORT_FILE": f"{root}/{attempt}/report.jsonl",
        "TUNEPORT_CLUSTER_NODES": str(pool.nodes),
        "TUNEPORT_CLUSTER_GPUS_PER_NODE": str(_cards(pool)),
        "TUNEPORT_CLUSTER_PROCESSES_PER_NODE": str(pool.gpus_per_node),
        "TUNEPORT_CLUSTER_HEAD_PORT": PORT,
    }
    for other in site.pools if len(site.pools) > 1 else ():
        stem = "TUNEPORT_CLUSTER_" + re.sub(r"[^A-Z0-9]", "_", other.name.upper())
        fixed |= {f"{stem}_NODES": str(other.nodes), f"{stem}_GPUS_PER_NODE": str(_cards(other))}
        if other.name in site.heads:
            fixed[f"{stem}_HEAD_ADDR"] = site.heads[other.name]
    secrets = site.settings.get("secrets", {})
    for name in fixed:
        if not _NAME.match(name):
            raise Invalid(f"{name!r} cannot be an environment variable in a container", code="value-unusable")
    return [
        *({"name": name, "value": word(text, known)} for name, text in fixed.items() if name not in secrets),
        *(_secret(name, place) for name, place in secrets.items()),
    ]


def _secret(name: str, place: str) -> dict[str, Any]:
    secret, _, key = place.partition("/")
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _cards(pool: Pool) -> int:
    return 0 if pool.series == "cpu" else pool.gpus_per_node


def resources(settings: Mapping[str, Json], pool: Pool) -> dict[str, Any]:
    """Requests and limits alike, so that a pod gets what it asks for and nothing is taken from it."""
    need: dict[str, str] = {}
    count = pool.gpus_per_node
    if pool.series == "cpu":
        need["cpu"] = str(count)
        if "memory_per_cpu" in settings:
            need["memory"] = times(settings["memory_per_cpu"], count)
    else:
        need[settings.get("gpu_resource", "nvidia.com/gpu")] = str(count)
        if "cpus_per_gpu" in settings:
            need["cpu"] = str(settings["cpus_per_gpu"] * count)
        if "memory_per_gpu" in settings:
            need["memory"] = times(settings["memory_per_gpu"], count)
    for name, amount in shape(settings, pool).get("resources", {}).items():
        need[name] = f"{amount:g}" if amount < 1e6 else str(int(amount))
    return {"requests": need, "limits": dict(need)}


def shape(settings: Mapping[str, Json], pool: Pool) -> Mapping[str, Json]:
    found: Mapping[str, Json] = settings.get("nodes", {}).get(pool.series, {})
    return found


def placement(settings: Mapping[str, Json], pool: Pool) -> dict[str, Any]:
    """Where the pods of a pool may run, and each on a node of its own."""
    own = shape(settings, pool)
    found: dict[str, Any] = {}
    if own.get("selector"):
        found["nodeSelector"] = dict(own["selector"])
    if own.get("tolerations"):
        found["tolerations"] = [dict(item) for item in own["tolerations"]]
    return found


def spread(name: str, role: str) -> dict[str, Any]:
    """One pod of a role a node."""
    term = {
        "labelSelector": {"matchLabels": {**labels(name, {}), ROLE: role}},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def pod_security(settings: Mapping[str, Json]) -> dict[str, Any]:
    user = settings.get("user", USER)
    root = {} if user == 0 else {"runAsNonRoot": True}
    return {
        **root,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def contained() -> dict[str, Any]:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def volumes(site: Site) -> list[dict[str, Any]]:
    settings = site.settings
    memory: dict[str, Any] = {"medium": "Memory"}
    if "shared_memory" in settings:
        memory["sizeLimit"] = settings["shared_memory"]
    claim = settings.get("claim")
    items = [{"key": key, "path": path} for key, path in site.files.items()]
    found: list[dict[str, Any]] = [
        {"name": "files", "configMap": {"name": site.name, "items": items, "defaultMode": 0o755}},
        {"name": "work", "emptyDir": {}},
        {
            "name": "storage",
            **({"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}),
        },
        {"name": "shm", "emptyDir": memory},
    ]
    for number, mount in enumerate(settings.get("mounts", {}).values()):
        read_only = {"readOnly": True} if mount.get("read_only") else {}
        place = (
            {"persistentVolumeClaim": {"claimName": mount["claim"], **read_only}}
            if "claim" in mount
            else {"hostPath": {"path": mount["host_path"]}}
        )
        found.append({"name": f"mount-{number}", **place})
    return found


def mounts(site: Site) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": "files", "mountPath": FILES, "readOnly": True},
        {"name": "work", "mountPath": WORK},
        {"name": "storage", "mountPath": STORAGE},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the container's
    ]
    for number, (path, mount) in enumerate(site.settings.get("mounts", {}).items()):
        entry: dict[str, Any] = {"name": f"mount-{number}", "mountPath": path}
        if mount.get("path"):
            entry["subPath"] = mount["path"]
        if mount.get("read_only"):
            entry["readOnly"] = True
        found.append(entry)
    return found


def pod(site: Site, containers: list[dict[str, Any]], pool: Pool | None, role: str) -> dict[str, Any]:
    """A pod template: what is alike in all of them."""
    settings = site.settings
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": containers,
        "securityContext": pod_security(settings),
        "volumes": volumes(site),
        "enableServiceLinks": False,
    }
    if pool is not None:
        spec |= placement(settings, pool)
        if pool.nodes > 1 and pool.series != "cpu":
            spec["affinity"] = spread(site.name, role)
    if "service_account" in settings:
        spec["serviceAccountName"] = settings["service_account"]
    else:
        spec["automountServiceAccountToken"] = False
    if "priority_class" in settings:
        spec["priorityClassName"] = settings["priority_class"]
    if settings.get("pull_secrets"):
        spec["imagePullSecrets"] = [{"name": name} for name in settings["pull_secrets"]]
    own = {**labels(site.name, settings.get("labels", {})), ROLE: role}
    own[NODES] = str(pool.nodes if pool is not None else 1)
    return {"metadata": {"labels": own}, "spec": spec}


def ray(site: Site, item: Command, pool: Pool, head: Mapping[str, Json] | None) -> dict[str, Any]:
    """A pod of a Ray cluster, in which KubeRay starts Ray: a pool's worker, or the `head` without cards.

    Args:
        head: what the fleet declares for it.
    """
    known = {"node_rank": "0", "head_addr": f"$({HEAD})", "head_port": PORT}
    address = {"name": HEAD, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    ranks = [address, {"name": RANK, "value": "0"}] if head is not None else []
    env = [*ranks, *environment(site, item, pool, known if head is not None else {**known, "head_addr": ""})]
    common = {"image": site.image, "securityContext": contained(), "volumeMounts": mounts(site), "env": env}
    need = resources(site.settings, pool)
    if head is not None:
        size = {"cpu": str(head.get("cpus", 4)), "memory": str(head.get("memory", "16Gi"))}
        need = {"requests": size, "limits": dict(size)}
    own = {"name": "ray-head" if head is not None else "ray-worker", **common, "resources": need}
    # Of no role of the plan, whose log is the submitter's; each pool its own, whose pods are kept apart.
    role = f"ray-{slug(pool.name)[:40]}" if head is None else "ray-head"
    template = pod(site, [own], pool if head is None else None, role)
    del template["spec"]["restartPolicy"]  # KubeRay's business
    if head and head.get("selector"):
        template["spec"]["nodeSelector"] = dict(head["selector"])
    stage = {"name": "stage", **common, "command": ["/bin/sh", "-c", literal(staging(site))]}
    stage["resources"] = {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}}
    template["spec"]["initContainers"] = [stage]
    return template


def literal(text: str) -> str:
    """Text in a container's command or environment, where Kubernetes looks for `$(NAME)`."""
    return text.replace("$", "$$")


def word(value: Value, known: Mapping[str, str]) -> str:
    """An argument or a variable's value. `known` is how Kubernetes says what only a running pod knows."""
    if isinstance(value, Ref):
        return f"{literal(value.prefix)}{known[value.ref]}{literal(value.suffix)}"
    return literal(value)
