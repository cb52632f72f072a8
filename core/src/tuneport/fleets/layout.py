"""Where the local fleet keeps a job, and what the files there say about it.

    jobs/<id>/source/          the experiment as it was planned, never changed again
    jobs/<id>/<attempt>/work/  its copy that the job runs in; beside it output/, tensorboard/, report.jsonl
                               and logs/<role>.log
    jobs/<id>/<attempt>/       claim.lock (held while submitting), supervisor.lock (held by the supervisor),
                               launch.json, supervisor.json, waiting.json, begun-<role>.json, stop.json,
                               exit.json
    leases/<machine>/          one ticket per waiting or running job

`begun-<role>.json` is created, exclusively, by the process that is about to become the role's command:
where one exists the job is never started again. `exit.json` appears by rename and is final.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneport.errors import NotFound
from tuneport.fleets.disk import read_json
from tuneport.fleets.procs import Ident, ident_from_json
from tuneport.settings import state_dir


def jobs_root() -> Path:
    return state_dir() / "jobs"


def key_of(job: str, attempt: int) -> str:
    """The submission key: the job's id and the attempt's number."""
    return f"{job}-{attempt}"


def split_key(key: str) -> tuple[str, int]:
    """Raises:
    NotFound: `key` is not one that `key_of` made.
    """
    job, _, attempt = key.rpartition("-")
    if not job or not attempt.isascii() or not attempt.isdigit() or job.startswith(".") or "/" in job:
        raise NotFound(f"{key!r} is not the key of a local job", code="job-not-found")
    return job, int(attempt)


# One look reads these of hundreds of jobs, so by name: to make a Path takes longer than to find no file.
_SUPERVISOR, _EXIT = "supervisor.json", "exit.json"


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of one attempt, in the folder `place`."""

    place: str

    @property
    def path(self) -> Path:
        return Path(self.place)

    @classmethod
    def of(cls, key: str, root: Path | None = None) -> Folder:
        """`root` is `jobs_root()`, for who asks about many."""
        job, attempt = split_key(key)
        return cls(f"{root or jobs_root()}/{job}/{attempt}")

    @property
    def key(self) -> str:
        return key_of(self.path.parent.name, int(self.path.name))

    @property
    def source(self) -> Path:
        return self.path.parent / "source"

    @property
    def work(self) -> Path:
        return self.path / "work"

    @property
    def output(self) -> Path:
        return self.path / "output"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def report(self) -> Path:
        return self.path / "report.jsonl"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def modules(self) -> Path:
        """On the job's PYTHONPATH."""
        return self.path / "modules"

    @property
    def claim(self) -> Path:
        return self.path / "claim.lock"

    @property
    def lock(self) -> Path:
        return self.path / "supervisor.lock"

    @property
    def launch(self) -> Path:
        return self.path / "launch.json"

    @property
    def supervisor(self) -> Path:
        return self.path / _SUPERVISOR

    @property
    def waiting(self) -> Path:
        return self.path / "waiting.json"

    @property
    def stop(self) -> Path:
        return self.path / "stop.json"

    @property
    def reserve(self) -> Path:
        return self.path / "exit.reserve"

    @property
    def exit(self) -> Path:
        return self.path / _EXIT

    def log(self, role: str) -> Path:
        return self.logs / f"{role}.log"

    def begun(self, role: str) -> Path:
        return self.path / f"begun-{role}.json"

    def supervised_by(self) -> Ident | None:
        return ident_from_json(read_json(f"{self.place}/{_SUPERVISOR}"))

    def ended(self) -> Any:
        """The exit record; None where there is none."""
        return read_json(f"{self.place}/{_EXIT}")

    def started(self) -> dict[str, Any]:
        """Role -> what its process wrote just before it became the command; {} where nothing has begun.
        The record of a process that died while writing it is None."""
        try:
            names = os.listdir(self.place)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return {}
        return {
            name[len("begun-") : -len(".json")]: read_json(f"{self.place}/{name}")
            for name in names
            if name.startswith("begun-") and name.endswith(".json")
        }

    def roots(self) -> list[Ident]:
        idents = (ident_from_json(record) for record in self.started().values())
        return [ident for ident in idents if ident is not None]
