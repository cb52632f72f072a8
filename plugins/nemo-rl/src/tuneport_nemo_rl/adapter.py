"""The adapter: keys that depend on the engine, data, the folder that programs run in, and Ray.
No manifest: the command is turned around a program of ours, files get full paths, and Ray starts first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.resources import files as package_files

from tuneport.compiler.adapter import DeclarativeAdapter, location_value, relative_path, script_plan
from tuneport.compiler.ray_cluster import on_cluster
from tuneport.hookspec import hookimpl
from tuneport.types import (
    Bindings,
    Context,
    FileSpec,
    Finding,
    LaunchPlan,
    Location,
    Ref,
    Value,
)

from tuneport_nemo_rl import data, params, sizes

MAIN = "main.py"
RUNNER = "tuneport-run.py"
EXPORTER = "tuneport-export.py"


class Adapter(DeclarativeAdapter):
    """The declarative adapter with what a manifest cannot say about this release."""

    @hookimpl
    def validate(self, context: Context) -> Iterable[Finding]:
        yield from super().validate(context)
        yield from data.check(context)
        yield from sizes.check(context)

    @hookimpl
    def bind_args(self, context: Context) -> Bindings | None:
        bound = super().bind_args(context)
        assert bound is not None
        values = {**bound.values, **params.values(context), **data.values(context)}
        settings = {**context.own, **values}
        # The program runs in the release's own folder, so a file of the experiment needs its full path.
        values |= {
            key: Ref("work_dir", f"/{name}")
            for key, value in settings.items()
            if (name := relative_path(value)) in context.files and name
        }
        return Bindings(values, bound.origin)

    def case(self, context: Context) -> str:
        return params.engine(context)

    @hookimpl
    def launch(self, context: Context) -> LaunchPlan | None:
        plan = super().launch(context)
        assert plan is not None
        (command,) = plan.commands
        program, *rest = (word for word in command.argv if word != Ref("python"))
        entry = context.request.native.get("entry")
        program = f"{entry.replace('.', '/')}.py" if entry else program
        if MAIN in context.files or program == MAIN:
            program = Ref("work_dir", f"/{MAIN}")
        files = {**command.files, RUNNER: FileSpec("text", _script("run_script.py"))}
        command = replace(command, argv=(Ref("python"), RUNNER, program, *rest), files=files)
        return replace(plan, commands=tuple(on_cluster(context, command)))

    @hookimpl
    def export(self, context: Context, checkpoint: Location, format: str) -> LaunchPlan | None:  # noqa: A002
        if format not in context.method.spec["lifecycle"]["export"]["formats"]:
            return super().export(context, checkpoint, format)
        env: dict[str, Value] = {
            "TUNEPORT_CHECKPOINT": location_value(checkpoint),
            "TUNEPORT_BACKEND": params.engine(context),
        }
        return script_plan(context, EXPORTER, _script("export_script.py"), env, "export")


@cache
def _script(name: str) -> str:
    """A script that runs inside the job: part of this package, shipped as text."""
    return package_files("tuneport_nemo_rl").joinpath(name).read_text("utf-8")
