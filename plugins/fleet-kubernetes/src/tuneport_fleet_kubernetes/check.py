"""What `tp fleet check` asks of a Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tuneport.errors import TuneportError, Unavailable
from tuneport.fleets.protocol import Probe
from tuneport.types import Json

from tuneport_fleet_kubernetes.api import Api, Missing
from tuneport_fleet_kubernetes.kinds import API
from tuneport_fleet_kubernetes.workloads import RUNTIME

ADVICE = {
    "rayjob": "install KubeRay 1.1 or newer in the cluster",
    "jobset": "install JobSet, or leave `workload` of the fleet out",
    "trainjob": "install a Kubeflow Trainer whose TrainJobs have runtimePatches, or leave `workload` out",
    "job": "the cluster is older than Kubernetes 1.21",
}


def kinds(api: Api) -> list[str]:
    """The kinds of workload that the cluster has.

    Raises:
        Unavailable: it cannot be asked.
    """
    found = []
    for kind, (version, _, plural) in API.items():
        try:
            listed = api.get(f"/apis/{version}")
        except Missing:
            continue
        if any(item.get("name") == plural for item in listed.get("resources") or ()):
            found.append(kind)
    return found


def cards(api: Api, settings: Mapping[str, Json]) -> int | None:
    """The cards of all nodes; None where this user may not list nodes."""
    try:
        return sum(_cards(node, settings) for node in _nodes(api))
    except (Unavailable, Missing):
        return None


def probes(connect: Callable[[], Api], settings: Mapping[str, Json]) -> Iterator[Probe]:
    """In the order in which they depend on each other; the first bad one of the cluster ends it."""
    try:
        api = connect()
        said = api.get("/version")
        version = str(said.get("gitVersion", "")) if isinstance(said, dict) else ""
        where = f"{api.access.server} ({api.access.context or api.access.source})"
        yield Probe(
            "reach",
            bool(version),
            f"Kubernetes {version} at {where}" if version else f"{where} is no Kubernetes",
        )
        if not version:
            return
        probe = _namespace(api)
        yield probe
        if not probe.ok:
            return
        have = kinds(api)
        yield from _kinds(have, settings)
        yield from _allowed(api, have)
    except TuneportError as error:
        yield Probe("auth" if error.code == "fleet-auth" else "reach", False, error.message, error.hint)
        return
    except Missing as error:
        yield Probe(
            "reach", False, f"no Kubernetes API is there: {error}", "correct `server` of the kubeconfig"
        )
        return
    for more in (_shapes, _things):
        try:
            yield from more(api, settings)
        except Unavailable as error:
            yield Probe(more.__name__.strip("_"), False, error.message, error.hint)


def _namespace(api: Api) -> Probe:
    name = api.access.namespace
    try:
        api.get(f"/api/v1/namespaces/{name}")
    except Missing:
        return Probe(
            "namespace", False, f"there is no namespace {name}", "correct `namespace`, or have it made"
        )
    except Unavailable as error:
        if error.code != "fleet-auth" or "forbids" not in error.message:
            raise
        return Probe("namespace", True, f"{name}; whether it is there this user may not ask")
    return Probe("namespace", True, name)


def _kinds(have: list[str], settings: Mapping[str, Json]) -> Iterator[Probe]:
    wanted = settings.get("workload")
    if wanted and wanted not in have:
        yield Probe("workload", False, f"the cluster has no {API[wanted][1]}", ADVICE[wanted])
    torch = wanted or next((kind for kind in ("jobset", "trainjob", "job") if kind in have), "job")
    versions = ", ".join(f"{API[kind][1]} ({API[kind][0]})" for kind in have)
    note = "" if "rayjob" in have else "; without RayJob no method that works on Ray runs here"
    yield Probe("kinds", bool(have), f"{versions}; torchrun runs in a {API[torch][1]}{note}")


def _allowed(api: Api, have: list[str]) -> Iterator[Probe]:
    """What this user may do in the namespace, as the cluster itself judges it."""
    asked = [("create", "", "configmaps"), ("list", "", "pods"), ("get", "", "pods/log")]
    for kind in have:
        version, _, plural = API[kind]
        asked += [(verb, version.rpartition("/")[0], plural) for verb in ("create", "list", "delete")]
    denied = []
    for verb, group, resource in asked:
        plural, _, sub = resource.partition("/")
        attributes = {"namespace": api.access.namespace, "verb": verb, "group": group, "resource": plural}
        review = api.create(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": {**attributes, **({"subresource": sub} if sub else {})}},
            },
        )
        if not (review.get("status") or {}).get("allowed"):
            denied.append(f"{verb} {resource}")
    text = f"this user may not {', '.join(denied)}" if denied else f"all {len(asked)} rights that jobs need"
    hint = f"have a role bound in namespace {api.access.namespace} that allows it" if denied else ""
    yield Probe("rights", not denied, text, hint)


def _shapes(api: Api, settings: Mapping[str, Json]) -> Iterator[Probe]:
    try:
        found = _nodes(api)
    except Missing:
        return
    except Unavailable as error:
        if error.code != "fleet-auth":
            raise
        yield Probe("nodes", True, "this user may not list nodes: what `nodes` declares is taken on trust")
        return
    ready = [node for node in found if _ready(node)]
    total = sum(_cards(node, settings) for node in ready)
    yield Probe("nodes", bool(ready), f"{len(ready)} of {len(found)} nodes usable, {total} cards")
    for series, shape in settings.get("nodes", {}).items():
        if series == "cpu":
            continue
        selector = shape.get("selector", {})
        fit = sum(
            _cards(node, settings) >= shape["gpus_per_node"]
            and selector.items() <= (node["metadata"].get("labels") or {}).items()
            for node in ready
        )
        wanted = int(shape.get("count", 1))
        words = "".join(f", {name}={value}" for name, value in selector.items())
        text = f"{series}: {fit} nodes with {shape['gpus_per_node']} cards or more{words}"
        hint = "" if fit >= wanted else f"`nodes` declares {wanted}; kubectl get nodes --show-labels"
        yield Probe("nodes", fit >= wanted, text, hint)


def _things(api: Api, settings: Mapping[str, Json]) -> Iterator[Probe]:
    """What the settings name: queue, claims, priority class, runtime. Secrets are not read."""
    space = f"namespaces/{api.access.namespace}"
    claims = [settings.get("claim"), *(mount.get("claim") for mount in settings.get("mounts", {}).values())]
    named = [("claim", f"/api/v1/{space}/persistentvolumeclaims", claim) for claim in claims if claim]
    if "queue" in settings:
        versions = [item["version"] for item in _group(api, "kueue.x-k8s.io")] or ["v1beta1"]
        named.append(("queue", f"/apis/kueue.x-k8s.io/{versions[0]}/{space}/localqueues", settings["queue"]))
    if "priority_class" in settings:
        place = "/apis/scheduling.k8s.io/v1/priorityclasses"
        named.append(("priority", place, settings["priority_class"]))
    if settings.get("workload") == "trainjob" or "runtime" in settings:
        place = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
        named.append(("runtime", place, settings.get("runtime", RUNTIME)))
    for what, path, name in named:
        try:
            api.get(f"{path}/{name}")
            yield Probe(what, True, str(name))
        except Missing:
            listed = path.rpartition("/")[2]
            yield Probe(what, False, f"there is no {name}", f"kubectl get {listed} lists what is there")
        except Unavailable as error:
            if error.code != "fleet-auth":
                raise
            yield Probe(what, True, f"{name}; whether it is there this user may not ask")


def _group(api: Api, group: str) -> list[dict[str, Any]]:
    try:
        versions: list[dict[str, Any]] = api.get(f"/apis/{group}").get("versions") or []
    except Missing:
        return []
    return versions


def _nodes(api: Api) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = api.get("/api/v1/nodes").get("items") or []
    return items


def _ready(node: Mapping[str, Any]) -> bool:
    if (node.get("spec") or {}).get("unschedulable"):
        return False
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)


def _cards(node: Mapping[str, Any], settings: Mapping[str, Json]) -> int:
    amount = ((node.get("status") or {}).get("allocatable") or {}).get(
        settings.get("gpu_resource", "nvidia.com/gpu"), 0
    )
    try:
        return int(amount)
    except ValueError:
        return 0
