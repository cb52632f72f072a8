"""What a manifest cannot say about ms-swift: how it starts its processes, and that it takes mappings as text.

From ms-swift 4.6.0: swift/cli/main.py, get_torchrun_args, and swift/utils/utils.py, json_parse_to_dict.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tuneport.compiler.adapter import DeclarativeAdapter
from tuneport.hookspec import hookimpl
from tuneport.types import Context, Finding, LaunchPlan, Ref, Value


class Adapter(DeclarativeAdapter):
    @hookimpl
    def validate(self, context: Context) -> Iterable[Finding]:
        yield from _reward_files(context)

    @hookimpl
    def launch(self, context: Context) -> LaunchPlan | None:
        said = {name: _text(value) for name, value in context.own.items()}
        plan = super().launch(context._replace(own=said))
        assert plan is not None
        (command,) = plan.commands
        env = {**_processes(context), **command.env}
        config = {name: context.own[name] for name in sorted(context.own)}
        return replace(plan, commands=(replace(command, env=env),), config=config)


def _text(value: object) -> object:
    """A mapping as the JSON text that the release reads back; anything else as it is."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True) if isinstance(value, Mapping) else value


def _processes(context: Context) -> dict[str, Value]:
    """What the release hands on to `torch.distributed.run`. Both ends are told always: its own default port
    is the same for every job of a machine."""
    pool = context.topology.primary
    return {
        "NPROC_PER_NODE": str(pool.gpus_per_node),
        "NNODES": str(pool.nodes),
        "NODE_RANK": Ref("node_rank"),
        "MASTER_ADDR": Ref("head_addr"),
        "MASTER_PORT": Ref("head_port"),
    }


def _reward_files(context: Context) -> Iterable[Finding]:
    """Names in `external_plugins` that look like files of the experiment have to be there."""
    named = context.own.get("external_plugins")
    for name in named if isinstance(named, list) and not context.linted else ():
        inside = isinstance(name, str) and name.endswith(".py") and not name.startswith(("/", "~", "$"))
        if inside and name.removeprefix("./") not in context.files:
            yield Finding(
                "ms-swift-plugin-missing",
                "error",
                f"external_plugins names {name}, and the experiment has no such file",
                "put the file into the experiment's folder",
                "external_plugins",
                source="swift/utils/import_utils.py, import_external_file",
            )
