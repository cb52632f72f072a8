"""Offers a port of another network namespace on this one's loopback, and asks Ray whether its nodes are up.

forward.py PORT PID TARGET      listens here, connects in the namespace of process PID
forward.py ask PORT NODES       exit code 0 when the Ray behind PORT has so many living nodes
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import sys
import threading
import urllib.request


def pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def serve(client: socket.socket, port: int) -> None:
    with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", port), 10) as there:
        there.settimeout(None)
        back = threading.Thread(target=pump, args=(there, client), daemon=True)
        back.start()
        pump(client, there)
        back.join()


def forward(port: int, pid: int, target: int) -> None:
    listener = socket.create_server(("127.0.0.1", port))
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0x40000000):
        sys.exit(f"setns: {os.strerror(ctypes.get_errno())}")
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, target), daemon=True).start()


def ask(port: int, nodes: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/nodes?view=summary", timeout=5) as answer:
            found = json.load(answer)["data"]["summary"]
    except (OSError, ValueError, KeyError):
        return 1
    return int(sum(node["raylet"].get("state") == "ALIVE" for node in found) != nodes)


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        sys.exit(ask(int(sys.argv[2]), int(sys.argv[3])))
    forward(*map(int, sys.argv[1:4]))
