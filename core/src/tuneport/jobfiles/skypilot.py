"""What is wrong with a task of SkyPilot, and the machines that it asks for.

Source: skypilot 0.14.1 sky/utils/schemas.py, get_task_schema; sky/task.py; sky/skylet/constants.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tuneport.jobfiles.documents import Object
from tuneport.jobfiles.pods import mapped, quantity
from tuneport.text import closest
from tuneport.types import Json

SOURCE = "skypilot 0.14.1 sky/utils/schemas.py, get_task_schema"
FIELDS = frozenset(
    {"name", "workdir", "event_callback", "num_nodes", "resources", "file_mounts", "service", "pool", "setup"}
    | {"run", "envs", "secrets", "managed_secrets", "inputs", "outputs", "file_mounts_mapping", "config"}
    | {"volumes", "volume_mounts", "api_server_access", "_metadata"}
)
TYPES: dict[str, tuple[type, str]] = {
    "num_nodes": (int, "a whole number"), "setup": (str, "text"), "run": (str, "text"),
    "resources": (dict, "a mapping"), "envs": (dict, "a mapping"), "file_mounts": (dict, "a mapping"),
}  # fmt: skip
_NAMES = (
    *("NODE_RANK", "NODE_IPS", "NUM_NODES", "NUM_GPUS_PER_NODE", "SETUP_NODE_RANK", "SETUP_NODE_IPS", "USER"),
    *("SETUP_NUM_GPUS_PER_NODE", "TASK_ID", "TASK_IDS", "CLUSTER_INFO", "CLUSTER_NAME", "INTERNAL_JOB_ID"),
    *("MANAGED_JOB_ID", "ROOT_JOB_ID", "JOB_ID", "JOB_RANK", "NUM_JOBS", "JOBGROUP_NAME", "SERVE_REPLICA_ID"),
    "USER_ID",
)
VARIABLES = frozenset(f"SKYPILOT_{name}" for name in _NAMES)
_READ = re.compile(r"\$\{?(SKYPILOT_\w+)")


def is_task(data: Mapping[str, Json]) -> bool:
    """Whether a mapping is written as a task."""
    if "apiVersion" in data or "kind" in data or not isinstance(data.get("run", ""), str):
        return False
    return "run" in data and bool(
        data.keys() & {"resources", "num_nodes", "setup", "envs", "workdir", "file_mounts"}
    )


def hardware(data: Mapping[str, Json]) -> tuple[int, int]:
    """(machines, GPUs of each), 0 where a number is not said or there are several."""
    nodes = data.get("num_nodes", 1)
    wanted = data.get("resources")
    resources = wanted if isinstance(wanted, dict) else {}
    others = [
        item for name in ("any_of", "ordered") for item in resources.get(name) or () if isinstance(item, dict)
    ]
    counts = {
        _accelerators(item.get("accelerators", resources.get("accelerators")))
        for item in others or [resources]
    }
    return (
        nodes if isinstance(nodes, int) and not isinstance(nodes, bool) and nodes > 0 else 0,
        counts.pop() if len(counts) == 1 else 0,
    )


def _accelerators(said: Json) -> int:
    """GPUs in `H100:8`, `{H100: 8}` or `[H100:8, A100:8]`."""
    if isinstance(said, str):
        name, _, number = said.partition(":")
        return int(quantity(number or 1) or 0) if name.strip() else 0
    if isinstance(said, dict):
        counts = {int(quantity(1 if number is None else number) or 0) for number in said.values()}
    elif isinstance(said, list):
        counts = {_accelerators(item) for item in said}
    else:
        return 0
    return counts.pop() if len(counts) == 1 else 0


def check(one: Object) -> None:
    """Say what is wrong with a task."""
    for name in one.data:
        if name in FIELDS:
            continue
        close = closest(name, FIELDS, cutoff=0.8)
        message = f"a task has no field {name!r}" + (
            ", and sky refuses it" if close else " in the known release"
        )
        hint = f"did you mean {close}?" if close else ""
        one.say("sky-field", "error" if close else "warning", (name,), message, hint, SOURCE)
    for name, (kind, words) in TYPES.items():
        value = one.data.get(name)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            one.say(
                "sky-field", "error", (name,), f"{name} must be {words}: sky refuses the task", "", SOURCE
            )
    nodes = one.data.get("num_nodes")
    if isinstance(nodes, int) and nodes < 1:
        message = f"num_nodes is {nodes}: sky refuses the task"
        one.say(
            "sky-field", "error", ("num_nodes",), message, "", "skypilot 0.14.1 sky/task.py, Task.num_nodes"
        )
    given = {*VARIABLES, *mapped(one.data, "envs"), *mapped(one.data, "secrets")}
    for name in ("setup", "run"):
        text = str(one.data.get(name) or "")
        for unknown in dict.fromkeys(_READ.findall(text)):
            close = closest(unknown, VARIABLES, cutoff=0.7)
            if unknown not in given and close and f"{unknown}=" not in text:
                message = f"nothing sets {unknown}, so it is empty"
                source = "skypilot 0.14.1 sky/skylet/constants.py"
                one.say("sky-variable", "warning", (name,), message, f"did you mean {close}?", source)
