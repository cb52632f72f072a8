"""The batch script of a plan: one file, for administrators to read, that each node runs its part of."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files as package_files

from tuneport.errors import Invalid
from tuneport.fleets.layout import Folder, split_key
from tuneport.types import Command, Json, LaunchPlan, Pool, Value

from tuneport_fleet_slurm.runtime import Runtime
from tuneport_fleet_slurm.settings import option, pool_lines
from tuneport_fleet_slurm.words import command, exports, word


@dataclass(frozen=True, slots=True)
class Part:
    """A pool's place in the job: it is number `index`, and `offset` nodes come before it. `hetero`: it is a
    component of a heterogeneous job; else all pools share one, and its nodes begin at `offset`."""

    pool: Pool
    index: int
    offset: int
    hetero: bool

    @property
    def head(self) -> str:
        """The variable with the address of its first node."""
        return f"tp_head_{self.index}"


def parts(plan: LaunchPlan, settings: Mapping[str, Json]) -> list[Part]:
    """The pools that a command runs on, in order. Those whose nodes are alike share a component."""
    used = {command.pool for command in plan.commands}
    pools = [pool for pool in plan.pools if pool.name in used]
    missing = used - {pool.name for pool in pools}
    if missing:
        raise Invalid(f"the plan has no pool {', '.join(sorted(missing))}", code="plan-pool")
    shapes = settings.get("nodes", {})
    alike = len({(pool.gpus_per_node, str(shapes.get(pool.series, pool.series))) for pool in pools}) == 1
    found, offset = [], 0
    for index, pool in enumerate(pools):
        found.append(Part(pool, index, offset, not alike))
        offset += pool.nodes
    return found


def script(
    plan: LaunchPlan,
    commands: Sequence[Command],
    folder: Folder,
    settings: Mapping[str, Json],
    runtime: Runtime,
    digest: str,
) -> str:
    """The text of the script.

    Args:
        commands: the plan's, with every reference resolved but those of a running job.

    Raises:
        Invalid: something that no batch script can carry.
    """
    placed = parts(plan, settings)
    job, attempt = split_key(folder.key)
    lines = ["#!/bin/bash", *_header(placed, folder, settings, commands[0].role)]
    lines += [
        "",
        f"# Job {job}, attempt {attempt}, of Tuneport: {plan.method} on {plan.release}.",
        f"# Plan {digest}",
        "# Slurm starts this file once, on the first node. It calls itself on each node of each role: the",
        "# functions role_… say what runs there.",
        "",
        "set -u",
        f"key={shlex.quote(folder.key)}",
        f"folder={shlex.quote(str(folder.path))}",
        "",
    ]
    lines += _everywhere(folder, settings, runtime, placed)
    where = {part.pool.name: part for part in placed}
    for item in commands:
        lines += _role(item, where[item.pool], runtime, folder)
    lines.append("start_roles() {")
    for item in commands:
        log = "" if item is commands[0] else f" >>{shlex.quote(str(folder.log(item.role)))} 2>&1"
        lines += _step(item, where[item.pool], runtime.step_options(folder.work), log)
    lines += ["}", "", "find_nodes() {", *map(_find, placed), "}", "", ""]
    return "\n".join(lines) + _frame()


def _frame() -> str:
    """The part that is the same for every job."""
    return package_files("tuneport_fleet_slurm").joinpath("frame.sh").read_text("utf-8")


def _header(placed: Sequence[Part], folder: Folder, settings: Mapping[str, Json], role: str) -> Iterator[str]:
    for part in placed if placed[0].hetero else placed[:1]:
        nodes = part.pool.nodes if part.hetero else sum(other.pool.nodes for other in placed)
        if part.index:
            yield "#SBATCH hetjob"
        yield from pool_lines(settings, part.pool, nodes, folder.key)
        if not part.index:
            yield option("chdir", str(folder.work))
            yield option("output", str(folder.log(role)).replace("%", "%%"))
            yield "#SBATCH --open-mode=append"


def _everywhere(
    folder: Folder, settings: Mapping[str, Json], runtime: Runtime, placed: Sequence[Part]
) -> Iterator[str]:
    """The function that sets what every command of the job gets."""
    job, attempt = split_key(folder.key)
    env: dict[str, Value] = {
        "PYTHONUNBUFFERED": "1",
        **settings.get("environment", {}),
        "TUNEPORT_JOB_ID": job,
        "TUNEPORT_ATTEMPT": str(attempt),
        "TUNEPORT_OUTPUT_DIR": str(folder.output),
        "TUNEPORT_LOG_DIR": str(folder.tensorboard),
        "TUNEPORT_REPORT_FILE": str(folder.report),
    }
    yield "everywhere() {"
    yield from (f"  {line}" for line in settings.get("setup", ()))
    if runtime.venv:
        yield "  unset PYTHONHOME"
        yield f"  export VIRTUAL_ENV={shlex.quote(runtime.venv)}"
        yield '  export PATH="$VIRTUAL_ENV/bin:$PATH"'
    yield from (f"  {line}" for line in exports(env))
    yield f'  export PYTHONPATH={shlex.quote(str(folder.modules))}"${{PYTHONPATH:+:$PYTHONPATH}}"'
    for part in placed if len(placed) > 1 else ():
        stem = "TUNEPORT_CLUSTER_" + re.sub(r"[^A-Z0-9]", "_", part.pool.name.upper())
        yield f"  export {stem}_NODES={part.pool.nodes} {stem}_GPUS_PER_NODE={_gpus(part.pool)}"
        yield f'  export {stem}_HEAD_ADDR="${part.head}"'
    yield "}"
    yield ""


def _gpus(pool: Pool) -> int:
    return 0 if pool.series == "cpu" else pool.gpus_per_node


def _role(item: Command, part: Part, runtime: Runtime, folder: Folder) -> Iterator[str]:
    """The function that becomes a role's command on one node."""
    pool = part.pool
    yield (
        f"# on each of the {pool.nodes} nodes of pool {pool.name}"
        if pool.nodes > 1
        else (f"# on the node of pool {pool.name}")
    )
    yield f"role_{item.role}() {{"
    yield "  everywhere"
    yield from (f"  {line}" for line in exports(item.env))
    yield f"  export TUNEPORT_ROLE={item.role}"
    yield f"  export TUNEPORT_CLUSTER_NODES={pool.nodes} TUNEPORT_CLUSTER_GPUS_PER_NODE={_gpus(pool)}"
    yield f"  export TUNEPORT_CLUSTER_PROCESSES_PER_NODE={pool.gpus_per_node}"
    yield f'  export TUNEPORT_CLUSTER_NODE_RANK="$SLURM_NODEID" TUNEPORT_CLUSTER_HEAD_ADDR="${part.head}"'
    yield '  export TUNEPORT_CLUSTER_HEAD_PORT="$tp_port"'
    yield f"  tp_rank=$((SLURM_NODEID + {part.offset}))"
    words = runtime.wrapped([word(value) for value in item.argv], folder.work, gpus=pool.series != "cpu")
    yield "  " + command(words, "  ")
    yield "}"
    yield ""


def _step(item: Command, part: Part, options: Sequence[str], log: str) -> Iterator[str]:
    """The lines that start a role on all its nodes."""
    nodes = part.pool.nodes
    words = ["step", item.role, f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
    words.append("--kill-on-bad-exit=1")
    if part.hetero:
        words.append(f"--het-group={part.index}")
    elif part.offset:
        words.append(f"--relative={part.offset}")
    words += ["--label"] if nodes > 1 else []
    yield f"  {' '.join((*words, *options))}{log} &"
    yield f'  pids+=("$!") names+=({item.role})'


def _find(part: Part) -> str:
    """Assigns the address of a pool's first node."""
    names = f"SLURM_JOB_NODELIST_HET_GROUP_{part.index}" if part.hetero else "SLURM_JOB_NODELIST"
    line = 1 if part.hetero else part.offset + 1
    return f'  {part.head}=$(node_address "${names}" {line}) && export {part.head}'
