"""Launches training scripts under torchrun as their manifest says; what is particular is the export.
No manifest: an export is a program of its own, and a manifest names formats alone.
"""

from __future__ import annotations

from pathlib import Path

from tuneport.compiler.adapter import DeclarativeAdapter, location_value, script_plan
from tuneport.errors import Invalid
from tuneport.hookspec import hookimpl
from tuneport.types import Context, LaunchPlan, Location

# Read once, when the plugin is imported: hooks do no I/O.
_EXPORT = Path(__file__).with_name("export_safetensors.py").read_text("utf-8")


class Adapter(DeclarativeAdapter):
    """`pytorch/*`: the experiment's own script, one process per device."""

    @hookimpl
    def export(self, context: Context, checkpoint: Location, format: str) -> LaunchPlan | None:  # noqa: A002
        """A job that writes `model.safetensors` and `config.json` from a checkpoint of `torch.save`.

        Raises:
            Invalid: the format is not `safetensors`.
        """
        if format != "safetensors":
            raise Invalid(
                f"{context.method.id} has no exporter for {format!r}",
                code="export-unsupported",
                hint="formats of this method: safetensors",
            )
        env = {"TUNEPORT_CHECKPOINT": location_value(checkpoint)}
        return script_plan(context, "export_safetensors.py", _EXPORT, env, "export")
