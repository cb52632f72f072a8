"""The record of jobs: what it keeps, and that no accident of disk or process makes it unreadable."""

from __future__ import annotations

import contextlib
import os
import resource
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tuneport.compiler.plan import plan_to_json
from tuneport.errors import NotFound, TuneportError, Unavailable
from tuneport.fleets.protocol import TERMINAL
from tuneport.jobs import states, store
from tuneport.jobs.ids import new_id
from tuneport.jobs.mounts import network_file_system
from tuneport.jobs.store import Store

sys.path.insert(0, str(Path(__file__).parent))
from jobs_support import control, in_child, own_state, plan, shell, tp


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from own_state(tmp_path, monkeypatch)


def add(to: Store, **more: str) -> str:
    given = {"experiment": "e", "source": "/x", "fleet": "local", "fleet_kind": "local", **more}
    return to.add(
        plan_to_json(plan(shell("true"), method="trl/sft")), fleet_settings={"gpus": [1]}, **given
    ).id


def test_a_job_is_kept_as_it_was_given(state: Path) -> None:
    first = Store()
    name = add(first, parent="sft-parent")
    job = Store().job(name)
    assert (job.method, job.release, job.action) == ("trl/sft", "1", "train")
    assert (job.experiment, job.source, job.fleet, job.parent) == ("e", "/x", "local", "sft-parent")
    assert job.fleet_settings == {"gpus": [1]}
    assert job.digest == plan_to_json(plan(shell("true"), method="trl/sft"))["digest"]
    assert (job.state, job.last.number, job.last.key) == ("ACCEPTED", 1, f"{name}-1")
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE((state / "jobs.db").stat().st_mode) == 0o600
    database = sqlite3.connect(state / "jobs.db")
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    database.close()
    assert first._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_ids_are_short_readable_and_unique() -> None:
    assert new_id("trl/sft").startswith("sft-")
    assert new_id("pytorch/image-classification").startswith("image-classification-")
    assert new_id("trl/sft", "eval").startswith("eval-")
    assert new_id("x/Ünicode Näme!!").startswith("nicode-n-me-")
    assert new_id("x/…").startswith("job-")
    assert len({new_id("trl/sft") for _ in range(2000)}) == 2000
    assert all(len(new_id("x/" + "long" * 20)) <= 27 for _ in range(10))


def test_a_job_is_found_by_the_beginning_of_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["sft-aaa111", "sft-aab222", "sft-aaa111", "grpo-ccc333"])
    monkeypatch.setattr(store, "new_id", lambda *_: next(names))
    kept = Store()
    assert [add(kept), add(kept), add(kept)] == ["sft-aaa111", "sft-aab222", "grpo-ccc333"]
    assert kept.job("sft-aab").id == "sft-aab222"
    assert kept.job("g").id == "grpo-ccc333"
    with pytest.raises(NotFound, match="'sft' could be sft-aaa111, sft-aab222"):
        kept.job("sft")
    for name in ("nothing", "", "%", "sft-aaa1111"):
        with pytest.raises(NotFound, match="no job is called"):
            kept.job(name)
    assert [name for name, _ in kept.ids("sft")] == ["sft-aab222", "sft-aaa111"]


def test_states_only_move_forward() -> None:
    kept = Store()
    key = f"{add(kept)}-1"
    assert kept.move(key, "RUNNING", "started", "fleet", started=5.0)
    assert not kept.move(key, "QUEUED", "late news", "fleet")
    assert kept.move(key, "UNKNOWN", "no contact", "fleet")
    assert not kept.move(key, "ACCEPTED", "late news", "fleet")
    assert not kept.move(key, "QUEUED", "late news", "fleet")
    assert kept.move(key, "RUNNING", "contact again", "fleet")
    assert not kept.move(key, "RUNNING", "still", "fleet")
    assert kept.job(key[:-2]).cause == "still"
    assert kept.move(key, "FAILED", "exit 1", "fleet", exit_code=1, ended=9.0)
    for late in ("SUCCEEDED", "STOPPED", "UNKNOWN", "RUNNING", "FAILED"):
        assert not kept.move(key, late, "late news", "fleet")
    last = kept.job(key[:-2]).last
    assert (last.state, last.cause, last.exit_code, last.started, last.ended) == (
        "FAILED",
        "exit 1",
        1,
        5.0,
        9.0,
    )
    assert [step.after for step in kept.history(key)] == [
        "ACCEPTED",
        "RUNNING",
        "UNKNOWN",
        "RUNNING",
        "FAILED",
    ]
    assert all(step.cause and step.actor and step.time for step in kept.history(key))


def test_the_published_table() -> None:
    everything = [*states.RANK, "UNKNOWN"]
    for current in everything:
        for new in everything:
            for reached in range(4):
                allowed = states.may_follow(reached, current, new)
                if current in TERMINAL or current == new:
                    assert not allowed
                elif new == "UNKNOWN":
                    assert allowed
                elif current != "UNKNOWN":
                    assert allowed == (states.RANK[new] > reached)
                else:
                    assert allowed == (states.RANK[new] >= reached)


def test_a_new_attempt_only_after_the_last_has_ended() -> None:
    kept = Store()
    name = add(kept)
    with pytest.raises(Unavailable, match="is ACCEPTED"):
        kept.add_attempt(name)
    kept.move(f"{name}-1", "UNKNOWN", "lost", "fleet")
    with pytest.raises(Unavailable, match="is UNKNOWN"):
        kept.add_attempt(name)
    kept.move(f"{name}-1", "STOPPED", "stopped", "stop")
    attempt = kept.add_attempt(name)
    assert (attempt.number, attempt.key, attempt.state) == (2, f"{name}-2", "ACCEPTED")
    assert attempt.order > kept.job(name).attempt(1).order
    with pytest.raises(NotFound, match="no number 3"):
        kept.job(name).attempt(3)


def test_many_processes_write_at_once() -> None:
    Store()
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                kept = Store()
                for _ in range(10):
                    name = add(kept)
                    kept.move(f"{name}-1", "RUNNING", "started", "fleet")
                code = 0
            os._exit(code)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 4
    jobs = Store().jobs()
    assert len(jobs) == 40
    assert len({job.last.order for job in jobs}) == 40
    assert {job.state for job in jobs} == {"RUNNING"}


def test_what_users_typed_is_kept_exactly() -> None:
    kept = Store()
    text = "'; DROP TABLE jobs; -- \x1b[31m é漢🎉\u2028 \\u0000"
    planned = plan(shell(text))
    name = kept.add(
        plan_to_json(planned),
        experiment=text,
        source=text,
        fleet="f",
        fleet_kind="k",
        fleet_settings={text: text},
    ).id
    job = Store().job(name)
    assert (job.experiment, job.source, job.fleet_settings) == (text, text, {text: text})
    assert Store().plan(name) == plan_to_json(planned)


MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /home rw - nfs4 server:/home rw
31 30 0:41 / /home/alice/local rw - tmpfs tmpfs rw
32 22 0:42 / /with\\040space rw shared:1 - fuse.sshfs host: rw
33 22 0:43 / /twice rw - nfs server:/x rw
34 22 0:44 / /twice rw - ext4 /dev/sdb rw
broken line
"""


def test_network_file_systems_are_told_from_local_ones() -> None:
    kinds = {
        "/var/lib": "",
        "/home/alice/x": "nfs4",
        "/home": "nfs4",
        "/homework": "",
        "/home/alice/local/x": "",
        "/with space/x": "fuse.sshfs",
        "/twice/x": "",
    }
    assert {place: network_file_system(Path(place), MOUNTS) for place in kinds} == kinds
    assert network_file_system(Path("/x"), "") == ""


def test_on_a_network_file_system_it_uses_a_rollback_journal_and_says_so(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "network_file_system", lambda _: "nfs4")
    said: list[str] = []
    kept = Store(say=said.append)
    assert said == [f"{state} is on a network file system (nfs4): jobs are kept with a rollback journal"]
    assert kept._connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert Store().job(add(kept)).state == "ACCEPTED"
    assert not (state / "jobs.db-wal").exists()


def test_a_damaged_or_newer_database_is_said_so(state: Path) -> None:
    state.mkdir()
    (state / "jobs.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(Unavailable, match="it is damaged"):
        Store()
    (state / "jobs.db").unlink()
    database = sqlite3.connect(state / "jobs.db")
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(Unavailable, match="newer Tuneport"):
        Store()


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder on a file system of 2 MB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    monkeypatch.setenv("TUNEPORT_STATE_DIR", str(place / "state"))
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> Path:
    ballast = place / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(b"x")
    return ballast


def test_a_full_disk_is_one_message_and_what_was_accepted_stays(small_disk: Path) -> None:
    jobs = control()
    before = jobs.wait(jobs.submit(plan(shell("true"))).id)
    ballast = fill(small_disk)
    failed = tp("job", "ls", "--json")
    assert failed.returncode == 0, failed.stdout  # reading works
    problems = []
    for _ in range(30):
        try:
            jobs.submit(plan(shell("true")))
        except TuneportError as error:
            problems.append(error)
    assert len(problems) == 30
    assert all("full" in error.message or "No space left" in error.message for error in problems)
    assert all(error.exit_code == 6 and error.hint for error in problems)
    assert jobs.get(before.id).state == "SUCCEEDED"
    ballast.unlink()
    with contextlib.closing(sqlite3.connect(small_disk / "state" / "jobs.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    again = control()
    again.recover()
    assert again.wait(again.submit(plan(shell("true"))).id).state == "SUCCEEDED"
    assert {job.state for job in again.jobs()} <= {"SUCCEEDED", "FAILED", "STOPPED"}


def test_a_job_that_fills_the_disk_is_recorded(small_disk: Path) -> None:
    jobs = control()
    filler = (
        "dd if=/dev/zero of=$TUNEPORT_OUTPUT_DIR/x bs=1k 2>/dev/null; cat /dev/zero >> $TUNEPORT_OUTPUT_DIR/x"
    )
    job = jobs.submit(plan(shell(f"{filler}; exit 3")))
    found = jobs.wait(job.id, timeout=30)
    assert (found.state, found.last.exit_code, found.cause) == ("FAILED", 3, "trainer ended with exit code 3")
    assert (jobs.output_dir(job) / "x").stat().st_size > 100_000


def test_a_limit_on_file_sizes_breaks_every_write_cleanly(state: Path) -> None:
    """The disk says no at ever later points of a submission."""
    kept = control()
    kept.wait(kept.submit(plan(shell("true"))).id)
    outcomes = set()
    for limit in (0, 100, 1000, 4096, 8192, 20_000, 60_000, 200_000):

        def go(limit: int = limit) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            try:
                control().submit(plan(shell("true")))
            except TuneportError as error:
                assert error.message
                assert error.exit_code == 6

        outcomes.add(in_child(go))
        with contextlib.closing(sqlite3.connect(state / "jobs.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert outcomes == {0}
    after = control()
    after.recover()
    assert after.wait(after.submit(plan(shell("true"))).id).state == "SUCCEEDED"
    for job in after.jobs():
        assert after.wait(job.id, timeout=20).state in TERMINAL


def test_a_folder_that_cannot_be_written_can_still_be_read(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = control()
    name = jobs.wait(jobs.submit(plan(shell("true"))).id).id
    running = jobs.submit(plan(shell("sleep 600")))
    jobs.close()
    view = tmp_path / "view"
    view.mkdir()
    mount = ["mount", "--bind", "-o", "ro", str(state), str(view)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(view)], check=False, capture_output=True)
        monkeypatch.setenv("TUNEPORT_STATE_DIR", str(view))
        listed = tp("job", "ls")
        assert listed.returncode == 0, listed.stderr
        assert name in listed.stdout
        assert running.id in listed.stdout
        assert "cannot be written" in listed.stderr
        said: list[str] = []
        with pytest.raises(Unavailable, match=r"cannot be written|Read-only"):
            control(say=said.append).submit(plan(shell("true")))
        assert said == [f"{view}/jobs.db cannot be written: what is shown may be out of date"]
    finally:
        subprocess.run(["umount", "-l", str(view)], check=True)


def test_a_state_folder_that_cannot_be_made_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TUNEPORT_STATE_DIR", str(tmp_path / "file" / "state"))
    with pytest.raises(Unavailable, match="cannot create"):
        Store()
    ended = tp("job", "ls")
    assert ended.returncode == 6
    assert ended.stderr.startswith("tp: cannot create ")
    assert len(ended.stderr.splitlines()) == 2
