"""What a fleet of kind `slurm` may be told, and the `#SBATCH` lines that follow from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tuneport.errors import Invalid

if TYPE_CHECKING:
    from tuneport.types import Json, Pool

_TEXT = {"type": "string", "minLength": 1, "pattern": r'^[^"\\\x00-\x1f\x7f]+$'}
SETTINGS: dict[str, Any] = {
    "partition": None,
    "account": None,
    "images": None,
    "storage": None,
    "environment": None,
    "limits": None,
    "qos": _TEXT,
    "reservation": _TEXT,
    "constraint": _TEXT,
    "signal": {"type": "string", "pattern": r"^([BR]:)?[A-Z0-9]+@[0-9]+$"},
    "requeue": {"type": "boolean"},
    "cpus_per_gpu": {"type": "integer", "minimum": 1},
    "memory_per_gpu": {"type": "string", "pattern": r"^[0-9]+[KMGT]$"},
    "options": {
        "type": "array",
        "items": {"type": "string", "pattern": r"^--[a-z][a-z-]*(=[^\x00-\x1f\x7f]+)?$"},
    },
    "setup": {"type": "array", "items": {"type": "string", "pattern": r"^[^\x00-\x1f\x7f]+$"}},
    "containers": {"enum": ["apptainer", "pyxis"]},
    "mounts": {"type": "array", "items": _TEXT},
    "timeout": {"type": "integer", "minimum": 1},
}
"""Beside these every kind takes `nodes` and `gpus_per_node`."""

_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+=,*\[\]-]+\Z")


def pool_lines(settings: Mapping[str, Json], pool: Pool, nodes: int, name: str) -> Iterator[str]:
    """The options of one component of the job: `nodes` machines like those of `pool`."""
    shape = settings.get("nodes", {}).get(pool.series, {})
    yield option("job-name", name)
    yield option("comment", f"tuneport:{name}")
    for word, value in (
        ("account", settings.get("account")),
        ("partition", shape.get("partition") or settings.get("partition")),
        ("qos", settings.get("qos")),
        ("reservation", settings.get("reservation")),
        ("constraint", shape.get("constraint") or settings.get("constraint")),
        ("time", settings.get("limits", {}).get("time")),
        ("signal", settings.get("signal")),
    ):
        if value:
            yield option(word, str(value))
    yield option("nodes", str(nodes))
    yield option("ntasks-per-node", "1")
    yield from _sizes(settings, shape, pool)
    yield "#SBATCH --requeue" if settings.get("requeue") else "#SBATCH --no-requeue"
    yield from (f"#SBATCH {words}" for words in settings.get("options", ()))


def _sizes(settings: Mapping[str, Json], shape: Mapping[str, Json], pool: Pool) -> Iterator[str]:
    count = pool.gpus_per_node
    if pool.series == "cpu":
        yield option("cpus-per-task", str(count))
        return
    kind = shape.get("gpu_type")
    yield option("gpus-per-node", f"{kind}:{count}" if kind else str(count))
    whole = shape.get("gpus_per_node", settings.get("gpus_per_node")) == count
    if "cpus_per_gpu" in settings:
        yield option("cpus-per-task", str(settings["cpus_per_gpu"] * count))
    elif whole:
        yield "#SBATCH --exclusive"
    if "memory_per_gpu" in settings:
        size = settings["memory_per_gpu"]
        yield option("mem", f"{int(size[:-1]) * count}{size[-1]}")
    elif whole:
        yield option("mem", "0")


def option(name: str, value: str) -> str:
    """An `#SBATCH` line.

    Raises:
        Invalid: no quoting of sbatch carries the value.
    """
    if any(c in '"\\' or not c.isprintable() for c in value):
        raise Invalid(
            f"sbatch cannot be given {value!r} as --{name}",
            code="value-unusable",
            hint="use a name or folder without quotes, backslashes and control characters",
        )
    return f"#SBATCH --{name}={value}" if _PLAIN.match(value) else f'#SBATCH --{name}="{value}"'
