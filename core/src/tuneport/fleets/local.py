"""The local fleet: plans run as processes of this machine, each under a supervisor that outlives `tp`.

Settings (all optional): `gpus` (how many cards, or their indexes; by default what nvidia-smi lists),
`max_jobs`, `max_cpu_jobs` (see `leases.limits`), `stop_grace` (seconds between asking a job's processes
to end and ending them, 10), `linger` (seconds that a finished command's background processes may go on, 5).

What starts a job is imported where it is needed: who looks at jobs starts none.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneport.errors import Invalid, Unavailable
from tuneport.fleets import disk, outlook
from tuneport.fleets.failure import NotStarted
from tuneport.fleets.faults import fault
from tuneport.fleets.layout import Folder, jobs_root, split_key
from tuneport.fleets.leases import Need, limits
from tuneport.fleets.procs import MARK, SUPERVISOR_MARK, Ident, alive, elsewhere, end_all, send, user_name
from tuneport.fleets.protocol import TERMINAL, Capabilities, LogLine, Status
from tuneport.fleets.record import read_exit, write_exit
from tuneport.fleets.tail import lines
from tuneport.settings import private_dir, state_dir

if TYPE_CHECKING:
    from tuneport.types import LaunchPlan


class LocalFleet:
    """See `tuneport.fleets.protocol.Fleet`. A handle is the submission's key."""

    name = "local"

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._max_jobs, self._max_cpu_jobs = limits(settings)
        self._grace = _seconds(settings, "stop_grace", 10.0)
        self._linger = _seconds(settings, "linger", 5.0)

    def capabilities(self) -> Capabilities:
        from tuneport.fleets.cards import cards

        return Capabilities(
            name=self.name,
            kind="local",
            multi_node=False,
            accelerators=len(cards(self._settings)),
            runtimes=("venv",),
        )

    def refuse(self, plan: LaunchPlan) -> None:
        """Say, before anything is recorded, why this plan cannot run here.

        Raises:
            Unavailable: cards, nodes or the runtime are missing.
            Invalid: no process can be given what the plan holds.
            NotFound, Untrusted: a dataset version or a job's output is missing, or was changed.
        """
        from tuneport.fleets.resolve import at_submit, interpreter, refuse_unusable, resolve_all

        refuse_unusable(plan)
        self._usable_cards(plan)
        python = interpreter(plan.runtime)
        # Whatever the plan refers to must be there; the folders of this made-up key are never made.
        resolve_all(plan.commands, at_submit(Folder.of("refuse-1"), "refuse", 1, python))

    def render(self, plan: LaunchPlan, key: str) -> Mapping[str, Any]:
        from tuneport.compiler.plan import plan_to_json

        return {"fleet": self.name, "key": key, "plan": plan_to_json(plan)}

    def submit(self, request: Mapping[str, Any], key: str) -> str:
        """Start `request["plan"]`. Further entries: `source`, the experiment folder, and `order`, the
        position of the intent among all intents.

        Raises:
            NotStarted: the supervisor could not be started; try again.
            Unavailable, Invalid, NotFound, Untrusted: see `refuse`; the experiment changed since planning;
                a dataset or a job's output that does not exist.
        """
        folder = Folder.of(key)
        private_dir(state_dir())
        disk.folder(folder.path, "job-folder")
        with disk.locked(folder.claim):
            if outlook.taken(folder):
                return key
            if folder.stop.exists():  # whoever asked for that died before recording it
                self.cancel(key)
                return key
            if not folder.launch.exists():
                self._stage(folder, request)
            _start_supervisor(folder)
        return key

    def find(self, key: str) -> str | None:
        folder = Folder.of(key)
        if not folder.path.is_dir():
            return None
        with disk.locked(folder.claim, timeout=0) as free:
            return None if free and not outlook.taken(folder) else key

    def poll(self, handles: Sequence[str]) -> Mapping[str, Status]:
        root = jobs_root()
        return {handle: outlook.look(Folder.of(handle, root)) for handle in handles}

    def logs(self, handle: str, *, role: str, since: int = 0, follow: bool = False) -> Iterator[LogLine]:
        folder = Folder.of(handle)

        def over() -> bool:
            return outlook.status(folder).state in (*TERMINAL, "UNKNOWN")

        return lines(folder.log(role), role, since, over if follow else lambda: True)

    def cancel(self, handle: str) -> None:
        folder = Folder.of(handle)
        if read_exit(folder) is None:
            private_dir(state_dir())
            disk.folder(folder.path, "job-folder")
            mark = {"time": time.time(), "by": user_name()}
            disk.publish_json(folder.stop, mark, "stop-mark")
        asked: Ident | None = None
        patience = time.monotonic() + self._grace + 60
        while True:
            supervisor = folder.supervised_by()
            if supervisor is not None and alive(supervisor):
                if asked != supervisor:
                    send(supervisor.pid, signal.SIGTERM)
                    for ident in (supervisor, *folder.roots()):  # they may have been suspended
                        if alive(ident):
                            send(ident.pid, signal.SIGCONT)
                    asked = supervisor
                if time.monotonic() > patience:
                    send(supervisor.pid, signal.SIGKILL)
            elif supervisor is not None and elsewhere(supervisor) and read_exit(folder) is None:
                raise Unavailable(
                    f"{handle} was submitted on {supervisor.host}",
                    code="job-elsewhere",
                    hint="run the same command there; the wish to stop is recorded",
                )
            elif self._finish(folder):
                return
            time.sleep(0.02)

    def output_dir(self, handle: str) -> Path:
        return Folder.of(handle).output

    def metric_files(self, handle: str) -> list[Path]:
        """Where a job's curves are: the folder of TensorBoard files, and the report file."""
        folder = Folder.of(handle)
        return [folder.tensorboard, folder.report]

    def _usable_cards(self, plan: LaunchPlan) -> tuple[int, ...]:
        from tuneport.fleets.cards import cards, cards_needed, fitting

        if not Path("/proc/self/stat").exists():
            raise Unavailable(
                "the local fleet needs Linux: it finds the processes of a job under /proc",
                code="fleet-needs-linux",
                hint="plan and validate here, and submit on a Linux machine or to another fleet",
            )
        present = cards(self._settings) if cards_needed(plan.pools) else ()
        return fitting(plan.pools, present)

    def _finish(self, folder: Folder) -> bool:
        """End what an unsupervised attempt left, and record that. False where it has to be tried again."""
        end_all(lambda: outlook.processes(folder), self._grace)
        lock = disk.try_lock(folder.lock)
        if lock is None:  # a supervisor that is starting, which will see the mark
            return False
        try:
            if read_exit(folder) is None:
                if outlook.processes(folder):
                    return False
                mark = disk.read_json(folder.stop) or {}
                fault("stop-record")
                begun = bool(folder.started())
                cause = f"stopped by {mark.get('by', 'request')}" + ("" if begun else " before it started")
                write_exit(folder, "STOPPED", cause, started=outlook.status(folder).started)
            outlook.leases().leave(folder.key)
            return True
        finally:
            os.close(lock)

    def _stage(self, folder: Folder, request: Mapping[str, Any]) -> None:
        from tuneport.compiler.plan import plan_from_json
        from tuneport.fleets import stage
        from tuneport.fleets.cards import cards_needed
        from tuneport.fleets.launch import Launch
        from tuneport.fleets.resolve import at_submit, interpreter, refuse_unusable, resolve_all

        plan = plan_from_json(request["plan"])
        refuse_unusable(plan)
        usable = self._usable_cards(plan)
        python = interpreter(plan.runtime)
        job, attempt = split_key(folder.key)
        commands = resolve_all(plan.commands, at_submit(folder, job, attempt, python))
        origin = request.get("source")
        stage.keep_source(folder, Path(origin) if origin else None, plan.source)
        stage.prepare(folder, plan.source)
        need = Need(
            key=folder.key,
            order=int(request.get("order", time.time())),
            cards=cards_needed(plan.pools),
            usable=usable,
            max_jobs=self._max_jobs,
            max_cpu_jobs=self._max_cpu_jobs,
        )
        venv = "" if plan.runtime.host else str(python.parent.parent)
        launch = Launch(need, plan.pools, commands, venv, self._grace, self._linger)
        disk.publish_json(folder.launch, launch.to_json(), "launch-record")


def _start_supervisor(folder: Folder) -> None:
    import subprocess

    env = {name: value for name, value in os.environ.items() if name != MARK}
    env |= {SUPERVISOR_MARK: folder.key, "TUNEPORT_STATE_DIR": str(state_dir())}
    command = [sys.executable, "-P", "-m", "tuneport.fleets.supervisor", folder.key]
    talk = folder.path / "supervisor.log"
    fault("supervisor-spawn")
    with talk.open("ab") as output:
        before = output.tell()
        try:
            # Not `run`, which would kill it on Ctrl-C.
            code = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                start_new_session=True,
            ).wait()
        except OSError as error:
            raise NotStarted(
                f"cannot start a supervisor: {error.strerror}", code="supervisor-not-started"
            ) from error
    fault("supervisor-spawned")
    if code:
        said = talk.read_bytes()[before:].decode(errors="replace").strip().splitlines()
        raise NotStarted(
            said[-1] if said else f"the supervisor ended with {code} while it was starting",
            code="supervisor-not-started",
            hint=f"see {talk}",
        )


def _seconds(settings: Mapping[str, Any], name: str, default: float) -> float:
    value = settings.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e6:
        raise Invalid(
            f"fleet setting {name} must be a number of seconds, not {value!r}", code="fleet-setting"
        )
    return float(value)
