"""What the pods of an object would stumble over: shared memory, ranks, words, and where they meet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuneport.jobfiles.documents import Object, Place
from tuneport.jobfiles.pods import Pod, environment, gpus, listed, mapped, shared_memory, words
from tuneport.jobfiles.refused import INDEX
from tuneport.types import Json

DNS = "Kubernetes documentation, DNS for Services and Pods"
EXPAND = "Kubernetes third_party/forked/golang/expansion/expand.go, MappingFuncFor"
_LOCAL = re.compile(r"(localhost|127\.[0-9.]+|0\.0\.0\.0|::1)(:\d+)?\Z")
_EXPANDED = re.compile(r"\$\(([A-Za-z_]\w*)\)")
_UNREAD = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_NUMBERED = re.compile(r"([a-z0-9-]+)-\d+\.([a-z0-9-]+)(\.|:|\Z)")
SHELLS = re.compile(r"(.*/)?(ba|da|z|k|a)?sh\Z")
_OFSHELLS = ("hostname", "date", "nproc", "cat", "whoami")
_FIRST = ("MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT")
_RANKS = ("RANK", "NODE_RANK", "PET_NODE_RANK", "GROUP_RANK")


def check(one: Object, pods: Sequence[Pod], services: Mapping[str, Mapping[str, Any]]) -> None:
    """Say what is wrong with the pods of one object.

    Args:
        services: the Services of the file, by name.
    """
    for pod in pods:
        for place, container in pod.containers():
            _ranks(one, pod, place, container)
            _words(one, pod, place, container)
            for address, at in _addresses(place, container):
                _address(one, pod, address, at, services)
    if "ray.io" not in one.kind:
        _shared(one, pods)


def _shared(one: Object, pods: Iterable[Pod]) -> None:
    """Shared memory of 64 MiB, for processes that exchange batches and gradients through it."""
    for pod in pods:
        for place, container in pod.containers():
            if gpus(container) < 2 or pod.spec.get("hostIPC") or shared_memory(pod, container) is not None:
                continue
            if pod.grouped and not words(container):
                continue  # another object completes it
            message = (
                f"{gpus(container)} GPUs share a /dev/shm of 64 MiB: data loaders and NCCL run out of it"
            )
            hint = "mount an emptyDir with medium: Memory at /dev/shm"
            source = "containerd, default mounts of a container"
            one.say("kube-shm", "warning", (*place, "volumeMounts"), message, hint, source)


def _ranks(one: Object, pod: Pod, place: Place, container: Mapping[str, Json]) -> None:
    """Numbers of machines that are written out and so are the same in every pod."""
    named = environment(container)
    world, each = named.get("WORLD_SIZE") or "", gpus(container) or 1
    if pod.copies < 2 or world == "1":  # then each works for itself
        return
    for name in _RANKS:
        if (named.get(name) or "").isdigit():
            message = f"each of {pod.copies} pods is told that it is number {named[name]}"
            hint = f"take {name} from {INDEX}, or from the pod's name"
            one.say("kube-rank", "warning", _of(place, container, name), message, hint)
    if world.isdigit() and (int(world) % pod.copies or int(world) > pod.copies * each):
        message = f"WORLD_SIZE is {world}, and there are {pod.copies} pods with {each} GPUs each"
        hint = "write the number of processes of all pods"
        one.say("kube-rank", "warning", _of(place, container, "WORLD_SIZE"), message, hint)


def _of(place: Place, container: Mapping[str, Json], name: str) -> Place:
    """The place of a variable's value."""
    numbers = (
        n for n, item in enumerate(listed(container, "env")) if mapped({"": item}, "").get("name") == name
    )
    return (*place, "env", next(numbers, 0), "value")


def _words(one: Object, pod: Pod, place: Place, container: Mapping[str, Json]) -> None:
    """Variables in words that no shell reads, and words that are more than one."""
    said = words(container)
    texts = [word for word, _ in said]
    if len(texts) == 1 and "command" in container and re.match(r"\S+ +-", texts[0]):
        message = f"there is no program called {texts[0]!r}: its words stand in one"
        one.say(
            "kube-variable", "warning", (*place, *said[0][1]), message, "write each word for itself", EXPAND
        )
    if listed(container, "envFrom") or "command" not in container or "-c" in texts:
        return
    if any(map(SHELLS.match, texts)):
        return
    named = {*environment(container), INDEX}
    for word, at in said:
        lost = [name for name in _EXPANDED.findall(word) if name not in named and not pod.grouped]
        plain = [name for name in _UNREAD.findall(word) if name in named and f"$({name})" not in word]
        if lost:
            message = f"$({lost[0]}) is no variable of the container, so the program gets it as it is written"
            hint = "start a shell" if lost[0] in _OFSHELLS else f"set {lost[0]} under env:"
            one.say("kube-variable", "warning", (*place, *at), message, hint, EXPAND)
        elif plain and texts[0] not in ("awk", "python", "python3"):
            message = f"no shell reads {word!r}: the program gets the dollar sign"
            hint = f'write "$({plain[0]})", which Kubernetes fills in, or start a shell'
            one.say("kube-variable", "warning", (*place, *at), message, hint, EXPAND)


def _addresses(place: Place, container: Mapping[str, Json]) -> Iterable[tuple[str, Place]]:
    """(where machines meet, its place) as a container says it."""
    named = environment(container)
    for name in _FIRST:
        if named.get(name):
            yield str(named[name]), _of(place, container, name)
    flags = "|".join(("--master_addr", "--master-addr", "--rdzv_endpoint", "--rdzv-endpoint"))
    for word, at in words(container):
        for match in re.finditer(rf"(?:{flags})[= ]([\w.:-]+)", word):
            yield match[1], (*place, *at)


def _address(
    one: Object, pod: Pod, address: str, at: Place, services: Mapping[str, Mapping[str, Any]]
) -> None:
    if _LOCAL.match(address):
        if pod.copies < 2 or at[-1] != "value":  # flags are judged as the launcher's own
            return
        message = f"{address} is each pod itself, and there are {pod.copies}: they never meet"
        one.say(
            "kube-address", "warning", at, message, "write the name of the first pod, the same in all of them"
        )
        return
    host, name = address.partition(":")[0], mapped(one.data, "metadata").get("name")
    numbered = _NUMBERED.match(address)
    domain = numbered[2] if numbered else host.partition(".")[2].partition(".")[0]
    if numbered and name and numbered[1] == name:
        _own_name(one, pod, host, domain, at)
        service = services.get(domain)
        if service is not None and mapped(service, "spec").get("clusterIP") != "None":
            message = f"the Service {domain} is not headless, so {host} has no address"
            one.say("kube-address", "warning", at, message, "write clusterIP: None in the Service", DNS)
    outside = pod.spec.get("hostNetwork") is True and pod.spec.get("dnsPolicy") != "ClusterFirstWithHostNet"
    if outside and (domain in services or host in services or ".svc" in host):
        message = f"a pod on the host's network asks the host's DNS, which does not know {host}"
        one.say("kube-address", "warning", at, message, "write dnsPolicy: ClusterFirstWithHostNet", DNS)


def _own_name(one: Object, pod: Pod, host: str, domain: str, at: Place) -> None:
    """Whether the pods of a Job can be called like this."""
    if one.kind != "batch/v1 Job":
        return
    if not pod.spec.get("subdomain"):
        message = f"{host} has no address: pods of this object are in no subdomain"
        hint = f"write subdomain: {domain} in the pod, and a Service of that name with clusterIP: None"
        one.say("kube-address", "warning", at, message, hint, DNS)
    elif pod.spec.get("subdomain") != domain:
        message = f"{host} has no address: the subdomain of the pods is {pod.spec.get('subdomain')}"
        one.say("kube-address", "warning", at, message, "write the same name in both", DNS)
    elif mapped(one.data, "spec").get("completionMode") != "Indexed":
        message = f"{host} has no address: only pods of an Indexed Job are numbered"
        one.say("kube-address", "warning", at, message, "write completionMode: Indexed", DNS)
