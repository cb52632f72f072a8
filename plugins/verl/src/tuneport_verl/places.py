"""Files of the experiment that a configuration names.
No manifest: a key there has a value, and not a place that is known once the job has a folder.

Workers may start in another folder than the job, so a file of the experiment is named by its full place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuneport.compiler.adapter import relative_path
from tuneport.types import Context, Finding, Json, Ref

FILES = (
    "reward.custom_reward_function.path",
    "reward.reward_manager.module.path",
    "actor_rollout_ref.rollout.multi_turn.tool_config_path",
    "actor_rollout_ref.rollout.multi_turn.function_tool_path",
    "actor_rollout_ref.rollout.agent.agent_loop_config_path",
    "actor_rollout_ref.rollout.agent.custom_async_server.path",
    "trainer.v1.sampler.custom_sampler.path",
    "data.custom_cls.path",
)
_SOURCE = "verl/utils/import_utils.py, load_module"


def files(context: Context, bound: Mapping[str, Json]) -> dict[str, Json]:
    """Key -> the place of the experiment's file that it names."""
    settings = {**context.own, **bound}
    return {
        key: Ref("work_dir", f"/{name}")
        for key in FILES
        if (name := relative_path(settings.get(key))) in context.files
    }


def check(context: Context) -> Iterator[Finding]:
    """Findings for files that a configuration names and the experiment does not have."""
    for key in FILES:
        name = relative_path(context.own.get(key))
        if name and context.files and name not in context.files and _is_ours(context, key):
            origin = context.origins[key]
            message = f"the experiment has no {context.own[key]}, which `{key}` names"
            hint = "write it, or name a file by its full path on the machines that run"
            yield Finding("verl-file-missing", "error", message, hint, key, origin.file, origin.line, _SOURCE)


def _is_ours(context: Context, key: str) -> bool:
    """Whether the experiment folder is what a relative path starts from: yes where a person wrote the key."""
    return context.origins[key].layer in ("config.yaml", "job.yaml", "--set")
