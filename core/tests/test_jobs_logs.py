"""What a job writes is all there, in order, whoever dies, and following ends with the job."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tuneport.fleets.layout import Folder

sys.path.insert(0, str(Path(__file__).parent))
from jobs_support import accepted, alive, command, control, marked, own_state, plan, python, shell, until


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from own_state(tmp_path, monkeypatch)


# Four processes, one of them a detached grandchild, write 25,000 numbered lines each; `pause` holds
# them half-way until the file of that name exists.
TREE = """
import os, sys, time
def write(name):
    for number in range(25000):
        os.write(1, b"%s %06d\\n" % (name, number))
        if number == 12500:
            open(name.decode() + ".half", "w").close()
            while sys.argv[1:] and not os.path.exists(sys.argv[1]):
                time.sleep(0.01)
children = []
for name in (b"one", b"two"):
    pid = os.fork()
    if pid == 0:
        write(name)
        os._exit(0)
    children.append(pid)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        write(b"daemon")
    os._exit(0)
write(b"main")
for pid in children:
    os.waitpid(pid, 0)
"""
NAMES = ("one", "two", "daemon", "main")


def numbers(texts: list[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {name: [] for name in NAMES}
    for text in texts:
        name, _, number = text.partition(" ")
        found[name].append(int(number))
    return found


def test_a_hundred_thousand_lines_of_a_process_tree() -> None:
    jobs = control({"linger": 20})
    job = jobs.wait(jobs.submit(plan(python(TREE))).id, timeout=120)
    assert job.state == "SUCCEEDED", job.cause
    found = numbers([line.text for line in jobs.logs(job.id)])
    assert all(found[name] == list(range(25000)) for name in NAMES)


@pytest.mark.parametrize("how", ["stop", "kill trainer", "kill supervisor"])
def test_what_was_written_before_the_end_is_kept(how: str, tmp_path: Path) -> None:
    jobs = control({"stop_grace": 0.2})
    job = jobs.submit(plan(command(sys.executable, "-S", "-c", TREE, str(tmp_path / "never"))))
    work = Folder.of(job.last.key).work
    until(lambda: all((work / f"{name}.half").exists() for name in NAMES), seconds=60)
    if how == "stop":
        jobs.stop(job.id)
    else:
        if how == "kill supervisor":
            os.kill(Folder.of(job.last.key).supervised_by().pid, signal.SIGKILL)
        for pid in marked(f"TUNEPORT_JOB_KEY={job.last.key}"):
            os.kill(pid, signal.SIGKILL)
    end = jobs.wait(job.id, timeout=30)
    assert end.state == {"stop": "STOPPED", "kill trainer": "FAILED", "kill supervisor": "UNKNOWN"}[how]
    found = numbers([line.text for line in jobs.logs(job.id)])
    assert all(found[name] == list(range(12501)) for name in NAMES)


def test_following_may_begin_before_the_job_and_sees_all_of_it(tmp_path: Path) -> None:
    jobs = control({"max_jobs": 1})
    blocker = jobs.submit(plan(shell(f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done")))
    job = jobs.submit(plan(shell("for i in 1 2 3; do echo line $i; sleep 0.1; done; printf tail")))
    assert jobs.get(job.id).state == "QUEUED"
    seen: list[str] = []

    def follow() -> None:
        seen.extend(line.text for line in control({"max_jobs": 1}).logs(job.id, follow=True))

    follower = threading.Thread(target=follow)
    follower.start()
    (tmp_path / "go").touch()
    follower.join(timeout=30)
    assert not follower.is_alive()
    assert seen == ["line 1", "line 2", "line 3", "tail"]
    assert jobs.wait(blocker.id).state == "SUCCEEDED"


def test_following_starts_a_job_whose_submitter_died(tmp_path: Path) -> None:
    jobs = control()
    job = accepted(plan(shell("echo here")))
    assert [line.text for line in jobs.logs(job.id, follow=True)] == ["here"]


def test_following_several_roles_keeps_each_in_order() -> None:
    jobs = control()
    count = "i=0; while [ $i -lt 500 ]; do i=$((i+1)); echo $i; done"
    job = jobs.submit(plan(shell(count, role="a"), shell(f"sleep 0.1; {count}", role="b")))
    seen: dict[str, list[int]] = {"a": [], "b": []}
    for line in jobs.logs(job.id, follow=True):
        seen[line.role].append(int(line.text))
    assert seen == {"a": list(range(1, 501)), "b": list(range(1, 501))}


def test_following_ends_when_the_job_is_stopped_or_lost() -> None:
    jobs = control()
    for ending in ("stop", "lose"):
        job = jobs.submit(plan(shell("echo begun; sleep 600")))
        seen: list[str] = []
        follower = threading.Thread(
            target=lambda job=job, seen=seen: seen.extend(x.text for x in control().logs(job.id, follow=True))
        )
        follower.start()
        until(lambda seen=seen: seen == ["begun"])
        if ending == "stop":
            jobs.stop(job.id)
        else:
            supervisor = Folder.of(job.last.key).supervised_by().pid
            os.kill(supervisor, signal.SIGKILL)
            until(lambda supervisor=supervisor: not alive(supervisor))
            for pid in marked(f"TUNEPORT_JOB_KEY={job.last.key}"):
                os.kill(pid, signal.SIGKILL)
        follower.join(timeout=30)
        assert not follower.is_alive()
        assert seen == ["begun"]


def test_odd_bytes_and_endless_lines_do_not_upset_a_reader() -> None:
    jobs = control()
    text = (
        "import sys; w = sys.stdout.buffer.write\n"
        "w(b'\\xff\\xfe ok\\n'); w(b'x' * 3_000_000); w(b'\\nend\\n')"
    )
    job = jobs.wait(jobs.submit(plan(python(text))).id)
    found = [line.text for line in jobs.logs(job.id)]
    assert found[0] == "\ufffd\ufffd ok"
    assert "".join(found[1:-1]) == "x" * 3_000_000
    assert found[-1] == "end"
