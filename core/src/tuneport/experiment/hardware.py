"""Pools and roles from `--profile`, `--resources` or job.yaml."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from tuneport.types import Finding, Json, Method, Pool, Topology

NODE_GPUS = 8
"""Accelerators of a node where the fleet declares no shape."""

_PART = re.compile(r"(?:([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)=)?([a-z][a-z0-9.-]*):([0-9]{1,6})\Z")


def from_profile(text: str, node_gpus: int | Callable[[str], int]) -> tuple[Topology | None, list[Finding]]:
    """`series:total` as one pool, or `name=series:total,…` as several: whole nodes, or part of one.

    Args:
        node_gpus: the accelerators of a node, or what says them for a series; 0 for a node of any size.
            `cpu:N` is N processes, on one node unless `node_gpus` says how many a node has.
    """

    def refuse(message: str, hint: str = "") -> tuple[None, list[Finding]]:
        hint = hint or "write series:GPUs, for example --profile h200:8, or cpu:2 for two processes"
        return None, [Finding("profile-form", "error", message, hint, "--profile")]

    parts = text.split(",")
    pools: list[Pool] = []
    for part in parts:
        match = _PART.match(part)
        if match is None or (len(parts) > 1 and match[1] is None):
            several = "write name=series:GPUs for each pool, for example actor=h200:8,teacher=h200:8"
            form = "name=series:GPUs" if len(parts) > 1 else "series:GPUs"
            return refuse(f"the profile {part!r} is not {form}", several if len(parts) > 1 else "")
        name, series, total = match[1] or "main", match[2], int(match[3])
        if total < 1:
            return refuse(f"the profile {part!r} asks for nothing")
        size = node_gpus(series) if callable(node_gpus) else (0 if series == "cpu" else node_gpus)
        if size and total > size and total % size:
            down = total - total % size
            message = f"the profile {part!r} is not a whole number of nodes of {size}"
            hint = f"the nodes of a pool are alike: ask for {series}:{down} or {series}:{down + size}"
            return refuse(message, hint)
        nodes = total // size if size and total > size else 1
        pools.append(Pool(name, series, nodes, total // nodes))
    return Topology(tuple(pools)), []


def roles_by_name(topology: Topology, method: Method) -> Topology:
    """The topology with each role on the pool that is named like it, or like the only role that begins so;
    the other roles are on the first pool. Unchanged where some further pool is named like no role."""
    roles: Sequence[str] = method.spec.get("roles", ["main"])
    placed: dict[str, str] = {}
    for pool in topology.pools:
        like = [role for role in roles if role == pool.name] or [r for r in roles if r.startswith(pool.name)]
        if len(like) == 1:
            placed[like[0]] = pool.name
        elif pool is not topology.primary:
            return topology
    return Topology(topology.pools, {role: placed.get(role, topology.primary.name) for role in roles})


def from_resources(resources: Mapping[str, Json]) -> Topology:
    """Pools and roles of a schema-checked mapping; a `spec.resources` wrapper is accepted."""
    body = resources.get("spec", {}).get("resources", resources)
    pools = tuple(
        Pool(str(pool["name"]), str(pool["series"]), int(pool["nodes"]), int(pool["gpus_per_node"]))
        for pool in body.get("pools", ())
    )
    return Topology(pools, dict(body.get("roles", {})))


def with_roles(topology: Topology, method: Method) -> tuple[Topology, list[Finding]]:
    """The topology with every role of the method on a pool, and what is wrong with the request."""
    roles: Sequence[str] = method.spec.get("roles", ["main"])
    findings = list(_check(topology, method, roles))
    filled = dict(topology.roles)
    if len(topology.pools) == 1:
        filled = {role: filled.get(role, topology.primary.name) for role in roles}
    return Topology(topology.pools, filled), findings


def _check(topology: Topology, method: Method, roles: Sequence[str]) -> Iterator[Finding]:
    names = [pool.name for pool in topology.pools]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Finding("pool-duplicate", "error", f"two pools are called {name!r}", "rename one", "pools")
    for role, pool in topology.roles.items():
        if role not in roles:
            hint = f"its roles are {', '.join(roles)}"
            yield Finding("role-unknown", "error", f"{method.id} has no role {role!r}", hint, f"roles.{role}")
        elif pool not in names:
            hint = f"the pools are {', '.join(names)}"
            message = f"role {role!r} is on pool {pool!r}, which is not declared"
            yield Finding("pool-unknown", "error", message, hint, f"roles.{role}")
    missing = [role for role in roles if role not in topology.roles]
    if len(topology.pools) > 1 and missing:
        message = f"{len(topology.pools)} pools and no pool named for {', '.join(missing)}"
        yield Finding(
            "roles-missing", "error", message, f"map each role to one of {', '.join(names)}", "roles"
        )
