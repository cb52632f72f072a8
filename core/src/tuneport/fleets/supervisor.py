"""The process that stays with one attempt: waits for its turn, starts it, records how it ended.

Run as `python -m tuneport.fleets.supervisor KEY` by whoever submits or recovers the job. Any number may
be started for one key: the lock lets one live, and the marks of `role` let none start a job again.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import time

from tuneport.errors import TuneportError
from tuneport.fleets import disk, faults, role
from tuneport.fleets.faults import fault
from tuneport.fleets.files import render
from tuneport.fleets.launch import Launch, environment, launch_from_json, share
from tuneport.fleets.layout import Folder
from tuneport.fleets.leases import Leases
from tuneport.fleets.outlook import leases
from tuneport.fleets.procs import descendants, end_all, myself
from tuneport.fleets.record import SIZE, read_exit, write_exit
from tuneport.fleets.resolve import at_start, resolve_all
from tuneport.types import Command

_HEARD = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_PR_SET_CHILD_SUBREAPER = 36


def main(key: str) -> int:
    """Detach and supervise. Returns, in the process that was started, 0 once the job is in good hands."""
    faults.enter("supervisor")
    folder = Folder.of(key)
    lock = disk.try_lock(folder.lock)
    if lock is None:
        return 0  # another supervisor lives, or a command is being executed this moment
    fault("supervisor-locked")
    if read_exit(folder) or folder.started():
        return 0
    ready, answer = os.pipe()
    fault("supervisor-detach")
    if os.fork():
        os.close(answer)
        return _verdict(ready)
    os.close(ready)
    _Supervisor(folder, answer).live()
    return 0


def _verdict(ready: int) -> int:
    """What the detached process says of its start."""
    said = b""
    while chunk := os.read(ready, 4096):
        said += chunk
    if said == b"ok":
        return 0
    sys.stderr.write((said.decode(errors="replace") or "the supervisor died while it was starting") + "\n")
    return 1


class _Supervisor:
    def __init__(self, folder: Folder, answer: int) -> None:
        self._folder = folder
        self._answer = answer
        self._running: dict[int, str] = {}
        self._codes: dict[str, int] = {}
        self._ended: list[str] = []
        self._problems: dict[str, str] = {}
        self._told_to_end = False
        self._interrupted = False
        self._started: float | None = None

    def live(self) -> None:
        os.chdir("/")
        signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        _adopt_orphans()
        try:
            disk.publish_json(self._folder.supervisor, myself().to_json(), "supervisor-record")
            disk.reserve(self._folder.reserve, SIZE, "exit-reserve")
            launch = launch_from_json(disk.read_json(self._folder.launch))
            queue = leases()
            queue.join(launch.need)
            os.write(self._answer, b"ok")
        except Exception as error:
            os.write(self._answer, f"cannot start: {_reason(error)}".encode(errors="replace"))
            return
        finally:
            os.close(self._answer)
        try:
            self._run(launch, queue)
        except Exception as error:
            self._end_family(launch.grace)
            write_exit(self._folder, "FAILED", f"could not be run: {_reason(error)}", started=self._started)
        queue.leave(self._folder.key)

    def _run(self, launch: Launch, queue: Leases) -> None:
        cards = self._wait_for_turn(launch, queue)
        if cards is None:
            if self._folder.stop.exists():
                write_exit(self._folder, "STOPPED", f"{self._stopped_by()} before it started")
            return  # told to end by the machine: whoever looks next starts another supervisor
        self._start(launch, cards)
        remark = ""
        while self._running:
            self._pause(0.5)
            if self._running and (self._stopping() or any(self._codes.values())):
                self._interrupted = self._stopping()
                if killed := self._end_family(launch.grace):
                    remark = f"; {_count(killed)} did not end within {launch.grace:g} s and had to be killed"
        if left := self._end_stragglers(launch):
            remark = f"; {_count(left)} left behind had to be ended"
        state, cause, code = self._judge()
        write_exit(
            self._folder, state, cause + remark, exit_code=code, started=self._started, roles=self._codes
        )

    def _wait_for_turn(self, launch: Launch, queue: Leases) -> tuple[int, ...] | None:
        said = ""
        while not self._stopping():
            grant = queue.ask(launch.need)
            if grant.cards is not None:
                return grant.cards
            if grant.waits_for != said:
                said = grant.waits_for
                note = {"waits_for": said, "time": time.time()}
                with contextlib.suppress(OSError):
                    disk.publish_json(self._folder.waiting, note, "wait-note", durable=False)
            self._pause(min(0.2 + 0.1 * grant.ahead, 3.0))
        return None

    def _start(self, launch: Launch, cards: tuple[int, ...]) -> None:
        port = _free_port()
        parts = share(launch.pools, cards)
        commands = resolve_all(launch.commands, at_start(port))
        for command in commands:
            self._write_files(command)
        for command in commands:
            env = environment(launch, command, self._folder, parts.get(command.pool, ()), port)
            self._started = self._started or time.time()
            # References are resolved by now, so every argument is text.
            pid, problem = role.start(self._folder, command.role, [str(value) for value in command.argv], env)
            self._running[pid] = command.role
            if problem:
                self._problems[command.role] = problem
                break

    def _write_files(self, command: Command) -> None:
        for name, spec in command.files.items():
            path = self._folder.work / name
            disk.folder(path.parent, "plan-file")
            disk.publish(path, render(spec), "plan-file", durable=False)

    def _pause(self, seconds: float) -> None:
        """Wait for a signal or the time, then collect what has ended."""
        heard = signal.sigtimedwait(_HEARD, seconds)
        if heard is not None and heard.si_signo in (signal.SIGTERM, signal.SIGINT):
            self._told_to_end = True
        self._reap()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self._running.pop(pid, None)
            if name is not None:
                self._codes[name] = os.waitstatus_to_exitcode(status)
                self._ended.append(name)

    def _stopping(self) -> bool:
        return self._told_to_end or self._folder.stop.exists()

    def _stopped_by(self) -> str:
        mark = disk.read_json(self._folder.stop)
        if mark is None:
            return "stopped: its supervisor was told to end"
        return f"stopped by {mark.get('by') or 'request'}"

    def _family(self) -> list[int]:
        return sorted({*descendants(os.getpid()), *self._running})

    def _end_family(self, grace: float) -> int:
        killed = end_all(self._family, grace, self._reap)
        self._reap()
        return killed

    def _end_stragglers(self, launch: Launch) -> int:
        """What the commands left behind may finish what it writes; then it has to go, because the cards
        it may hold are leased to the next job."""
        deadline = time.monotonic() + launch.linger
        while self._family() and time.monotonic() < deadline and not self._stopping():
            self._pause(0.05)
        if not self._family():
            return 0
        left = len(self._family())
        self._end_family(launch.grace)
        return left

    def _judge(self) -> tuple[role.Ending, str, int]:
        failed = next((name for name in self._ended if self._codes[name]), "")
        code = self._codes.get(failed, 0)
        shown = code if code >= 0 else 128 - code
        if self._interrupted:  # also where it took the request well and ended with 0
            return "STOPPED", self._stopped_by(), shown
        if not failed:
            return "SUCCEEDED", "ended with exit code 0", 0
        return "FAILED", self._problems.get(failed) or role.ending(failed, code), shown


def _count(processes: int) -> str:
    return f"{processes} process{'es' * (processes != 1)}"


def _adopt_orphans() -> None:
    """Make every descendant, also one that detaches itself, a descendant until it ends."""
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _reason(error: Exception) -> str:
    if isinstance(error, TuneportError):
        return error.message
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f' ({error.filename})' if error.filename else ''}"
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
