"""What a manifest cannot say about a custom job: the names under which its script finds model and data.
No manifest: its environment dialect has one prefix for all keys, and these names have another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tuneport.compiler.adapter import DeclarativeAdapter
from tuneport.hookspec import hookimpl
from tuneport.types import Context, LaunchPlan, Value

_GIVEN, _WANTED = "CONFIG_TUNEPORT__", "TUNEPORT_"


class Adapter(DeclarativeAdapter):
    """`custom/custom`: `sh train.sh` with config.yaml as environment variables."""

    @hookimpl
    def launch(self, context: Context) -> LaunchPlan | None:
        """The declared launch, with model and data under the names that every evaluation script knows too:
        TUNEPORT_MODEL, TUNEPORT_TRAIN_DATA, TUNEPORT_VALIDATION_DATA."""
        plan = super().launch(context)
        if plan is None:
            return None
        commands = tuple(replace(command, env=_renamed(command.env)) for command in plan.commands)
        return replace(plan, commands=commands)


def _renamed(env: Mapping[str, Value]) -> dict[str, Value]:
    return {
        _WANTED + name.removeprefix(_GIVEN) if name.startswith(_GIVEN) else name: value
        for name, value in env.items()
    }
