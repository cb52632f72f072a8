"""Slurm's own commands, each bounded in time, and what they answer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from tuneport.errors import Unavailable
from tuneport.fleets.failure import NotStarted

_KEPT = ("SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS")
_BATCH = 500
"""Jobs that one call asks about. `squeue` loads what the controller has and picks from it by itself, so calls
are what costs it something."""


@dataclass(frozen=True, slots=True)
class Row:
    """A job as squeue or sacct has it. `state` and `reason` are Slurm's words; times in seconds since the
    epoch; `code` the exit code, None where it is not known."""

    id: str
    key: str
    state: str
    reason: str = ""
    started: float | None = None
    ended: float | None = None
    code: int | None = None
    restarts: int = 0


class Engine:
    """`timeout` bounds each call, in seconds."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    def has(self, tool: str) -> bool:
        return shutil.which(tool) is not None

    def run(self, *words: str, cwd: str | None = None) -> str:
        """What a command prints.

        Raises:
            Unavailable: it is not here, says an error, or does not answer in time.
        """
        if not self.has(words[0]):
            raise Unavailable(
                f"{words[0]} is not on this machine",
                code="fleet-tool-missing",
                hint="run tp on a login node of the cluster, with Slurm's commands on PATH",
            )
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._timeout,
                check=False,
                stdin=subprocess.DEVNULL,
                env=environment(),
                cwd=cwd,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(
                f"{words[0]} did not answer within {self._timeout:g} s", code="fleet-unreachable"
            ) from None
        except OSError as error:
            raise Unavailable(
                f"{words[0]} cannot be run: {error.strerror}", code="fleet-tool-missing"
            ) from error
        if done.returncode:
            said = " ".join((done.stderr.strip() or done.stdout).split()) or f"exit code {done.returncode}"
            code = "fleet-unreachable" if _is_contact(said) else "fleet-refused"
            raise Unavailable(f"{words[0]}: {said[:500]}", code=code, hint=_advice(said))
        return done.stdout

    def submit(self, script: str, folder: str) -> str:
        """The number of the new job.

        Raises:
            NotStarted: Slurm could not be asked, so try again. Unavailable: it refuses the job.
        """
        try:
            said = self.run("sbatch", "--parsable", script, cwd=folder)
        except Unavailable as error:
            if error.code == "fleet-unreachable":
                raise NotStarted(error.message, code=error.code, hint=error.hint) from error
            raise
        number = said.strip().splitlines()[-1].partition(";")[0] if said.strip() else ""
        if not number.isdigit():
            raise NotStarted(
                f"sbatch printed {said[:80]!r} where a job's number belongs", code="fleet-answer"
            )
        return number

    def queue(self, keys: Iterable[str]) -> list[Row]:
        """The jobs of this user with these names, as far as the controller knows them."""
        rows: list[Row] = []
        for some in _batches(keys):
            said = self.run(
                "squeue", "--noheader", "--states=all", f"--user={os.getuid()}", f"--name={','.join(some)}",
                "--format=%i|%j|%T|%S|%e|%r",
            )  # fmt: skip
            rows += [row for line in said.splitlines() if (row := _queue_row(line)) and row.key in some]
        return rows

    def details(self, number: str) -> dict[str, str]:
        """The fields of `scontrol show job`; {} for a job that it does not know."""
        try:
            said = self.run("scontrol", "show", "job", number, "--oneliner")
        except Unavailable as error:
            if error.code == "fleet-refused":
                return {}
            raise
        first = said.splitlines()[0] if said.strip() else ""
        return dict(re.findall(r"(?:^| )([A-Za-z:/]+)=(\S*)", first))

    def accounting(self, keys: Iterable[str]) -> list[Row]:
        """What the accounting remembers of these jobs; [] where there is none, and what it said until then
        where it is switched off between two calls."""
        if not self.has("sacct"):
            return []
        since = datetime.fromtimestamp(time.time() - 90 * 86400).strftime("%Y-%m-%d")
        rows: list[Row] = []
        for some in _batches(keys):
            try:
                said = self.run(
                    "sacct", "--allocations", "--noheader", "--parsable2", f"--starttime={since}",
                    f"--name={','.join(some)}", "--format=JobID,JobName,State,Start,End,ExitCode",
                )  # fmt: skip
            except Unavailable as error:
                if error.code == "fleet-unreachable" and "disabled" not in error.message:
                    raise
                return rows
            rows += [row for line in said.splitlines() if (row := _account_row(line)) and row.key in some]
        return rows

    def cancel(self, numbers: Sequence[str]) -> None:
        self.run("scancel", *numbers)


def _batches(keys: Iterable[str]) -> Iterator[dict[str, None]]:
    """The keys, each once, as many at a time as one call asks about."""
    left = iter(dict.fromkeys(keys))
    while some := dict.fromkeys(islice(left, _BATCH)):
        yield some


def environment() -> dict[str, str]:
    """This process's, without the variables that win over the lines of a batch script."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT
        or not name.startswith(("SBATCH_", "SLURM_", "SQUEUE_", "SCANCEL_", "SACCT_", "SRUN_"))
    }


def _queue_row(line: str) -> Row | None:
    fields = line.split("|", 5)
    if len(fields) < 6 or "_" in fields[0]:
        return None
    number, _, component = fields[0].partition("+")
    if component not in ("", "0"):
        return None  # of a heterogeneous job its first component tells
    return Row(number, fields[1], fields[2], fields[5], _time(fields[3]), _time(fields[4]))


def _account_row(line: str) -> Row | None:
    fields = line.split("|")
    if len(fields) < 6:
        return None
    number, _, component = fields[0].partition("+")
    if component not in ("", "0"):
        return None
    state = fields[2].partition(" ")[0]  # `CANCELLED by 1000`
    return Row(number, fields[1], state, "", _time(fields[3]), _time(fields[4]), exit_code(fields[5]))


def exit_code(text: str) -> int | None:
    """`code:signal` as one number, a signal as 128 and more."""
    code, _, signal = text.partition(":")
    if not code.isdigit():
        return None
    return int(code) or (128 + int(signal) if signal.isdigit() and int(signal) else 0)


def _time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


_CONTACT = (
    r"unable to contact|connect failure|connection (refused|timed out)|socket timed out|zero bytes|"
    r"communication|backup controller|not responding|munge|authentication|could not establish a "
    r"configuration source|resolve|try again"
)


def _is_contact(said: str) -> bool:
    return re.search(_CONTACT, said, re.IGNORECASE) is not None


def _advice(said: str) -> str:
    low = said.lower()
    for word, hint in (
        ("munge", "the munge daemon of this machine does not run, or has another key"),
        ("is down", "slurmctld is down: its administrator can say why"),
        ("unable to contact", "slurmctld is down or unreachable: scontrol ping"),
        ("invalid account", "sacctmgr show associations user=$USER lists your accounts; set `account`"),
        ("invalid partition", "sinfo lists the partitions; correct `partition`"),
        ("invalid qos", "sacctmgr show qos lists them; correct `qos`"),
        ("reservation", "scontrol show reservation lists them; correct `reservation`"),
        (
            "node configuration is not available",
            "no node of the partition has what the job asks for: sinfo -Nel",
        ),
        ("time limit", "set `limits: {time: …}` to what the partition allows"),
        ("submit limit", "you have as many jobs as your association allows"),
    ):
        if word in low:
            return hint
    return ""
