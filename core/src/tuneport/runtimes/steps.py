"""Runs one step of an installation, and says in a sentence why it failed."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tuneport.runtimes.progress import Progress

_DROPPED = ("PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
_MISPLACED = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON")
_OFFLINE = (
    "NewConnectionError",
    "ConnectTimeoutError",
    "ProxyError",
    "Temporary failure in name resolution",
    "Connection refused",
    "Network is unreachable",
)


def environment() -> dict[str, str]:
    """This process's environment without what makes pip install elsewhere; its other settings stand."""
    environ = {key: value for key, value in os.environ.items() if key not in (*_DROPPED, *_MISPLACED)}
    environ["PIP_USER"] = "0"
    return environ


def call(argv: Sequence[str], *, folder: Path, log: int, lock: int, progress: Progress) -> int:
    """Run `argv` in `folder`, its output to the descriptor `log` and the progress line; its exit code.

    The child shares the descriptor `lock`, so that nobody builds over it should this process be killed;
    the broken pipe then ends it. It has its own session, so that Ctrl-C gets one message, ours.
    """
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(),
        cwd=folder,
        start_new_session=True,
        pass_fds=[lock],
    )
    assert child.stdout is not None
    try:
        _follow(child.stdout.fileno(), log, progress)
        return child.wait()
    finally:
        if child.poll() is None:
            _end(child)
        child.stdout.close()


def is_full(text: str) -> bool:
    """True where an installer's words mean that the disk is full."""
    return "No space left on device" in text or "Disk quota exceeded" in text


def explain(text: str, code: int) -> tuple[str, str]:
    """(what went wrong, what to do) from the last words of pip and its exit code."""
    if any(sign in text for sign in _OFFLINE):
        return "the package index cannot be reached", "check the network and pip's own configuration"
    if "No matching distribution" in text or "Could not find a version" in text:
        unknown = "(from versions: none)" in text
        hint = "if its name is right, check the network" if unknown else "see pip's own words above"
        return "a pinned package is not to be had for this Python and machine", hint
    if code < 0:
        return f"pip was ended by signal {-code}", "look for a memory limit, then repeat the command"
    return f"pip failed with code {code}", "see pip's own words above"


def _follow(source: int, log: int, progress: Progress) -> None:
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        while True:
            if not selector.select(timeout=1.0):
                progress.tick()
                continue
            chunk = os.read(source, 65536)
            if not chunk:
                break
            os.write(log, chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                progress.line(line.decode("utf-8", "replace"))
    progress.line(rest.decode("utf-8", "replace"))


def _end(child: subprocess.Popen[bytes]) -> None:
    for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(patience)
            return
