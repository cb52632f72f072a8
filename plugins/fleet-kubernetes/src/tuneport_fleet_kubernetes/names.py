"""Names, labels and texts that Kubernetes takes, made of what a job is called."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping

JOB, ROLE, NODES, KEY = "tuneport.io/job", "tuneport.io/role", "tuneport.io/nodes", "tuneport.io/key"
"""Labels of every object of a job: its name; on pods the role, and how many nodes have it. The key itself is
an annotation."""
ROOT = "/mnt/tuneport"
"""Where a job's folders are in its containers."""
FILES, WORK, STORAGE = f"{ROOT}/files", f"{ROOT}/work", f"{ROOT}/storage"
RANK, HEAD = "TUNEPORT_CLUSTER_NODE_RANK", "TUNEPORT_CLUSTER_HEAD_ADDR"
PORT = "29500"
"""Pods have an address of their own, so every job can use the same one."""
_LONGEST = 32  # with a role of 20 and their numbers, the pods of a JobSet have names of 63 at most
_LINE = 7500
"""Characters of names in a call: its first line stays below the 8 kB that a proxy before the API takes."""


def name_of(key: str) -> str:
    """The name of a submission's objects: its key where that is a DNS label, else one like it, and unique."""
    if re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", key) and len(key) <= _LONGEST:
        return key
    return f"{slug(key)[: _LONGEST - 9].rstrip('-')}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def fitting(names: Iterable[str]) -> Iterator[list[str]]:
    """The names, as many at a time as one call can ask about."""
    some: list[str] = []
    length = 0
    for name in names:
        wide = len(name) + len("%2C")
        if length + wide > _LINE:
            yield some
            some, length = [], 0
        some.append(name)
        length += wide
    if some:
        yield some


def slug(text: str) -> str:
    """A DNS label like the text."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return plain if plain[:1].isalpha() else f"j-{plain}".rstrip("-")


def labels(name: str, more: Mapping[str, str]) -> dict[str, str]:
    return {**more, "app.kubernetes.io/managed-by": "tuneport", JOB: name}
