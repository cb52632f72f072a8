"""Runs one command on a Ray cluster made of the job's own nodes. Shipped with a plan that has several.

The first node starts the cluster, waits until every node has joined, and runs the command there; the
others join and stay until it ends. Where RAY_ADDRESS is set a cluster is there already, and the command
just runs. Standard library only; `ray` is the release's own.

    python tuneport-cluster.py NODES NODE_RANK HEAD_ADDR HEAD_PORT -- COMMAND…
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

WAIT = 900.0
"""Seconds for all nodes to join, and for the head to come up."""


def main(argv: list[str]) -> int:
    nodes, rank, address, port = int(argv[0]), int(argv[1]), argv[2], argv[3]
    command = argv[argv.index("--") + 1 :]
    if os.environ.get("RAY_ADDRESS"):
        return run(command)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if rank:
        return join(f"{address}:{port}")
    ray("start", "--head", f"--node-ip-address={address}", f"--port={port}", "--disable-usage-stats")
    try:
        wait_for(nodes, f"{address}:{port}")
        os.environ["RAY_ADDRESS"] = f"{address}:{port}"
        return run(command)
    finally:
        ray("stop", check=False)


def join(address: str) -> int:
    """Stay in the cluster until its head ends; a head that is not up yet is waited for."""
    deadline = time.monotonic() + WAIT
    while not there(address):
        if time.monotonic() > deadline:
            sys.exit(f"tuneport: no Ray cluster came up at {address} within {WAIT:.0f} s")
        time.sleep(2)
    words = ("start", f"--address={address}", "--block", "--disable-usage-stats")
    while True:
        node = subprocess.Popen([sys.executable, "-m", "ray.scripts.scripts", *words])
        missed = 0
        try:
            while node.poll() is None and missed < 3:  # `--block` may outlive the cluster
                time.sleep(5)
                missed = 0 if there(address) else missed + 1
        finally:
            leave(node)
        if not there(address):
            return 0  # the head is gone, which is how the job ends
        if time.monotonic() > deadline:
            return node.returncode
        time.sleep(5)


def leave(node: subprocess.Popen[bytes]) -> None:
    """End `ray start --block`, which ends what it started."""
    node.terminate()
    try:
        node.wait(20)
    except subprocess.TimeoutExpired:
        node.kill()
        node.wait()


def there(address: str) -> bool:
    """Whether the head's port answers."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except OSError:
        return False
    return True


def wait_for(nodes: int, address: str) -> None:
    deadline = time.monotonic() + WAIT
    count = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False); " + (
        "print(sum(node['Alive'] for node in ray.nodes()))"
    )
    while True:
        found = subprocess.run([sys.executable, "-c", count, address], capture_output=True, text=True)
        alive = int(found.stdout.split()[-1]) if found.returncode == 0 and found.stdout.split() else 0
        say(f"{alive} of {nodes} nodes have joined the Ray cluster")
        if alive >= nodes:
            return
        if time.monotonic() > deadline:
            sys.exit(f"tuneport: only {alive} of {nodes} nodes joined the Ray cluster within {WAIT:.0f} s")
        time.sleep(5)


def say(text: str) -> None:
    sys.stdout.write(f"tuneport: {text}\n")
    sys.stdout.flush()


def ray(*words: str, check: bool = True) -> int:
    """Ray's own command, through the interpreter that runs this file."""
    code = subprocess.run([sys.executable, "-m", "ray.scripts.scripts", *words]).returncode
    if check and code:
        sys.exit(code)
    return code


def run(command: list[str]) -> int:
    return subprocess.run([sys.executable, *command]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
