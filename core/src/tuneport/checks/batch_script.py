"""What a batch script asks Slurm for, held against itself and against the command that it starts.

Source: Slurm 22.05.8 src/sbatch/opt.c, `_get_argument`, which stops at the first command; sbatch(1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuneport.checks import directives
from tuneport.experiment.command_line import Invocation
from tuneport.shell.gaps import open_
from tuneport.types import Finding, Json, Method

_LONG = {"N": "nodes", "n": "ntasks"}


def hardware(
    run: Invocation, nodes: int, gpus_per_node: int, facts: Mapping[str, Mapping[str, Json]]
) -> tuple[int, int]:
    """(machines, GPUs of each) as they were said beside the command, else, where no facts say them, as the
    script or a job file asks for them. A launcher that counts no machines starts on its own one."""
    asked, each = run.machines if any(run.machines) else directives.hardware(run.file)
    if any(run.machines) and run.nodes == 1:  # each pod for itself
        asked = 1
    asked = asked if run.nodes or not run.per_node or run.copies > 1 else 0
    declared = facts.get("topology", {})
    return (
        nodes or (0 if declared.get("nodes") else asked),
        gpus_per_node or (0 if declared.get("gpus_per_node") else each),
    )


def check(run: Invocation, method: Method) -> Iterator[Finding]:
    """Warnings about the directives of the script that a command stands in."""
    if run.copies > 1 and method.spec.get("launch", {}).get("launcher") == "none":
        message = f"each of {run.copies} machines starts the program, and each would work on its own"
        hint = "start it on the first one alone; the program's workers come from the cluster that it joins"
        yield Finding("launcher-copies", "warning", message, hint)
    if run.copies > 1 and (0 <= run.nodes != 1):
        yield from _same_rank(run)
    for option in directives.late(run.file):
        message = f"sbatch stops reading at the first command, so #SBATCH {option} behind it does nothing"
        yield Finding(
            "launcher-directives",
            "warning",
            message,
            "put all directives before the first command",
            option.partition("=")[0],
        )
    said, spread = directives.read(run.file)
    if not said:
        return
    yield from _gpus(said)
    nodes = directives.count(said, "nodes")
    if spread and nodes and 0 < run.nodes < nodes:
        message = f"the script has {nodes} machines, and the launcher counts {run.nodes}"
        yield Finding("launcher-directives", "warning", message, "let both say the same number", "--nodes")
    yield from _copies(said, run, method)


def _same_rank(run: Invocation) -> Iterator[Finding]:
    """The number of a machine, written out where several machines read it."""
    for told in run.told.values():
        for flag in ("node_rank", "machine_rank"):
            if told.get(flag, "").isdigit():
                message = f"each of {run.copies} machines is told that it is number {told[flag]}"
                yield Finding("launcher-copies", "warning", message, "take it from a variable", f"--{flag}")


def _gpus(said: Mapping[str, str]) -> Iterator[Finding]:
    """Two ways to ask for GPUs that come to different numbers."""
    nodes, each = directives.count(said, "nodes") or 1, directives.gpus(said)
    task, tasks = directives.count(said, "gpus_per_task"), _tasks(said)
    whole = directives.count(said, "gpus")
    way = "--gpus-per-node" if said.get("gpus_per_node") else "--gres"
    if each and task and tasks and task * tasks != each * nodes:
        message = f"--gpus-per-task gives {task * tasks} GPUs to all tasks, and {way} asks for {each * nodes}"
        yield Finding("launcher-directives", "warning", message, "ask for GPUs in one way", "--gpus-per-task")
    if each and whole and whole != each * nodes:
        message = f"--gpus asks for {whole} GPUs in all, and {way} for {each * nodes}"
        yield Finding("launcher-directives", "warning", message, "ask for GPUs in one way", "--gpus")


def _copies(said: Mapping[str, str], run: Invocation, method: Method) -> Iterator[Finding]:
    """A program that starts its own workers, begun once in each of several tasks."""
    if method.spec.get("launch", {}).get("launcher") != "none" or "srun" not in run.told:
        return
    told = run.told["srun"]
    if any(map(open_, told.values())):
        return
    own = {_LONG.get(name, name): value for name, value in told.items()}
    own = {name: own[name] for name in ("nodes", "ntasks", "ntasks_per_node") if name in own}
    over: Mapping[str, str] = {"nodes": said.get("nodes", ""), **own} if own else said
    tasks = _tasks(over) or (directives.count(over, "nodes") if not own.get("ntasks") else 0)
    if tasks > 1:
        key = next((name for name in ("ntasks", "ntasks_per_node") if over.get(name)), "nodes")
        message = f"srun starts the program {tasks} times over, and each would train on its own"
        hint = "write srun --nodes=1 --ntasks=1; the program's workers come from the cluster that it joins"
        yield Finding("launcher-directives", "warning", message, hint, f"--{key.replace('_', '-')}")


def _tasks(said: Mapping[str, str]) -> int:
    return directives.count(said, "ntasks") or directives.count(said, "ntasks_per_node") * (
        directives.count(said, "nodes") or 1
    )
