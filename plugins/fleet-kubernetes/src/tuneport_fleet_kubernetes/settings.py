"""What a fleet of kind `kubernetes` may be told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tuneport.errors import Invalid

if TYPE_CHECKING:
    from tuneport.types import Json

_TEXT = {"type": "string", "minLength": 1}
_NAME = {"type": "string", "pattern": r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"}
_KEY = r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
_LABELS = {
    "type": "object",
    "propertyNames": {"pattern": _KEY},
    "additionalProperties": {
        "type": "string",
        "pattern": "^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$",
    },
}
"""As k8s.io/apimachinery/pkg/util/validation has them: IsQualifiedName, IsValidLabelValue."""
_MOUNT = {
    "type": "object",
    "properties": {
        "claim": _NAME,
        "host_path": _TEXT,
        "path": _TEXT,
        "read_only": {"type": "boolean"},
    },
    "additionalProperties": False,
    "oneOf": [{"required": ["claim"]}, {"required": ["host_path"]}],
}
SETTINGS: dict[str, Any] = {
    "context": None,
    "namespace": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"},
    "queue": _NAME,
    "images": None,
    "storage": None,
    "environment": None,
    "limits": None,
    "workload": {"enum": ["jobset", "trainjob", "job"]},
    "runtime": _NAME,  # of TrainJobs
    "claim": _NAME,
    "mounts": {"type": "object", "propertyNames": {"pattern": "^/"}, "additionalProperties": _MOUNT},
    "secrets": {
        "type": "object",
        "propertyNames": {
            "pattern": "^[A-Za-z_][A-Za-z0-9_]*$",
            "not": {"pattern": "^TUNEPORT_", "description": "is Tuneport's own"},
        },
        "additionalProperties": {"type": "string", "pattern": r"^[a-z0-9][a-z0-9.-]*/[-._A-Za-z0-9]+$"},
    },
    "pull_secrets": {"type": "array", "items": _NAME},
    "service_account": _NAME,
    "priority_class": _NAME,
    "user": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
    "gpu_resource": {"type": "string", "pattern": r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$"},
    "cpus_per_gpu": {"type": "integer", "minimum": 1},
    "memory_per_gpu": {"type": "string", "pattern": r"^[0-9]+(Mi|Gi|Ti)$"},
    "memory_per_cpu": {"type": "string", "pattern": r"^[0-9]+(Mi|Gi|Ti)$"},
    "shared_memory": {"type": "string", "pattern": r"^[0-9]+(Mi|Gi|Ti)$"},
    "head": {
        "type": "object",
        "properties": {"cpus": {"type": "integer", "minimum": 1}, "memory": _TEXT, "selector": _LABELS},
        "additionalProperties": False,
    },
    "labels": _LABELS,
    "annotations": {
        "type": "object",
        "propertyNames": {"pattern": _KEY},
        "additionalProperties": {"type": "string"},
    },
    "keep": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
    "timeout": {"type": "integer", "minimum": 1},
}
"""Beside these every kind takes `nodes` and `gpus_per_node`."""

KEEP = 7 * 24 * 3600
"""Seconds that a job that ended, and with it its log, stays in the cluster."""
USER = 1000
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)\Z")
_UNITS = re.compile(r"(\d+)([smhd])\Z")
_LONGEST = 10 * 366 * 24 * 3600
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(settings: Mapping[str, Json]) -> int | None:
    """`limits.time`, written as `12h`, `90m` or `[DAYS-]HH:MM:SS`; None where there is none.

    Raises:
        Invalid: it is written in another way.
    """
    text = settings.get("limits", {}).get("time")
    if text is None:
        return None
    found = 0
    if clock := _CLOCK.match(text):
        days, hours, minutes, rest = (int(part or 0) for part in clock.groups())
        found = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    elif unit := _UNITS.match(text):
        found = int(unit[1]) * _SECONDS[unit[2]]
    if 0 < found < _LONGEST:
        return found
    raise Invalid(
        f"fleet setting limits.time is {text!r}, which is no time",
        code="fleet-setting",
        hint="write it as 12h, 90m or 1-12:00:00",
    )


def times(size: str, count: int) -> str:
    """`count` times a size such as 16Gi."""
    number, unit = size[:-2], size[-2:]
    return f"{int(number) * count}{unit}"
