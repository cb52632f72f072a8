"""Starts one command of a job, at most once whatever dies when."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NoReturn, TypeAlias

from tuneport.fleets import faults
from tuneport.fleets.disk import sync_folder, write_all
from tuneport.fleets.faults import fault
from tuneport.fleets.layout import Folder
from tuneport.fleets.procs import myself

Ending: TypeAlias = Literal["SUCCEEDED", "FAILED", "STOPPED"]
CANNOT_RUN = 127


def start(folder: Folder, role: str, argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
    """Fork the command of a role; its output goes straight to its log file.

    Returns its process id, and what kept it from running (empty when it runs). Comes back when the
    command has been executed, so the supervisor lock, which the child inherits until then, tells others
    that a start is under way even if this process dies.
    """
    report, answer = os.pipe()
    fault("role-fork")
    pid = os.fork()
    if pid == 0:
        _become(folder, role, argv, env, answer)
    fault("role-forked")
    os.close(answer)
    problem = b""
    while chunk := os.read(report, 4096):
        problem += chunk
    os.close(report)
    return pid, problem.decode(errors="replace")


def _become(folder: Folder, role: str, argv: Sequence[str], env: Mapping[str, str], answer: int) -> NoReturn:
    """Turn this process into the command. Never returns, never runs the caller's clean-up."""
    try:
        faults.enter("role")
        os.setsid()
        _streams(folder.log(role))
        os.chdir(folder.work)
        _mark(folder.begun(role))
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        fault("role-exec")
        os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606 - a shell is what must not be there
    except FileExistsError:
        _say(answer, "it was started before")
    except BaseException as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        _say(answer, f"cannot run {argv[0]!r}: {reason or error}")
    os._exit(CANNOT_RUN)


def _streams(log: Path) -> None:
    """Nothing to read, and one file, only ever appended to, for both outputs."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
        os.set_inheritable(target, True)


def _mark(path: Path) -> None:
    """Claim the start for good. Only one process ever gets past this line."""
    fault("begun-mark")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fault("begun-write")
    write_all(descriptor, json.dumps({**myself().to_json(), "time": time.time()}).encode())
    os.fsync(descriptor)
    os.close(descriptor)
    sync_folder(path.parent)
    fault("begun-write")


def _say(answer: int, problem: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"tuneport: {problem}\n".encode(errors="replace"))
    with contextlib.suppress(OSError):
        os.write(answer, problem.encode(errors="replace"))


def ending(role: str, code: int) -> str:
    """Why a role ended, in words. `code` is negative for a signal."""
    if code >= 0:
        return f"{role} ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    memory = " (the kernel does this when memory runs out)" if -code == signal.SIGKILL else ""
    return f"{role} was killed by {name}{memory}"
