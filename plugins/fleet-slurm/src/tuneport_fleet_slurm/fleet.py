"""Plans on a Slurm cluster whose nodes see the same folders as this machine: a login node, mostly.

What makes a batch script is imported where it is needed: who looks at jobs makes none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneport.errors import Unavailable
from tuneport.fleets import disk
from tuneport.fleets.failure import NotStarted
from tuneport.fleets.layout import Folder, jobs_root, split_key
from tuneport.fleets.procs import user_name
from tuneport.fleets.protocol import TERMINAL, Capabilities, LogLine, Probe, Status
from tuneport.fleets.record import read_exit
from tuneport.fleets.tail import lines
from tuneport.settings import private_dir, state_dir

from tuneport_fleet_slurm import states
from tuneport_fleet_slurm.engine import Engine, Row, exit_code
from tuneport_fleet_slurm.settings import SETTINGS

if TYPE_CHECKING:
    from tuneport.types import LaunchPlan

_SCRIPT = "job.sh"
_LOOK = 3.0
"""Seconds between two questions about a job whose log is followed."""


class SlurmFleet:
    """See `tuneport.fleets.protocol.Fleet`. A submission's key is the job's name; a handle is `key@number`,
    or the key alone where no number is known."""

    name = "slurm"
    SETTINGS = SETTINGS

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._engine = Engine(float(settings.get("timeout", 30)))

    @staticmethod
    def shown_folders(settings: Mapping[str, Any], image: str, mounts: Sequence[str]) -> list[str]:
        """What jobs in containers see; the home folder and /tmp, too, where the site does not forbid that."""
        if not (image or settings.get("containers")):
            return []
        every = ",".join((*settings.get("mounts", ()), *mounts)).split(",")  # one entry may hold several
        binds = [[*bind.split(":"), ""] for bind in every if bind]
        inside = [target or source for source, target, *_ in binds]
        return [*inside, *map(str, _stores()), str(Path.home()), "/tmp"]  # noqa: S108 - on the nodes

    def capabilities(self) -> Capabilities:
        from tuneport_fleet_slurm import check

        return Capabilities(
            name=self.name,
            kind="slurm",
            multi_node=True,
            accelerators=sum(count for _, count in check.nodes(self._engine, self._settings)),
            runtimes=check.runtimes(self._engine, self._settings),
        )

    def probes(self) -> Iterator[Probe]:
        from tuneport_fleet_slurm import check

        return check.probes(self._engine, self._settings, self._root())

    def refuse(self, plan: LaunchPlan) -> None:
        """Say, before anything is recorded, why this plan cannot run here.

        Raises:
            Unavailable: Slurm's commands, the environment or the image are missing.
            Invalid: no batch script can carry what the plan holds.
            NotFound, Untrusted: a dataset version or a job's output is missing, or was changed.
        """
        from tuneport.fleets.resolve import refuse_unusable

        refuse_unusable(plan)
        self.render(plan, "refuse-1")
        if not self._engine.has("sbatch"):
            self._engine.run("sbatch", "--version")

    def render(self, plan: LaunchPlan, key: str) -> Mapping[str, Any]:
        """`script`, the batch script; `files`, what is written into the work folder first.

        Raises:
            Invalid: a secret would be in the script.
        """
        from tuneport.compiler.plan import plan_digest
        from tuneport.fleets import stage
        from tuneport.fleets.files import render as file_bytes
        from tuneport.fleets.resolve import PLACED, at_submit, refuse_late, resolve_all

        from tuneport_fleet_slurm.runtime import choose
        from tuneport_fleet_slurm.script import script

        stage.refuse_secret_values(plan, self._settings.get("environment", {}))
        folder = self._folder(key)
        job, attempt = split_key(key)
        runtime = choose(plan, self._settings, [folder.path.parent, *_stores()])
        commands = resolve_all(plan.commands, at_submit(folder, job, attempt, runtime.python, PLACED))
        refuse_late(commands)
        files = {name: file_bytes(spec).decode() for item in commands for name, spec in item.files.items()}
        return {
            "fleet": self.name,
            "key": key,
            "command": ["sbatch", "--parsable", str(folder.path / _SCRIPT)],
            "script": script(plan, commands, folder, self._settings, runtime, plan_digest(plan)),
            "files": files,
            "experiment": dict(plan.source),
        }

    def show(self, request: Mapping[str, Any]) -> str:
        """The request as an administrator reads it."""
        count = len(request["experiment"]), len(request["files"])
        head = (
            f"{' '.join(request['command'])}   # {count[0]} files of the experiment, {count[1]} of the plan"
        )
        return f"{head}\n\n{request['script'].rstrip()}"

    def submit(self, request: Mapping[str, Any], key: str) -> str:
        """Hand `request` to sbatch, once: a job with this name that Slurm knows is this one.

        Raises:
            NotStarted: Slurm cannot be asked; try again. Unavailable: Slurm refuses the job.
            Untrusted: the experiment changed since planning.
        """
        from tuneport.fleets import stage

        folder = self._folder(key)
        private_dir(state_dir())
        disk.folder(folder.path, "job-folder")
        self._link(folder)
        with disk.locked(folder.claim):
            try:
                known = self.find(key)
            except Unavailable as error:  # it may have been sent: not again before that is known
                raise NotStarted(error.message, code=error.code, hint=error.hint) from error
            if known is not None or folder.stop.exists():
                return known or key
            origin = request.get("source")
            stage.keep_source(folder, Path(origin) if origin else None, request["experiment"])
            stage.prepare(folder, request["experiment"])
            for name, text in request["files"].items():
                path = folder.work / name
                disk.folder(path.parent, "plan-file")
                disk.publish(path, text.encode(), "plan-file", durable=False)
            disk.publish(folder.path / _SCRIPT, request["script"].encode(), "launch-record", mode=0o700)
            number = self._engine.submit(str(folder.path / _SCRIPT), str(folder.work))
        return f"{key}@{number}"

    def find(self, key: str) -> str | None:
        folder = self._folder(key)
        if not folder.path.is_dir():
            return None
        number = _own_number(folder)
        if number:
            return f"{key}@{number}"
        rows = self._engine.queue([key]) or self._engine.accounting([key])
        return f"{key}@{_chosen(rows, '').id}" if rows else None

    def poll(self, handles: Sequence[str]) -> Mapping[str, Status]:
        keys = {handle: handle.partition("@")[0] for handle in handles}
        rows: dict[str, list[Row]] = {}
        for row in self._engine.queue(keys.values()):
            rows.setdefault(row.key, []).append(row)
        forgotten = [key for key in keys.values() if key not in rows and not read_exit(self._folder(key))]
        for row in self._engine.accounting(forgotten):
            rows.setdefault(row.key, []).append(row)
        return {handle: self._status(handle, rows.get(key, [])) for handle, key in keys.items()}

    def logs(self, handle: str, *, role: str, since: int = 0, follow: bool = False) -> Iterator[LogLine]:
        path = self._folder(handle.partition("@")[0]).log(role)
        return lines(path, role, since, self._over(handle) if follow else lambda: True)

    def cancel(self, handle: str) -> None:
        key = handle.partition("@")[0]
        folder = self._folder(key)
        private_dir(state_dir())
        disk.folder(folder.path, "job-folder")
        if read_exit(folder) is None:
            disk.publish_json(folder.stop, {"time": time.time(), "by": user_name()}, "stop-mark")
        patience, asked = time.monotonic() + 180, 0.0
        while numbers := [row.id for row in self._engine.queue([key]) if row.state in states.ACTIVE]:
            if time.monotonic() > patience:
                raise Unavailable(
                    f"Slurm job {', '.join(numbers)} has been told to end and still does",
                    code="job-not-ended",
                    hint=f"scontrol show job {numbers[0]} says what it waits for",
                )
            if time.monotonic() - asked > 10:
                self._engine.cancel(numbers)
                asked = time.monotonic()
            time.sleep(0.5)

    def output_dir(self, handle: str) -> Path:
        return self._folder(handle.partition("@")[0]).output

    def metric_files(self, handle: str) -> list[Path]:
        """Where a job's curves are: the folder of TensorBoard files, and the report file."""
        folder = self._folder(handle.partition("@")[0])
        return [folder.tensorboard, folder.report]

    def _root(self) -> Path:
        named = self._settings.get("storage")
        return Path(named) / "jobs" if named else jobs_root()

    def _folder(self, key: str) -> Folder:
        job, attempt = split_key(key)
        return Folder(f"{self._root()}/{job}/{attempt}")

    def _link(self, folder: Folder) -> None:
        """Let a job that refers to this one's output find it where all jobs are."""
        job = folder.path.parent
        place = jobs_root() / job.name
        if place != job and not place.exists():
            disk.folder(place.parent, "job-folder")
            place.symlink_to(job)

    def _status(self, handle: str, rows: Sequence[Row]) -> Status:
        key, _, number = handle.partition("@")
        if len(rows) == 1 and rows[0].state == "RUNNING":  # most jobs, about which no file has to be asked
            return states.status(rows[0], None, begun=True)
        folder = self._folder(key)
        ran = read_exit(folder)
        begun = (folder.path / "slurm-job").exists()
        if rows:
            row = _chosen(rows, _own_number(folder) or number)
            if row.code is None and row.state not in states.ACTIVE and row.state != "COMPLETED":
                code = exit_code(self._engine.details(row.id).get("ExitCode", ""))
                row = Row(row.id, key, row.state, row.reason, row.started, row.ended, code)
            return states.status(row, ran, begun=begun)
        if ran is not None:
            return ran
        if folder.stop.exists() and not begun:
            return Status("STOPPED", "stopped before it started")
        if number or begun:
            return Status("UNKNOWN", f"Slurm has forgotten job {number}, and it left no record of its end")
        return Status("ACCEPTED", "nothing has been started yet")

    def _over(self, handle: str) -> Any:
        """Whether a job has ended, asked at most every few seconds; lost contact is no end."""
        asked, ended = 0.0, False

        def over() -> bool:
            nonlocal asked, ended
            if not ended and time.monotonic() - asked > _LOOK:
                try:
                    ended = self.poll([handle])[handle].state in (*TERMINAL, "UNKNOWN")
                except Unavailable:
                    ended = False
                asked = time.monotonic()
            return ended

        return over


def _own_number(folder: Folder) -> str:
    """The number of the Slurm job that runs this submission, as it wrote itself."""
    try:
        return (folder.path / "slurm-job").read_text().strip()
    except OSError:
        return ""


def _chosen(rows: Sequence[Row], number: str) -> Row:
    """Of several jobs with one name the one that is meant: the number's, else one that may still run."""
    order = sorted(rows, key=lambda row: (row.id != number, row.state not in states.ACTIVE, int(row.id)))
    return order[0]


def _stores() -> list[Path]:
    """What a container has to see beside the job: datasets and environments."""
    from tuneport.settings import cache_dir

    return [state_dir(), cache_dir()]
