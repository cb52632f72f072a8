"""What is wrong with a task of SkyPilot, and the machines that it asks for.

Source: skypilot 0.14.1 sky/utils/schemas.py, get_task_schema; sky/task.py; sky/skylet/constants.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tuneport.jobfiles.documents import Object, Place
from tuneport.jobfiles.pods import listed, mapped, quantity
from tuneport.text import closest
from tuneport.types import Json

SOURCE = "skypilot 0.14.1 sky/utils/schemas.py, get_task_schema"
FIELDS = frozenset(
    {"name", "workdir", "event_callback", "num_nodes", "resources", "file_mounts", "service", "pool", "setup"}
    | {"run", "envs", "secrets", "managed_secrets", "inputs", "outputs", "file_mounts_mapping", "config"}
    | {"volumes", "volume_mounts", "api_server_access", "_metadata"}
)
RESOURCES = frozenset(
    {
        "cloud",
        "region",
        "zone",
        "infra",
        "cpus",
        "memory",
        "accelerators",
        "instance_type",
        "use_spot",
        "ports",
    }
    | {"job_recovery", "volumes", "disk_size", "ephemeral_storage", "disk_tier", "network_tier", "local_disk"}
    | {"max_hourly_cost", "labels", "accelerator_args", "image_id", "autostop", "priority", "priority_class"}
    | {"any_of", "ordered", "spot_recovery", "gpus", "_cluster_config_overrides", "_docker_login_config"}
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
_READ = re.compile(r"\$\{?(SKY(?:PILOT)?_\w+)")
_ALL = re.compile(r"(?:master_addr|MASTER_ADDR|main_process_ip)[= ]\"?\$\{?SKYPILOT_NODE_IPS\b")
_VARIABLE = re.compile(r"[A-Za-z_]\w*\Z", re.A)


def is_task(data: Mapping[str, Json]) -> bool:
    """Whether a mapping is written as a task, or as the cluster or the pool that tasks run on."""
    if "apiVersion" in data or "kind" in data:
        return False
    own = data.keys() & FIELDS
    known = own & {"run", "setup"} or isinstance(data.get("resources"), dict)
    return bool(known) and len(data.keys() - FIELDS) < len(own)


def hardware(data: Mapping[str, Json]) -> tuple[int, int]:
    """(machines, GPUs of each), 0 where a number is not said or there are several."""
    nodes = data.get("num_nodes", 1)
    resources = mapped(data, "resources")
    said = [item for name in ("any_of", "ordered") for item in listed(resources, name)]
    wanted = [
        item.get("accelerators", resources.get("accelerators")) for item in said if isinstance(item, dict)
    ]
    counts = set(map(_accelerators, wanted or [resources.get("accelerators")]))
    return (
        nodes if isinstance(nodes, int) and not isinstance(nodes, bool) and nodes > 0 else 0,
        counts.pop() if len(counts) == 1 else 0,
    )


def _accelerators(said: Json) -> int:
    """GPUs in `H100:8`, `{H100: 8}`, `{H100:8, A100:8}` or `[H100:8, A100:8]`."""
    if isinstance(said, str):
        name, _, number = said.partition(":")
        gpu = name.strip() and not name.strip().lower().startswith("tpu")
        return int(quantity(number or 1) or 0) if gpu else 0
    if isinstance(said, dict):
        # In `{L4:4, A100:8}` each is a key, as the blank behind the colon is missing.
        counts = {
            _accelerators(name) if number is None else int(quantity(number) or 0)
            for name, number in said.items()
        }
    elif isinstance(said, list):
        counts = {_accelerators(item) for item in said}
    else:
        return 0
    return counts.pop() if len(counts) == 1 else 0


def check(one: Object) -> None:
    """Say what is wrong with a task."""
    _known(one, (), dict(one.data), FIELDS)
    resources = mapped(one.data, "resources")
    _known(one, ("resources",), dict(resources), RESOURCES)
    for part in ("any_of", "ordered"):
        for number, item in enumerate(listed(resources, part)):
            _known(one, ("resources", part, number), item, RESOURCES)
    for name, (kind, words) in TYPES.items():
        value = one.data.get(name)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            one.say(
                "sky-field", "error", (name,), f"{name} must be {words}: sky refuses the task", "", SOURCE
            )
    nodes = one.data.get("num_nodes")
    if isinstance(nodes, int) and not isinstance(nodes, bool) and nodes < 1:
        message = f"num_nodes is {nodes}: sky refuses the task"
        one.say(
            "sky-field", "error", ("num_nodes",), message, "", "skypilot 0.14.1 sky/task.py, Task.num_nodes"
        )
    for name in mapped(one.data, "envs"):
        if not _VARIABLE.match(name):
            message = f"{name!r} is no name of a variable: sky refuses the task"
            one.say("sky-field", "error", ("envs", name), message, "", SOURCE)
    _read_too_early(one)
    given = {*VARIABLES, *mapped(one.data, "envs"), *mapped(one.data, "secrets")}
    for name in ("setup", "run"):
        text = str(one.data.get(name) or "")
        for unknown in dict.fromkeys(_READ.findall(text)):
            other = unknown.replace("SKY_", "SKYPILOT_", 1) if unknown.startswith("SKY_") else unknown
            close = closest(other, VARIABLES, cutoff=0.7)
            if unknown not in given and close and f"{unknown}=" not in text:
                message = f"nothing sets {unknown}, so it is empty"
                source = "skypilot 0.14.1 sky/skylet/constants.py"
                one.say("sky-variable", "warning", (name,), message, f"did you mean {close}?", source)


def _read_too_early(one: Object) -> None:
    """Variables of `run` that `setup` does not have, and one that is a list of all machines."""
    for name in dict.fromkeys(_READ.findall(str(one.data.get("setup") or ""))):
        before = name.replace("SKYPILOT_", "SKYPILOT_SETUP_", 1)
        if name in VARIABLES and before in VARIABLES:
            message = f"{name} is set for run, not for setup, where it is empty"
            source = "skypilot 0.14.1 sky/backends/cloud_vm_ray_backend.py, _setup"
            one.say("sky-variable", "warning", ("setup",), message, f"read {before}", source)
    nodes = one.data.get("num_nodes")
    if isinstance(nodes, int) and nodes > 1 and _ALL.search(str(one.data.get("run") or "")):
        message = f"SKYPILOT_NODE_IPS holds the addresses of {nodes} machines, one a line"
        hint = 'take the first: $(echo "$SKYPILOT_NODE_IPS" | head -n1)'
        one.say("sky-variable", "warning", ("run",), message, hint)


def _known(one: Object, place: Place, part: Json, fields: frozenset[str]) -> None:
    """Say which fields of a part there are not."""
    for name in part if isinstance(part, dict) else ():
        if name in fields:
            continue
        close = closest(name, fields, cutoff=0.8)
        message = f"a task has no field {name!r}" + (
            ", and sky refuses it" if close else " in the known release"
        )
        hint = f"did you mean {close}?" if close else ""
        one.say("sky-field", "error" if close else "warning", (*place, name), message, hint, SOURCE)
