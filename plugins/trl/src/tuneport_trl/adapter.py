"""The adapter: what TRL needs beyond the manifest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files as package_files

from tuneport.compiler.adapter import DeclarativeAdapter, location_value, script_plan
from tuneport.hookspec import hookimpl
from tuneport.types import Bindings, Context, Finding, Json, LaunchPlan, Location, Origin, Pool

from tuneport_trl import data, steps

EXPORTER = "tuneport-export.py"
# Keys that the declarative adapter would fill wrongly: they are written here instead.
_OURS = ("validation_data", "bf16", "fp16", "save_strategy", "save_steps", "eval_strategy", "eval_steps")


class Adapter(DeclarativeAdapter):
    """The declarative adapter, with data files, two-key parameters, processors and an exporter."""

    @hookimpl
    def validate(self, context: Context) -> Iterable[Finding]:
        params = context.request.params
        if "warmup_steps" in params and "warmup_ratio" in params:
            message = "warmup_steps and warmup_ratio are the same native key, and both are set"
            yield Finding("trl-warmup-twice", "error", message, "keep one", "warmup_ratio")
        yield from data.check(context)
        yield from steps.check(context)

    @hookimpl
    def bind_args(self, context: Context) -> Bindings | None:
        bound = super().bind_args(context)
        assert bound is not None
        values = {key: value for key, value in bound.values.items() if key not in _OURS}
        values.update(_parameters(context.request.params))
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
        return replace(plan, commands=(replace(command, files=files, env=env),))

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


def _environment(pool: Pool) -> dict[str, str]:
    """Where processes on processors talk through gloo, torch 2.13 can wait for itself for ever while a script
    that ends frees its group. With this variable Accelerate leaves the group to the end of the process."""
    several = pool.series == "cpu" and pool.nodes * pool.gpus_per_node > 1
    return {"FORK_LAUNCHED": "1"} if several else {}


def _parameters(params: Mapping[str, Json]) -> dict[str, Json]:
    """Native values of the parameters that are more than one key, or another shape."""
    values: dict[str, Json] = {}
    if "mixed_precision" in params:
        values |= {key: params["mixed_precision"] == key for key in ("bf16", "fp16")}
    for name, strategy, interval in (
        ("save_every", "save_strategy", "save_steps"),
        ("eval_every", "eval_strategy", "eval_steps"),
    ):
        if name in params:
            values[strategy] = "steps" if params[name] else "no"
            if params[name]:
                values[interval] = params[name]
    if "lora_targets" in params:
        values["lora_target_modules"] = _targets(params["lora_targets"])
    return values


def _targets(given: str | list[str]) -> list[str]:
    """Names as PEFT means them. TRL hands on a single one as a pattern for whole module names, so a name
    becomes the pattern that means the same as it does in a list."""
    names = [given] if isinstance(given, str) else given
    if len(names) == 1 and names[0] != "all-linear" and re.fullmatch(r"[\w.]+", names[0]):
        return [rf"(.*\.)?{re.escape(names[0])}"]
    return names


@cache
def _exporter() -> str:
    """The script that runs inside the job: part of this package, shipped as text."""
    return package_files("tuneport_trl").joinpath("export_script.py").read_text("utf-8")
