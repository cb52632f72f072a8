"""Pools and roles from `--profile`, `--resources` or job.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tuneport.types import Finding, Json, Method, Pool, Topology

NODE_GPUS = 8
"""Accelerators of a node where the fleet declares no shape."""

_PROFILE = re.compile(r"([a-z][a-z0-9.-]*):([0-9]{1,6})\Z")


def from_profile(text: str, node_gpus: int) -> tuple[Topology | None, list[Finding]]:
    """`series:total` as one pool: whole nodes of `node_gpus`, or part of one. `cpu:N` is N processes."""

    def refuse(message: str) -> tuple[None, list[Finding]]:
        hint = "write series:GPUs, for example --profile h200:8, or cpu:2 for two processes"
        return None, [Finding("profile-form", "error", message, hint, "--profile")]

    match = _PROFILE.match(text)
    if match is None:
        return refuse(f"the profile {text!r} is not series:GPUs")
    series, total = match[1], int(match[2])
    if total < 1:
        return refuse(f"the profile {text!r} asks for nothing")
    if series == "cpu" or total <= node_gpus:
        return Topology((Pool("main", series, 1, total),)), []
    if total % node_gpus:
        return refuse(f"the profile {text!r} is not a whole number of nodes of {node_gpus}")
    return Topology((Pool("main", series, total // node_gpus, node_gpus),)), []


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
