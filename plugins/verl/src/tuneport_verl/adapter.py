"""The adapter: what verl needs beyond the manifest.
No manifest: keys depend on the engine and on pools of roles, Ray comes first, and an export is a program.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from tuneport.compiler.adapter import DeclarativeAdapter, location_value, script_plan
from tuneport.compiler.ray_cluster import on_cluster
from tuneport.hookspec import hookimpl
from tuneport.types import (
    Bindings,
    Context,
    Finding,
    LaunchPlan,
    Location,
    Origin,
    Value,
)

from tuneport_verl import correction, memory, params, places, pools, reward, steps, versions

MAIN = "main.py"
EXPORTER = "tuneport-export.py"


class Adapter(DeclarativeAdapter):
    """The declarative adapter, with engines, reward functions, teacher pools, Ray and an exporter."""

    @hookimpl
    def validate(self, context: Context) -> Iterable[Finding]:
        yield from super().validate(context)
        yield from pools.check(context)
        yield from places.check(context)
        yield from steps.check(context)
        yield from versions.check(context)
        yield from memory.check(context)
        if _is_rl(context):
            yield from correction.check(context)
            yield from reward.check(context)
            yield from _visible(context)
            yield from _gone(context)

    @hookimpl
    def bind_args(self, context: Context) -> Bindings | None:
        bound = super().bind_args(context)
        assert bound is not None
        values = {**bound.values, **params.values(context)}
        model, has_critic = context.request.model, "critic_learning_rate" in context.method.params
        if has_critic and model is not None and "critic.model.path" not in context.own:
            values["critic.model.path"] = location_value(model)
        values.update(places.files(context, values))
        return Bindings(values, bound.origin)

    @hookimpl
    def topology(self, context: Context) -> Bindings | None:
        return Bindings(pools.values(context), Origin("topology"))

    @hookimpl
    def launch(self, context: Context) -> LaunchPlan | None:
        plan = super().launch(context)
        assert plan is not None
        if not _is_rl(context):
            return plan
        (command,) = plan.commands
        command = replace(command, argv=_program(context, command.argv))
        return replace(plan, commands=tuple(on_cluster(context, command)))

    @hookimpl
    def export(self, context: Context, checkpoint: Location, format: str) -> LaunchPlan | None:  # noqa: A002
        if format not in context.method.spec["lifecycle"]["export"]["formats"]:
            return super().export(context, checkpoint, format)
        env: dict[str, Value] = {
            "TUNEPORT_CHECKPOINT": location_value(checkpoint),
            "TUNEPORT_BACKEND": format.removeprefix("verl-"),
        }
        trusted = ("actor_rollout_ref.model.trust_remote_code", "model.trust_remote_code")
        if any(context.config.get(key) for key in trusted):
            env["TUNEPORT_TRUST_REMOTE_CODE"] = "1"
        return script_plan(context, EXPORTER, _script("export_script.py"), env, "export")


def _is_rl(context: Context) -> bool:
    return "actor_rollout_ref.model.path" in context.release.keys


def _program(context: Context, argv: tuple[Value, ...]) -> tuple[Value, ...]:
    """The command with the experiment's own entry point where it has one."""
    if MAIN not in context.files:
        return argv
    position = argv.index("-m")
    return (*argv[:position], MAIN, *argv[position + 2 :])


def _visible(context: Context) -> Iterable[Finding]:
    """An error where the environment shows fewer devices than the trainer asks for."""
    shown = {**context.facts.get("env", {}), **context.request.env}.get("CUDA_VISIBLE_DEVICES")
    wanted = context.config.get("trainer.n_gpus_per_node")
    if not isinstance(shown, str) or not isinstance(wanted, int):
        return
    count = len([part for part in shown.split(",") if part.strip()])
    if count < wanted:
        message = f"CUDA_VISIBLE_DEVICES shows {count} devices and the trainer asks for {wanted} on each node"
        source = "verl/single_controller/ray/base.py, ResourcePoolManager._check_resource_available"
        hint = "show as many devices, or ask for fewer"
        key = "trainer.n_gpus_per_node"
        yield Finding("verl-devices-visible", "error", message, hint, key, source=source)


_READ = (
    "trainer.nnodes",
    "trainer.n_gpus_per_node",
    "data.train_batch_size",
    "actor_rollout_ref.model.path",
    "actor_rollout_ref.actor.strategy",
    "actor_rollout_ref.rollout.n",
)
"""Keys that the trainer reads whatever else is set: one of each section."""


def _gone(context: Context) -> Iterable[Finding]:
    """An error for a key that was deleted with its section or alone, or has something else in its place."""
    for key in _READ:
        section = key.rpartition(".")[0]
        replaced = section in context.own and not isinstance(context.own[section], dict)
        if key in context.release.keys and (replaced or key not in context.config):
            message = f"`{key}`, which the trainer reads, is deleted, or its section is deleted or replaced"
            hint = "take the deletion out, and set the keys of the section one by one"
            source = "verl/utils/config.py, validate_config"
            yield Finding("verl-section-gone", "error", message, hint, key, source=source)


@cache
def _script(name: str) -> str:
    """A script that runs inside the job: part of this package, shipped as text."""
    from importlib.resources import files as package_files

    return package_files("tuneport_verl").joinpath(name).read_text("utf-8")
