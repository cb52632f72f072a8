"""Pools and roles in the release's keys, and what the trainer cannot do with them."""

from __future__ import annotations

from collections.abc import Iterator

from tuneport.types import Context, Finding, Json, Pool

_SHARED = ("actor", "rollout", "reference", "critic")
_ROLLOUT = "actor_rollout_ref.rollout"
_TEACHER = "verl/trainer/ppo/v1/trainer_base.py, PPOTrainer._init_resource_pool_mgr"


def pool(context: Context, role: str) -> Pool:
    """The pool of a role; the first one where the role is on none."""
    name = context.topology.roles.get(role)
    found = (one for one in context.topology.pools if one.name == name)
    return next(found, context.topology.primary)


def values(context: Context) -> dict[str, Json]:
    """Native keys for every role: the trainer's, those of a teacher, those of generation on its own."""
    actor = pool(context, context.method.spec["roles"][0])
    found: dict[str, Json] = {"trainer.nnodes": actor.nodes, "trainer.n_gpus_per_node": actor.gpus_per_node}
    if "teacher" in context.method.spec["roles"]:
        teacher = pool(context, "teacher")
        found["distillation.nnodes"] = teacher.nodes
        found["distillation.n_gpus_per_node"] = teacher.gpus_per_node
    if "rollout" in context.method.spec["roles"] and pool(context, "rollout") != actor:
        rollout = pool(context, "rollout")
        found[f"{_ROLLOUT}.nnodes"] = rollout.nodes
        found[f"{_ROLLOUT}.n_gpus_per_node"] = rollout.gpus_per_node
    return found


def check(context: Context) -> Iterator[Finding]:
    """Findings about roles that share a pool and must not, or the other way round."""
    if not context.topology.pools or context.linted:
        return
    roles = context.topology.roles
    if "teacher" in context.method.spec["roles"] and roles.get("teacher") == roles.get("actor"):
        message = "the teacher needs a pool of its own: its servers stand beside the trainer, not on its GPUs"
        hint = "give --resources with two pools and roles {actor: A, rollout: A, teacher: B}"
        yield Finding("verl-teacher-pool", "error", message, hint, "resources.roles", source=_TEACHER)
    mode = context.config.get("trainer.v1.trainer_mode")
    apart = len({roles.get(role) for role in _SHARED if role in roles}) > 1
    if apart and mode != "separate_async":
        message = "all roles of the trainer share its GPUs in this mode, so they belong on one pool"
        hint = "map them to one pool; separate_async alone generates on GPUs of its own"
        yield Finding("verl-roles-apart", "error", message, hint, "resources.roles")
