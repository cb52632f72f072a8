"""The adapter: parameters that are part of a key or change with another one, roles on GPUs, and Ray.
No manifest: it has no words for a part of a key, for pools of roles, or for a cluster that starts first.
"""

from __future__ import annotations

from dataclasses import replace

from tuneport.compiler.adapter import DeclarativeAdapter, relative_path
from tuneport.compiler.ray_cluster import on_cluster
from tuneport.hookspec import hookimpl
from tuneport.types import Bindings, Context, Json, LaunchPlan, Origin, Ref

from tuneport_openrlhf import params, roles

FILES = ("reward.remote_url", "train.agent_func_path")
"""Keys that may name a file of the experiment. Ray's workers start in another folder than the job."""


class Adapter(DeclarativeAdapter):
    """The declarative adapter with what a manifest cannot say about these flags."""

    @hookimpl
    def bind_args(self, context: Context) -> Bindings | None:
        bound = super().bind_args(context)
        assert bound is not None
        values: dict[str, Json] = {**bound.values, **params.values(context)}
        for key in params.unused(context):
            values.pop(key, None)
        settings = {**context.own, **values}
        values |= {
            key: Ref("work_dir", f"/{name}")
            for key in FILES
            if (name := relative_path(settings.get(key))) in context.files
        }
        return Bindings(values, bound.origin)

    @hookimpl
    def topology(self, context: Context) -> Bindings | None:
        return Bindings(roles.values(context) if roles.on_ray(context) else {}, Origin("topology"))

    @hookimpl
    def launch(self, context: Context) -> LaunchPlan | None:
        plan = super().launch(context)
        assert plan is not None
        if not roles.on_ray(context):
            return plan
        (command,) = plan.commands
        return replace(plan, commands=tuple(on_cluster(context, command)))
