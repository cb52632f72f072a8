"""The record of jobs: one SQLite database per user, safe against any crash.

A row is committed before anything is done for a job, so whatever dies, the intent is known. Reading
works on a full disk and in a folder that cannot be written.
"""

# ruff: noqa: S608 - only the constants of this file are put into queries

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from tuneport.errors import NotFound, Unavailable
from tuneport.fleets.faults import fault
from tuneport.fleets.layout import key_of
from tuneport.fleets.procs import myself
from tuneport.fleets.protocol import TERMINAL, State
from tuneport.jobs.ids import new_id
from tuneport.jobs.model import Attempt, Move, Record, Transition
from tuneport.jobs.mounts import network_file_system
from tuneport.jobs.states import RANK, may_follow
from tuneport.settings import private_dir, state_dir

_VERSION = 1
_NEWER = "store-newer"
_SCHEMA = """
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, created REAL NOT NULL, method TEXT NOT NULL, release TEXT NOT NULL,
    action TEXT NOT NULL, experiment TEXT NOT NULL, source TEXT NOT NULL, fleet TEXT NOT NULL,
    fleet_kind TEXT NOT NULL, fleet_settings TEXT NOT NULL, digest TEXT NOT NULL, parent TEXT NOT NULL,
    plan TEXT NOT NULL);
CREATE TABLE attempts (
    position INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL REFERENCES jobs(id),
    number INTEGER NOT NULL, key TEXT NOT NULL UNIQUE, handle TEXT, state TEXT NOT NULL,
    reached INTEGER NOT NULL, cause TEXT NOT NULL, exit_code INTEGER, created REAL NOT NULL, started REAL,
    ended REAL, origin TEXT NOT NULL, UNIQUE (job, number));
CREATE TABLE transitions (
    position INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, time REAL NOT NULL, before TEXT,
    after TEXT NOT NULL, cause TEXT NOT NULL, actor TEXT NOT NULL);
CREATE INDEX attempts_by_job ON attempts (job, number);
CREATE INDEX attempts_by_state ON attempts (state);
CREATE INDEX transitions_by_key ON transitions (key);
"""
_JOB = (
    "id, method, release, action, experiment, source, fleet, fleet_kind, fleet_settings, digest, parent,"
    " created"
)
_ATTEMPT = (
    "job, number, position, key, handle, state, reached, cause, exit_code, created, started, ended, origin"
)
_UNFINISHED = tuple(state for state in get_args(State) if state not in TERMINAL)
_AT_ONCE = 500
"""Jobs of one query; SQLite takes 999 values."""
Point: TypeAlias = Literal["store-schema", "store-intent", "store-retry", "store-handle", "store-move"]


class Store:
    """All methods raise Unavailable where the database cannot be read or written, with the reason.

    `say` gets a line about anything unusual that does not prevent the work.
    """

    def __init__(self, folder: Path | None = None, *, say: Callable[[str], None] = lambda _: None) -> None:
        self._folder = folder or state_dir()
        self._path = self._folder / "jobs.db"
        self.writable = True
        with _explained(self._path):
            self._connection = self._open(say)

    def close(self) -> None:
        self._connection.close()

    def __del__(self) -> None:
        if hasattr(self, "_connection"):
            self._connection.close()

    def add(
        self,
        plan: Mapping[str, Any],
        *,
        experiment: str,
        source: str,
        fleet: str,
        fleet_kind: str,
        fleet_settings: Mapping[str, Any],
        parent: str = "",
    ) -> Record:
        """Record the wish to run `plan` (its JSON form, digest included) as a new job's first attempt."""
        text = json.dumps(plan)  # ASCII, so that no odd character of a user can upset the database
        row = (
            plan["method"],
            plan["release"],
            plan["action"],
            experiment,
            source,
            fleet,
            fleet_kind,
            json.dumps(dict(fleet_settings)),
            plan["digest"],
            parent,
        )
        with self._write("store-intent") as cursor:
            job = _unused_id(cursor, plan)
            cursor.execute(
                f"INSERT INTO jobs ({_JOB}, plan) VALUES ({'?, ' * 12}?)", (job, *row, time.time(), text)
            )
            _add_attempt(cursor, job, 1)
        return self.job(job)

    def add_attempt(self, job: str) -> Attempt:
        """Record the wish to try a job again.

        Raises:
            Unavailable: its last attempt has not ended.
        """
        with self._write("store-retry") as cursor:
            number, state = cursor.execute(
                "SELECT number, state FROM attempts WHERE job = ? ORDER BY number DESC LIMIT 1", (job,)
            ).fetchone()
            if state not in TERMINAL:
                raise Unavailable(
                    f"job {job} is {state}",
                    code="job-not-ended",
                    hint=f"make sure that nothing of it runs: tp job stop {job}",
                )
            _add_attempt(cursor, job, number + 1)
        return self.job(job).last

    def set_handle(self, key: str, handle: str) -> None:
        with self._write("store-handle") as cursor:
            cursor.execute("UPDATE attempts SET handle = ? WHERE key = ?", (handle, key))

    def move(
        self,
        key: str,
        state: State,
        cause: str,
        actor: str,
        *,
        at: float | None = None,
        exit_code: int | None = None,
        started: float | None = None,
        ended: float | None = None,
    ) -> bool:
        """Record that an attempt is in `state`. Returns whether that was a step forward; a step back is
        ignored, a new cause for the same state is kept without a row in the history."""
        return self.moves([Move(key, state, cause, actor, at, exit_code, started, ended)])[0]

    def moves(self, moves: Sequence[Move]) -> list[bool]:
        """`move` for each in turn, all of them or none: what one look found is one wait for the disk."""
        with self._write("store-move") as cursor:
            return [_moved(cursor, move) for move in moves]

    def records(self, jobs: Sequence[str]) -> dict[str, Record]:
        """The jobs of these ids."""
        found: dict[str, Record] = {}
        with _explained(self._path):
            for first in range(0, len(jobs), _AT_ONCE):
                some = tuple(jobs[first : first + _AT_ONCE])
                query = f"SELECT {_JOB} FROM jobs WHERE id IN ({', '.join('?' * len(some))})"
                rows = self._connection.execute(query, some).fetchall()
                found |= {record.id: record for record in self._jobs(rows)}
        return found

    def job(self, job: str) -> Record:
        """The job whose id is `job` or, if only one does, begins with it.

        Raises:
            NotFound: none or several.
        """
        with _explained(self._path):
            rows = self._connection.execute(f"SELECT {_JOB} FROM jobs WHERE id = ?", (job,)).fetchall()
            if not rows and job:
                rows = self._connection.execute(
                    f"SELECT {_JOB} FROM jobs WHERE substr(id, 1, ?) = ? ORDER BY id", (len(job), job)
                ).fetchall()
            if len(rows) == 1:
                return self._jobs(rows)[0]
        if not rows:
            raise NotFound(f"no job is called {job!r}", code="job-not-found", hint="see tp job ls")
        names = ", ".join(row[0] for row in rows[:8]) + (", …" if len(rows) > 8 else "")
        raise NotFound(f"{job!r} could be {names}", code="job-ambiguous", hint="type more of the id")

    def jobs(self, *, limit: int | None = None) -> list[Record]:
        """The newest first."""
        with _explained(self._path):
            # In the order of their rows, which are only ever added: there is no index of their times.
            rows = self._connection.execute(
                f"SELECT {_JOB} FROM jobs ORDER BY rowid DESC LIMIT ?",
                (-1 if limit is None else limit,),
            ).fetchall()
            return self._jobs(rows)

    def children(self, parent: str) -> list[Record]:
        """The jobs that are about another one, the oldest first."""
        with _explained(self._path):
            query = f"SELECT {_JOB} FROM jobs WHERE parent = ? ORDER BY created, rowid"
            return self._jobs(self._connection.execute(query, (parent,)).fetchall())

    def unfinished(self) -> list[Record]:
        """Jobs with an attempt that has not ended, the oldest first."""
        with _explained(self._path):
            marks = ", ".join("?" * len(_UNFINISHED))
            rows = self._connection.execute(
                f"SELECT {_JOB} FROM jobs WHERE id IN (SELECT job FROM attempts WHERE state IN ({marks}))"
                " ORDER BY rowid",
                _UNFINISHED,
            ).fetchall()
            return self._jobs(rows)

    def plan(self, job: str) -> dict[str, Any]:
        """The plan of a job as JSON."""
        with _explained(self._path):
            row = self._connection.execute("SELECT plan FROM jobs WHERE id = ?", (job,)).fetchone()
        if row is None:
            raise NotFound(f"no job is called {job!r}", code="job-not-found", hint="see tp job ls")
        plan: dict[str, Any] = json.loads(row[0])
        return plan

    def history(self, key: str) -> list[Transition]:
        """The steps of an attempt in order."""
        with _explained(self._path):
            rows = self._connection.execute(
                "SELECT time, before, after, cause, actor FROM transitions WHERE key = ? ORDER BY position",
                (key,),
            ).fetchall()
        return [Transition(*row) for row in rows]

    def ids(self, prefix: str, limit: int = 200) -> list[tuple[str, str]]:
        """Id and method of the newest jobs whose id begins so; for completion."""
        with _explained(self._path):
            rows: list[tuple[str, str]] = self._connection.execute(
                "SELECT id, method FROM jobs WHERE substr(id, 1, ?) = ? ORDER BY rowid DESC LIMIT ?",
                (len(prefix), prefix, limit),
            ).fetchall()
        return rows

    def _jobs(self, rows: list[tuple[Any, ...]]) -> list[Record]:
        attempts = self._attempts([row[0] for row in rows])
        read = cache(json.loads)  # many have the same settings and the same origin
        return [
            Record._make(
                (*row[:8], read(row[8]), *row[9:], tuple(_attempt(tried, read) for tried in attempts[row[0]]))
            )
            for row in rows
        ]

    def _attempts(self, jobs: Sequence[str]) -> dict[str, list[tuple[Any, ...]]]:
        """The rows of each job's attempts, in order."""
        found: dict[str, list[tuple[Any, ...]]] = {job: [] for job in jobs}
        for first in range(0, len(jobs), _AT_ONCE):
            some = jobs[first : first + _AT_ONCE]
            query = (
                f"SELECT {_ATTEMPT} FROM attempts WHERE job IN ({', '.join('?' * len(some))}) ORDER BY number"
            )
            for row in self._connection.execute(query, tuple(some)):
                found[row[0]].append(row)
        return found

    def _open(self, say: Callable[[str], None]) -> sqlite3.Connection:
        try:
            private_dir(self._folder)
            connection = _connect(self._path)
            try:
                self._set_up(connection, say)
            except BaseException:
                connection.close()
                raise
            return connection
        except (sqlite3.OperationalError, OSError, Unavailable) as error:
            if getattr(error, "code", "") == _NEWER or not self._path.exists():
                raise
            self.writable = False
            say(f"{self._path} cannot be written: what is shown may be out of date")
            return _connect_to_read(self._path)

    def _set_up(self, connection: sqlite3.Connection, say: Callable[[str], None]) -> None:
        kind = network_file_system(self._folder)
        if kind:
            say(f"{self._folder} is on a network file system ({kind}): jobs are kept with a rollback journal")
        connection.execute(f"PRAGMA journal_mode = {'DELETE' if kind else 'WAL'}").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found > _VERSION:
            raise Unavailable(
                f"{self._path} was written by a newer Tuneport",
                code=_NEWER,
                hint="upgrade tuneport-core",
            )
        if found < _VERSION:
            fault("store-schema")
            connection.execute("BEGIN IMMEDIATE")
            # Asked again under the lock: another process may have been first.
            if connection.execute("PRAGMA user_version").fetchone()[0] < _VERSION:
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            fault("store-schema")
            connection.execute("COMMIT")
            fault("store-schema")

    @contextlib.contextmanager
    def _write(self, point: Point) -> Iterator[sqlite3.Cursor]:
        """One transaction: all of it or, whatever happens, none of it."""
        with _explained(self._path):
            if not self.writable:
                raise sqlite3.OperationalError("attempt to write a readonly database")
            fault(point)
            cursor = self._connection.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                fault(point)
                cursor.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    cursor.execute("ROLLBACK")
                raise
            fault(point)


def _connect(path: Path) -> sqlite3.Connection:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)  # before SQLite makes it wider
    os.close(descriptor)
    return sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """Also where not even the shared-memory file beside the database can be made."""
    for options in ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(
            f"{path.as_uri()}?{options}", uri=True, timeout=30, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("SELECT 1 FROM jobs LIMIT 1").fetchone()
        except sqlite3.OperationalError:
            connection.close()
            continue
        return connection
    raise sqlite3.OperationalError("unable to open database file")


def _moved(cursor: sqlite3.Cursor, move: Move) -> bool:
    key, state, cause = move.key, move.state, move.cause
    row = cursor.execute("SELECT state, reached, cause FROM attempts WHERE key = ?", (key,)).fetchone()
    if row is None:
        raise NotFound(f"no attempt has the key {key}", code="job-not-found")
    current, reached, said = row
    if current == state and said != cause and state not in TERMINAL:
        cursor.execute("UPDATE attempts SET cause = ? WHERE key = ?", (cause, key))
    if not may_follow(reached, current, state):
        return False
    cursor.execute(
        "UPDATE attempts SET state = ?, reached = ?, cause = ?, exit_code = ?,"
        " started = COALESCE(?, started), ended = ? WHERE key = ?",
        (state, max(reached, RANK.get(state, 0)), cause, move.exit_code, move.started, move.ended, key),
    )
    _add_transition(cursor, key, move.at or time.time(), current, state, cause, move.actor)
    return True


def _attempt(row: tuple[Any, ...], read: Callable[[str], Any]) -> Attempt:
    return Attempt(*(*row[:-1], read(row[-1])))


def _unused_id(cursor: sqlite3.Cursor, plan: Mapping[str, Any]) -> str:
    while True:
        job = new_id(plan["method"], plan["action"])
        if cursor.execute("SELECT 1 FROM jobs WHERE id = ?", (job,)).fetchone() is None:
            return job


def _add_attempt(cursor: sqlite3.Cursor, job: str, number: int) -> None:
    key, now = key_of(job, number), time.time()
    cursor.execute(
        "INSERT INTO attempts (job, number, key, state, reached, cause, created, origin)"
        " VALUES (?, ?, ?, 'ACCEPTED', 0, ?, ?, ?)",
        (job, number, key, _ACCEPTED, now, json.dumps(myself().to_json())),
    )
    _add_transition(cursor, key, now, None, "ACCEPTED", _ACCEPTED, "submit" if number == 1 else "retry")


_ACCEPTED = "accepted; nothing has been started yet"


def _add_transition(
    cursor: sqlite3.Cursor, key: str, at: float, before: State | None, after: State, cause: str, actor: str
) -> None:
    cursor.execute(
        "INSERT INTO transitions (key, time, before, after, cause, actor) VALUES (?, ?, ?, ?, ?, ?)",
        (key, at, before, after, cause, actor),
    )


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """SQLite's errors in words, with what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        if "full" in text:
            what, hint = "the disk is full", "free some space and repeat the command"
        elif "readonly" in text or "read-only" in text:
            what, hint = "it cannot be written", "set TUNEPORT_STATE_DIR to a folder you can write"
        elif "locked" in text:
            what, hint = "another process has kept it locked for 30 s", "repeat the command"
        elif "not a database" in text or "malformed" in text:
            what, hint = "it is damaged", "move it away; running jobs go on, their output stays in jobs/"
        else:
            what, hint = text, "is the disk full, or the folder not writable? see TUNEPORT_STATE_DIR"
        raise Unavailable(
            f"the job store {path} cannot be used: {what}", code="store-unusable", hint=hint
        ) from error
    except OSError as error:
        raise Unavailable(
            f"the job store {path} cannot be used: {error.strerror}",
            code="store-unusable",
            hint="set TUNEPORT_STATE_DIR to a folder you can write",
        ) from error
