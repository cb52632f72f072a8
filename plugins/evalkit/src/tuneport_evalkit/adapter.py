"""The adapter: a harness inside a script that finds the model and reads what the harness wrote.
No manifest: the command is turned around a script of ours, and one parameter is spread over several tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.resources import files as package_files

from tuneport.compiler.adapter import DeclarativeAdapter, launcher, location_value
from tuneport.hookspec import hookimpl
from tuneport.types import Bindings, Context, FileSpec, Finding, Json, LaunchPlan, Origin, Value
from tuneport_judge import compiled as judge

from tuneport_evalkit import tasks

SCRIPT = "tuneport-evalkit.py"
MODEL = {"lm_eval": "model_args.pretrained", "evalscope.cli.cli": "model"}
"""Entry point -> the key that names the model."""
_SUBCOMMAND = {"lm_eval": "run", "evalscope.cli.cli": "eval"}
_TRANSFORMERS = ("hf", "hf-auto", "huggingface")


class Adapter(DeclarativeAdapter):
    """The declarative adapter with tasks, devices, the judge and the script around the harness."""

    @hookimpl
    def validate(self, context: Context) -> Iterable[Finding]:
        yield from tasks.check(context)
        if not context.linted:  # a command has no judge of ours, and the name may be the harness's own
            yield from judge.check(context)

    @hookimpl
    def bind_args(self, context: Context) -> Bindings | None:
        bound = super().bind_args(context)
        assert bound is not None
        values = dict(bound.values)
        if _entry(context) == "evalscope.cli.cli" and "few_shot" in context.request.params:
            values["dataset_args"] = _spread(context, {**context.own, **values})
        return Bindings(values, bound.origin)

    @hookimpl
    def topology(self, context: Context) -> Bindings | None:
        values: dict[str, Json] = {}
        if context.topology.primary.series == "cpu":
            if _entry(context) == "lm_eval" and "device" not in context.own:
                values["device"] = "cpu"
            elif _entry(context) == "evalscope.cli.cli" and not _has(context, "model_args", "device_map"):
                values["model_args.device_map"] = "cpu"
        return Bindings(values, Origin("topology"))

    @hookimpl
    def launch(self, context: Context) -> LaunchPlan | None:
        entry = _entry(context)
        own = {key: value for key, value in context.own.items() if key != MODEL[entry]}
        plan = super().launch(context._replace(own=own))
        assert plan is not None
        (command,) = plan.commands
        python, script, *flags = command.argv
        # One copy of the model on each device, where Transformers computes: Accelerate reads torchrun's
        # variables.
        words = _processes(context) if entry == "lm_eval" else ["-m"]
        argv = (python, script, _model(context), "--", *words, entry, _SUBCOMMAND[entry], *flags)
        shipped = {**command.files, SCRIPT: FileSpec("text", _script())}
        made = replace(plan, commands=(replace(command, argv=argv, files=shipped),), config=_config(context))
        return judge.attached(context, made)


def _entry(context: Context) -> str:
    return str(context.method.spec["entry"])


def _config(context: Context) -> dict[str, Json]:
    return {name: context.own[name] for name in sorted(context.own)}


def _model(context: Context) -> Value:
    return location_value(context.request.model) if context.request.model is not None else ""


def _processes(context: Context) -> list[Value]:
    pool, config = context.topology.primary, context.config
    alone = pool.series == "cpu" or pool.nodes * pool.gpus_per_node == 1
    if alone or config.get("model") not in _TRANSFORMERS or _has(context, "model_args", "parallelize"):
        return ["-m"]
    spec = {**context.method.spec, "launch": {"launcher": "torchrun", "run": {"module": "lm_eval"}}}
    _, *words = launcher(context._replace(method=context.method._replace(spec=spec)))
    return [*words, "-m"]


def _has(context: Context, key: str, name: str) -> bool:
    """Whether a mapping says something under a name."""
    inside = context.own.get(key)
    return f"{key}.{name}" in context.own or (isinstance(inside, dict) and bool(inside.get(name)))


def _spread(context: Context, own: dict[str, Json]) -> Json:
    """The worked examples of each task that does not say its own number."""
    count = context.request.params["few_shot"]
    given = context.own.get("dataset_args")
    given = given if isinstance(given, dict) else {}
    names = own.get("datasets")
    listed = [names] if isinstance(names, str) else names if isinstance(names, list) else []
    return {**given, **{name: {"few_shot_num": count, **given.get(name, {})} for name in listed}}


@cache
def _script() -> str:
    """What runs inside the job: part of this package, shipped as text."""
    return package_files("tuneport_evalkit").joinpath("run_script.py").read_text("utf-8")
