"""Pools and roles in the release's keys, and what the trainer cannot do with them.
No manifest: it knows the first pool alone; here each role's pool has keys, and teachers are added up.
"""

from __future__ import annotations

from collections.abc import Iterator

from tuneport.types import Context, Finding, Json, Pool

_SHARED = ("actor", "rollout", "reference", "critic")
_ROLLOUT = "actor_rollout_ref.rollout"
_TEACHERS = "distillation.teacher_models"
_SIZES = {
    "num_replicas": 0,
    "inference.tensor_model_parallel_size": 2,
    "inference.data_parallel_size": 1,
    "inference.pipeline_model_parallel_size": 1,
}
"""What decides how many GPUs a teacher takes, with the release's defaults."""
_SHARE = "verl/workers/config/distillation.py, DistillationConfig.__post_init__"
_ALIKE = "verl/workers/config/distillation.py, DistillationConfig._resolve_teacher_models"
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
    if context.config.get("distillation.enabled") is True:
        yield from _teachers(context)
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


def _teachers(context: Context) -> Iterator[Finding]:
    """Findings about several teachers, who have to fill their pool among themselves."""
    teachers: dict[str, dict[str, Json]] = {}
    for key, value in context.config.items():
        if key.startswith(f"{_TEACHERS}."):
            name, _, field = key.removeprefix(f"{_TEACHERS}.").partition(".")
            if name != "teacher_model":
                teachers.setdefault(name, {}).update(_flat(field, value))
    if not teachers:
        return
    nodes, each = (
        context.config.get("distillation.nnodes"),
        context.config.get("distillation.n_gpus_per_node"),
    )
    if not isinstance(nodes, int) or not isinstance(each, int):
        return
    shares = {name: _gpus(fields) for name, fields in teachers.items()}
    used = sum(shares.values())
    if used != nodes * each:
        sums = " + ".join(f"{name} {share}" for name, share in sorted(shares.items()))
        message = f"the teachers take {sums} = {used} GPUs and have {nodes} x {each}"
        hint = "make num_replicas x inference.tensor_model_parallel_size of each add up to the pool"
        yield Finding("verl-teachers-share", "error", message, hint, _TEACHERS, source=_SHARE)
    named = [fields["key"] for fields in teachers.values() if fields.get("key") is not None]
    twice = sorted({str(key) for key in named if named.count(key) > 1})
    if twice:
        message = f"two teachers have the key {', '.join(twice)}, so data cannot tell them apart"
        yield Finding(
            "verl-teachers-alike", "error", message, "give each a key of its own", _TEACHERS, source=_ALIKE
        )


def _gpus(fields: dict[str, Json]) -> int:
    """How many GPUs a teacher takes: its copies times what one copy is spread over."""
    count = 1
    for name, default in _SIZES.items():
        size = fields.get(name, default)
        count *= size if isinstance(size, int) else 0
    return count


def _flat(prefix: str, value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        return {prefix: value}
    found: dict[str, Json] = {}
    for name, item in value.items():
        found.update(_flat(f"{prefix}.{name}" if prefix else name, item))
    return found
