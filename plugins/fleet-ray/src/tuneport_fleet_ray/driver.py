"""Runs a plan on a Ray cluster. Shipped with the job, which Ray starts as `python tuneport-driver.py`.

What to run is in tuneport-launch.json beside it. A framework that works on Ray itself (`on_ray`) is started
here and finds the cluster by RAY_ADDRESS. Any other gets its nodes: a placement group with one bundle a node,
one actor in each, which becomes the parent of the command there. Needs nothing but Ray.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def main() -> int:
    launch = json.loads((HERE / "tuneport-launch.json").read_text("utf-8"))
    root = Path(os.environ["TUNEPORT_ROOT"])
    begun = time.time()
    (root / "output").mkdir(parents=True, exist_ok=True)
    hear_term()
    state, code, cause = "FAILED", 1, "the driver died"
    try:
        failed = on_ray(launch, root) if launch["on_ray"] else placed(launch, root)
        role, code = failed or ("", 0)
        state = "FAILED" if code else "SUCCEEDED"
        cause = f"{role} ended with exit code {code}" if code else "ended with exit code 0"
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
        state, cause = ("STOPPED", "stopped") if code == 143 else ("FAILED", str(stop.code))
        raise
    finally:
        record = {"state": state, "exit_code": code, "cause": cause, "started": begun, "ended": time.time()}
        draft = root / ".exit.draft"
        draft.write_text(json.dumps(record))
        draft.replace(root / "exit.json")
    return code


def hear_term() -> None:
    """End by way of every `finally`. Ray puts a handler of its own in the place of this one."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def on_ray(launch: Any, root: Path) -> tuple[str, int] | None:
    """The first command, here: the others only bring up what is up already. (role, code) where it failed."""
    command = launch["commands"][0]
    pool = launch["pools"][0]
    work = staged(root)
    known = places(root, work, launch, host(), free_port(), 0)
    env = environment(launch, command, pool, known, 0, host())
    child = start(command, known, env, work)
    try:
        for chunk in output(child):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
        code = finish(child)
    finally:
        end(child)
    return (command["role"], code) if code else None


def placed(launch: Any, root: Path) -> tuple[str, int] | None:
    """Every command on each node of its pool. (role, code) of the first that failed."""
    import ray  # type: ignore[import-not-found,unused-ignore]
    from ray.util.placement_group import (  # type: ignore[import-not-found,unused-ignore]
        placement_group,
    )
    from ray.util.scheduling_strategies import (  # type: ignore[import-not-found,unused-ignore]
        PlacementGroupSchedulingStrategy,
    )

    ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    hear_term()
    pools = launch["pools"]
    bundles = [bundle(pool) for pool in pools for _ in range(pool["nodes"])]
    cards = any(pool["series"] != "cpu" for pool in pools)
    group = placement_group(bundles, strategy="STRICT_SPREAD" if cards and len(bundles) > 1 else "SPREAD")
    wait_for(ray, group, bundles)
    actor = ray.remote(Node)
    nodes = []  # (pool, rank in the pool, actor)
    for index, (pool, rank) in enumerate((one, n) for one in pools for n in range(one["nodes"])):
        where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        need = {name: value for name, value in bundles[index].items() if name not in ("CPU", "GPU")}
        options = {"num_cpus": bundles[index]["CPU"], "num_gpus": bundles[index].get("GPU", 0)}
        made = actor.options(scheduling_strategy=where, resources=need, max_concurrency=8, **options)
        nodes.append((pool, rank, made.remote(launch, str(root), dict(os.environ))))
    heads = {pool["name"]: ray.get(node.host.remote()) for pool, rank, node in nodes if rank == 0}
    head, port = ray.get(nodes[0][2].meet.remote())
    streams = []
    for command in launch["commands"]:
        for number, (pool, rank, node) in enumerate(nodes):
            if pool["name"] == command["pool"]:
                run = node.run.options(num_returns="streaming")
                stream = run.remote(command, pool, rank, number, head, port, heads)
                streams.append((label(launch, command, pool, rank), command["role"], stream))
    lines: queue.Queue[Any] = queue.Queue(maxsize=1000)
    for one in streams:
        threading.Thread(target=follow, args=(ray, lines, *one), daemon=True).start()
    try:
        return written(lines, len(streams))
    finally:
        for _, _, node in nodes:
            node.stop.remote()
        with contextlib.suppress(queue.Empty):  # the last words of those that are ended
            written(lines, 0, time.monotonic() + 2.5)


def bundle(pool: Any) -> dict[str, float]:
    cpu = pool["series"] == "cpu"
    need = {"CPU": pool["gpus_per_node"] if cpu else 1, **pool["resources"]}
    return need if cpu else {**need, "GPU": pool["gpus_per_node"]}


def wait_for(ray: Any, group: Any, bundles: Any) -> None:
    while True:
        ready, _ = ray.wait([group.ready()], timeout=30)
        if ready:
            return
        free = {name: value for name, value in ray.available_resources().items() if name in ("CPU", "GPU")}
        sys.stdout.write(f"tuneport: waits for {len(bundles)} nodes such as {bundles[0]}; free are {free}\n")
        sys.stdout.flush()


def label(launch: Any, command: Any, pool: Any, rank: int) -> str:
    """What stands before each line: the role where there are several, the node where there are several."""
    role = f"{command['role']}| " if len(launch["commands"]) > 1 else ""
    return role + (f"{rank}: " if pool["nodes"] > 1 else "")


def follow(ray: Any, lines: queue.Queue[Any], prefix: str, role: str, stream: Any) -> None:
    """Put what one command writes into the queue, line by line, and at the end (role, exit code)."""
    rest, code = b"", 1
    try:
        for reference in stream:
            chunk = ray.get(reference)
            if isinstance(chunk, int):
                code = chunk
                break
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                lines.put(prefix.encode() + line + b"\n")
        if rest:
            lines.put(prefix.encode() + rest + b"\n")
    except Exception as error:
        lines.put(f"{prefix}tuneport: its node was lost: {type(error).__name__}\n".encode())
    lines.put((role, code))


def written(lines: queue.Queue[Any], left: int, until: float | None = None) -> tuple[str, int] | None:
    """Print the queue until `left` commands have ended well, one fails, or it is empty at time `until`."""
    while left or until is not None:
        item = lines.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
        if isinstance(item, bytes):
            sys.stdout.buffer.write(item)
            sys.stdout.buffer.flush()
        elif until is None and item[1]:
            return (item[0], item[1])
        else:
            left -= 1
    return None


class Node:
    """One node of a pool: starts commands there and hands on what they write."""

    def __init__(self, launch: Any, root: str, environ: dict[str, str]) -> None:
        self.launch, self.root = launch, Path(root)
        self.work: Path | None = None
        self.children: list[subprocess.Popen[bytes]] = []
        # What the job was given; the cards are those that Ray gave this actor.
        os.environ.update({k: v for k, v in environ.items() if k.startswith("TUNEPORT_")})

    def host(self) -> str:
        return host()

    def meet(self) -> tuple[str, int]:
        return host(), free_port()

    def run(
        self, command: Any, pool: Any, rank: int, number: int, head: str, port: int, heads: dict[str, str]
    ) -> Iterator[bytes | int]:
        self.work = self.work or staged(self.root, number)
        known = places(self.root, self.work, self.launch, head, port, number)
        env = environment(self.launch, command, pool, known, rank, heads[pool["name"]])
        if len(self.launch["pools"]) > 1:
            for other in self.launch["pools"]:
                stem = "TUNEPORT_CLUSTER_" + "".join(c if c.isalnum() else "_" for c in other["name"].upper())
                env[f"{stem}_NODES"] = str(other["nodes"])
                env[f"{stem}_GPUS_PER_NODE"] = str(0 if other["series"] == "cpu" else other["gpus_per_node"])
                env[f"{stem}_HEAD_ADDR"] = heads[other["name"]]
        child = start(command, known, env, self.work)
        self.children.append(child)
        yield from output(child)
        yield finish(child)

    def stop(self) -> None:
        for child in self.children:
            end(child)


def host() -> str:
    """This node's address as Ray knows it."""
    import ray  # type: ignore[import-not-found,unused-ignore]

    return str(ray.util.get_node_ip_address())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def staged(root: Path, number: int = 0) -> Path:
    """A copy of the package for the command to run in: Ray shares the original with other jobs."""
    work = root / (f"work-{number}" if number else "work")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(HERE, work, ignore=shutil.ignore_patterns("tuneport-driver.py", "tuneport-launch.json"))
    return work


def places(root: Path, work: Path, launch: Any, head: str, port: int, rank: int) -> dict[str, str]:
    """Reference -> its text, for all that a running job knows."""
    return {
        "output_dir": str(root / "output"),
        "log_dir": str(root / "tensorboard"),
        "work_dir": str(work),
        "report_file": str(root / "report.jsonl"),
        "job_id": os.environ["TUNEPORT_JOB_ID"],
        "attempt": os.environ["TUNEPORT_ATTEMPT"],
        "python": launch["python"] or sys.executable,
        "head_addr": head,
        "head_port": str(port),
        "node_rank": str(rank),
    }


def text(value: Any, known: dict[str, str]) -> str:
    if isinstance(value, str):
        return value
    return str(value.get("prefix", "") + known[value["ref"]] + value.get("suffix", ""))


def environment(
    launch: Any, command: Any, pool: Any, known: dict[str, str], rank: int, head: str
) -> dict[str, str]:
    env = {**os.environ, "PYTHONUNBUFFERED": "1", **launch["env"]}
    env.update({name: text(value, known) for name, value in command["env"].items()})
    if os.sep in known["python"]:
        env["PATH"] = os.path.dirname(known["python"]) + os.pathsep + env.get("PATH", os.defpath)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (known["work_dir"], env.get("PYTHONPATH", ""))))
    cpu = pool["series"] == "cpu"
    env.update(
        {
            "TUNEPORT_ROLE": command["role"],
            "TUNEPORT_OUTPUT_DIR": known["output_dir"],
            "TUNEPORT_LOG_DIR": known["log_dir"],
            "TUNEPORT_REPORT_FILE": known["report_file"],
            "TUNEPORT_CLUSTER_NODES": str(pool["nodes"]),
            "TUNEPORT_CLUSTER_GPUS_PER_NODE": str(0 if cpu else pool["gpus_per_node"]),
            "TUNEPORT_CLUSTER_PROCESSES_PER_NODE": str(pool["gpus_per_node"]),
            "TUNEPORT_CLUSTER_NODE_RANK": str(rank),
            "TUNEPORT_CLUSTER_HEAD_ADDR": head,
            "TUNEPORT_CLUSTER_HEAD_PORT": known["head_port"],
        }
    )
    return env


def start(command: Any, known: dict[str, str], env: dict[str, str], work: Path) -> subprocess.Popen[bytes]:
    argv = [text(value, known) for value in command["argv"]]
    return subprocess.Popen(
        argv,
        cwd=work,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def output(child: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """What a child writes, in pieces, until it and all that it started have closed the pipe."""
    assert child.stdout is not None
    while chunk := os.read(child.stdout.fileno(), 65536):
        yield chunk


def finish(child: subprocess.Popen[bytes]) -> int:
    code = child.wait()
    return code if code >= 0 else 128 - code


def end(child: subprocess.Popen[bytes]) -> None:
    """TERM to the command and what it started, and KILL two seconds later to what is left."""
    if child.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            return
        try:
            child.wait(2)
        except subprocess.TimeoutExpired:
            continue


if __name__ == "__main__":
    sys.exit(main())
