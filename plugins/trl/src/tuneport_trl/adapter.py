"""The adapter: what TRL needs beyond the manifest.
No manifest: data is a folder written with the job, one parameter is several keys, and an export a program.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.resources import files as package_files

from tuneport.compiler.adapter import DeclarativeAdapter, location_value, script_plan
from tuneport.hookspec import hookimpl
from tuneport.types import Bindings, Context, Finding, LaunchPlan, Location, Origin, Pool

from tuneport_trl import data, params, rewards, steps

EXPORTER = "tuneport-export.py"


class Adapter(DeclarativeAdapter):
    """The declarative adapter, with data files, two-key parameters, rewards, processors and an exporter."""

    @hookimpl
    def validate(self, context: Context) -> Iterable[Finding]:
        yield from data.check(context)
        yield from rewards.check(context)
        yield from steps.check(context)
        if judged(context):
            from tuneport_judge import compiled

            yield from compiled.check(context)

    @hookimpl
    def bind_args(self, context: Context) -> Bindings | None:
        bound = super().bind_args(context)
        assert bound is not None
        values = {key: value for key, value in bound.values.items() if key not in params.OURS}
        values.update(params.values(context))
        name = data.dataset_name(context)
        if name is not None:
            values["dataset_name"] = name
        return Bindings(values, bound.origin)

    @hookimpl
    def topology(self, context: Context) -> Bindings | None:
        cpu = context.topology.primary.series == "cpu"
        return Bindings({"use_cpu": True} if cpu else {}, Origin("topology"))

    @hookimpl
    def launch(self, context: Context) -> LaunchPlan | None:
        plan = super().launch(context)
        assert plan is not None
        (command,) = plan.commands
        files = {**command.files, **data.files(context)}
        env = {**_environment(context.topology.primary), **command.env}
        plan = replace(plan, commands=(replace(command, files=files, env=env),))
        if not judged(context):
            return plan
        from tuneport_judge import compiled

        return compiled.attached(context, plan)

    @hookimpl
    def export(self, context: Context, checkpoint: Location, format: str) -> LaunchPlan | None:  # noqa: A002
        if format not in context.method.spec["lifecycle"]["export"]["formats"]:
            return super().export(context, checkpoint, format)
        env = {"TUNEPORT_CHECKPOINT": location_value(checkpoint)}
        if context.request.model is not None:
            env["TUNEPORT_MODEL"] = location_value(context.request.model)
        if context.config.get("trust_remote_code"):
            env["TUNEPORT_TRUST_REMOTE_CODE"] = "1"
        return script_plan(context, EXPORTER, _exporter(), env, "export")


def judged(context: Context) -> bool:
    """Whether the method's reward is the judge. It is imported only then."""
    return "judge" in context.method.spec.get("sections", {})


def _environment(pool: Pool) -> dict[str, str]:
    """Where processes on processors talk through gloo, torch 2.13 can wait for itself for ever while a script
    that ends frees its group. With this variable Accelerate leaves the group to the end of the process."""
    several = pool.series == "cpu" and pool.nodes * pool.gpus_per_node > 1
    return {"FORK_LAUNCHED": "1"} if several else {}


@cache
def _exporter() -> str:
    """The script that runs inside the job: part of this package, shipped as text."""
    return package_files("tuneport_trl").joinpath("export_script.py").read_text("utf-8")
