"""One command inside a Ray cluster that is made of the job's own nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from tuneport.types import Command, Context, FileSpec, LaunchPlan, Ref, Value

SCRIPT = "tuneport-cluster.py"


def on_cluster(context: Context, command: Command) -> Iterator[Command]:
    """The command as it is on one node; on several, or with a pool beside it, inside a Ray cluster."""
    used = {command.pool, *context.topology.roles.values()}
    beside = [pool for pool in context.topology.pools if pool.name in used]
    nodes = sum(pool.nodes for pool in beside)
    if nodes <= 1:
        yield command
        return
    words: tuple[Value, ...] = (Ref("python"), SCRIPT, str(nodes), Ref("node_rank"), Ref("head_addr"))
    words = (*words, Ref("head_port"), "--", *command.argv[1:])
    files = {**command.files, SCRIPT: FileSpec("text", _script())}
    yield replace(command, argv=words, files=files)
    for pool in beside:
        if pool.name != command.pool:
            role = next(role for role, name in context.topology.roles.items() if name == pool.name)
            yield replace(command, role=role, argv=words, files=files, pool=pool.name)


def works_on_ray(plan: LaunchPlan) -> bool:
    """Whether the plan's program uses a Ray cluster by itself: several nodes show it by the script that would
    make one, a single node by what its framework's manifest says."""
    if any(SCRIPT in command.files for command in plan.commands):
        return True
    from tuneport.errors import TuneportError
    from tuneport.registry import catalog

    framework, _, method = plan.method.partition("/")
    try:
        return plan.action == "train" and method in catalog.framework_spec(framework).get("ray", ())
    except TuneportError:
        return False


@cache
def _script() -> str:
    """What runs inside the job, shipped as text."""
    from importlib.resources import files as package_files

    return package_files("tuneport.compiler").joinpath("ray_cluster_script.py").read_text("utf-8")
