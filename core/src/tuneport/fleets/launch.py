"""What a supervisor needs to run an attempt, and the environment that its commands get."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuneport.compiler.plan import put_refs, take_refs
from tuneport.fleets.layout import Folder, split_key
from tuneport.fleets.leases import Need
from tuneport.fleets.procs import MARK, SUPERVISOR_MARK
from tuneport.types import Command, FileSpec, Pool


@dataclass(frozen=True, slots=True)
class Launch:
    """The commands have their references resolved, but those of `resolve.LATE`. `venv` is the runtime's
    root, empty where the job runs in the user's own environment. Times in seconds: `grace` between asking
    processes to end and ending them, `linger` for what a finished command left behind."""

    need: Need
    pools: tuple[Pool, ...]
    commands: tuple[Command, ...]
    venv: str
    grace: float
    linger: float

    def to_json(self) -> dict[str, Any]:
        return {
            "need": asdict(self.need),
            "pools": [pool._asdict() for pool in self.pools],
            "commands": [_command_to_json(command) for command in self.commands],
            "venv": self.venv,
            "grace": self.grace,
            "linger": self.linger,
        }


def launch_from_json(document: Mapping[str, Any]) -> Launch:
    need = document["need"]
    return Launch(
        need=Need(**{**need, "usable": tuple(need["usable"])}),
        pools=tuple(Pool(**pool) for pool in document["pools"]),
        commands=tuple(_command_from_json(command) for command in document["commands"]),
        venv=document["venv"],
        grace=document["grace"],
        linger=document["linger"],
    )


def _command_to_json(command: Command) -> dict[str, Any]:
    # References are taken out of the whole tree at once, so that no text is ever taken for one.
    tree = {
        "argv": list(command.argv),
        "env": dict(command.env),
        "files": {
            name: {"format": spec.format, "content": spec.content} for name, spec in command.files.items()
        },
    }
    content, refs = take_refs(tree)
    return {"role": command.role, "pool": command.pool, "content": content, "refs": refs}


def _command_from_json(document: Mapping[str, Any]) -> Command:
    tree = put_refs(document["content"], document["refs"])
    return Command(
        role=document["role"],
        pool=document["pool"],
        argv=tuple(tree["argv"]),
        env=tree["env"],
        files={name: FileSpec(spec["format"], spec["content"]) for name, spec in tree["files"].items()},
    )


def share(pools: Sequence[Pool], cards: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Pool name -> its part of the leased cards."""
    parts: dict[str, tuple[int, ...]] = {}
    rest = list(cards)
    for pool in pools:
        count = 0 if pool.series == "cpu" else pool.gpus_per_node
        parts[pool.name], rest = tuple(rest[:count]), rest[count:]
    return parts


def environment(
    launch: Launch, command: Command, folder: Folder, cards: Sequence[int], head_port: int
) -> dict[str, str]:
    """The environment of one command: this process's own, then the plan's, then what the fleet decides.

    A job sees the cards it leased and no others. TUNEPORT_CLUSTER_GPUS_PER_NODE is 0 on a `cpu` pool,
    where TUNEPORT_CLUSTER_PROCESSES_PER_NODE has the number of processes.
    """
    job, attempt = split_key(folder.key)
    env = {name: value for name, value in os.environ.items() if name not in _OWN}
    if launch.venv:
        env.pop("PYTHONHOME", None)
        env["VIRTUAL_ENV"] = launch.venv
    env.setdefault("PYTHONUNBUFFERED", "1")  # a line that was printed is in the log, whatever comes next
    # References are resolved by now, so every value is text.
    env.update({name: str(value) for name, value in command.env.items()})
    if launch.venv:
        env["PATH"] = _prefixed(f"{launch.venv}/bin", env.get("PATH", os.defpath))
    env["PYTHONPATH"] = _prefixed(str(folder.modules), env.get("PYTHONPATH", ""))
    pool = next((pool for pool in launch.pools if pool.name == command.pool), None)
    accelerated = pool is not None and pool.series != "cpu"
    count = pool.gpus_per_node if pool else 1
    env.update(
        {
            MARK: folder.key,
            "TUNEPORT_JOB_ID": job,
            "TUNEPORT_ATTEMPT": str(attempt),
            "TUNEPORT_ROLE": command.role,
            "TUNEPORT_OUTPUT_DIR": str(folder.output),
            "TUNEPORT_LOG_DIR": str(folder.tensorboard),
            "TUNEPORT_REPORT_FILE": str(folder.report),
            "TUNEPORT_CLUSTER_NODES": "1",
            "TUNEPORT_CLUSTER_GPUS_PER_NODE": str(count if accelerated else 0),
            "TUNEPORT_CLUSTER_PROCESSES_PER_NODE": str(count),
            "TUNEPORT_CLUSTER_NODE_RANK": "0",
            "TUNEPORT_CLUSTER_HEAD_ADDR": "127.0.0.1",
            "TUNEPORT_CLUSTER_HEAD_PORT": str(head_port),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order in which the indexes were counted
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, cards)),
        }
    )
    return env


_OWN = frozenset({SUPERVISOR_MARK, "TUNEPORT_TEST_FAULT", "TUNEPORT_TEST_FAULT_LOG"})


def _prefixed(first: str, rest: str) -> str:
    return f"{first}{os.pathsep}{rest}" if rest else first
