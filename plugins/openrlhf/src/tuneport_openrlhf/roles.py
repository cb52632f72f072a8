"""Roles on the GPUs of a Ray cluster, in the release's keys. What the user sets stays.
No manifest: it knows the first pool alone; here each role that runs has a pool, and some share it.
"""

from __future__ import annotations

from tuneport.types import Context, Json, Pool

_KEYS = {"actor": "actor", "reference": "ref", "critic": "critic", "reward": "reward"}
"""Roles of the methods and what the release calls them; `rollout` is sized by its engines."""


def on_ray(context: Context) -> bool:
    """Whether the method starts roles of its own instead of one process per GPU."""
    return "actor" in context.method.spec["roles"]


def values(context: Context) -> dict[str, Json]:
    """Nodes and GPUs of each role that runs, the engines that fit, and who shares GPUs with whom."""
    found: dict[str, Json] = {}
    for role in _running(context):
        pool = _pool(context, role)
        found[f"{_KEYS[role]}.num_nodes"] = pool.nodes
        found[f"{_KEYS[role]}.num_gpus_per_node"] = pool.gpus_per_node
    rollout, size = _pool(context, "rollout"), context.config.get("vllm.tensor_parallel_size")
    if isinstance(size, int) and size > 0:
        found["vllm.num_engines"] = rollout.nodes * rollout.gpus_per_node // size
    pools = {role: _pool(context, role).name for role in (*_running(context), "rollout")}
    if len(set(pools.values())) > 1:
        found |= dict.fromkeys(("train.colocate_all", "vllm.enable_sleep", "ds.enable_sleep"), False)
        found["train.colocate_actor_ref"] = pools["actor"] == pools.get("reference")
        found["train.colocate_critic_reward"] = "critic" in pools and pools["critic"] == pools.get("reward")
    owned = set(context.method.spec.get("topology", {}).values())
    written = {key for key, origin in context.origins.items() if origin.layer != "method defaults"}
    return {key: value for key, value in found.items() if key in owned or key not in written}


def _running(context: Context) -> list[str]:
    """The roles, beside generation, that take GPUs with these settings."""
    config, found = context.config, ["actor"]
    weight = config.get("algo.kl.init_coef")
    if isinstance(weight, int | float) and weight > 0:
        found.append("reference")
    if config.get("algo.advantage.estimator") == "gae":
        found.append("critic")
    if not config.get("reward.remote_url") and not config.get("train.agent_func_path"):
        found.append("reward")
    return found


def _pool(context: Context, role: str) -> Pool:
    """The pool of a role; the first one where the role is on none."""
    name = context.topology.roles.get(role)
    return next((one for one in context.topology.pools if one.name == name), context.topology.primary)
