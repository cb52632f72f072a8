"""`tp job` and the Python API from the outside."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tuneport.compiler.plan import plan_to_json
from tuneport.errors import NotFound, Unavailable
from tuneport.jobs import manager

sys.path.insert(0, str(Path(__file__).parent))
from jobs_support import TP, accepted, control, marked, own_state, plan, shell, tp, until


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from own_state(tmp_path, monkeypatch)


def submitted(text: str, **more: object) -> str:
    """A job of the real local fleet with a short patience."""
    settings = {"stop_grace": 1.0, "linger": 0.5, "max_cpu_jobs": 64}
    return manager._control().submit(plan(shell(text), **more), fleet_settings=settings, experiment="exp").id


def document(*args: str, code: int = 0) -> dict[str, object]:
    ended = tp(*args, "--json")
    assert ended.returncode == code, ended.stdout + ended.stderr
    found: dict[str, object] = json.loads(ended.stdout)
    assert found["ok"] is (code == 0)
    return found


def test_ls_status_logs_wait_of_a_good_and_a_bad_job() -> None:
    good = submitted("echo hello; echo 'é 漢 🎉'")
    bad = submitted("echo oops >&2; exit 4")
    assert tp("job", "wait", good).returncode == 0
    waited = tp("job", "wait", bad)
    assert waited.returncode == 1
    assert waited.stdout == f"{bad}  FAILED  trainer ended with exit code 4\n"
    assert waited.stderr == f"tp job logs {bad} shows what it wrote\n"
    assert document("job", "wait", bad, code=1)["job"]["exit_code"] == 4

    listed = tp("job", "ls").stdout.splitlines()
    assert listed[0].split() == [
        "JOB",
        "STATE",
        "METHOD",
        "EXPERIMENT",
        "FLEET",
        "SUBMITTED",
        "TOOK",
        "CAUSE",
    ]
    assert listed[1].split()[:5] == [bad, "FAILED", "custom/custom", "exp", "local"]
    assert listed[2].split()[:2] == [good, "SUCCEEDED"]
    assert [job["id"] for job in document("job", "ls")["jobs"]] == [bad, good]

    status = tp("job", "status", bad).stdout
    assert status.startswith(f"{bad}  FAILED  trainer ended with exit code 4\n")
    assert "ACCEPTED" in status
    detail = document("job", "status", bad[:-1])["job"]
    assert (detail["id"], detail["state"], detail["roles"]) == (bad, "FAILED", ["trainer"])
    [attempt] = detail["attempts"]
    assert [step["after"] for step in attempt["history"]] == ["ACCEPTED", "RUNNING", "FAILED"]
    assert all(step["cause"] and step["actor"] and step["time"] for step in attempt["history"])

    logs = tp("job", "logs", good)
    assert (logs.returncode, logs.stdout) == (0, "hello\né 漢 🎉\n")
    assert [line["text"] for line in document("job", "logs", good, "--follow")["lines"]] == [
        "hello",
        "é 漢 🎉",
    ]
    narrow = tp("job", "logs", good, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert narrow.stdout == "hello\n\\xe9 \\u6f22 \\U0001f389\n"


def test_nothing_here_is_not_an_error() -> None:
    listed = tp("job", "ls")
    assert (listed.returncode, listed.stdout) == (0, "")
    assert listed.stderr == "no jobs yet; tp submit starts one\n"
    assert document("job", "ls")["jobs"] == []


def test_a_job_that_does_not_exist() -> None:
    for verb in ("status", "logs", "metrics", "wait", "stop", "retry"):
        found = document("job", verb, "sft-nope22", code=4)
        assert found["error"] == {
            "code": "job-not-found",
            "message": "no job is called 'sft-nope22'",
            "hint": "see tp job ls",
        }
    name = submitted("true")
    assert document("job", "logs", name, "--role", "critic", code=4)["error"]["hint"] == "roles: trainer"
    assert document("job", "logs", name, "--attempt", "9", code=4)["error"]["code"] == "attempt-not-found"
    assert tp("job", "logs", name, "--attempt", "0").returncode == 2
    assert tp("job", "stop").returncode == 2


def test_stop_and_retry() -> None:
    first, second = submitted("sleep 600"), submitted("sleep 600")
    refused = document("job", "retry", first, code=6)["error"]
    assert refused["code"] == "job-not-ended"
    stopped = document("job", "stop", first, second)["jobs"]
    assert [job["state"] for job in stopped] == ["STOPPED", "STOPPED"]
    assert marked(f"TUNEPORT_JOB_KEY={first}") == marked(f"TUNEPORT_JOB_KEY={second}") == []
    assert tp("job", "stop", first).returncode == 0  # twice is fine
    some = tp("job", "stop", first, "nope")
    assert some.returncode == 4 and some.stdout.split()[:2] == [first, "STOPPED"]
    assert "nope" in some.stderr
    again = document("job", "retry", first)["job"]
    assert (again["id"], again["attempt"]) == (first, 2)
    assert tp("job", "stop", first).stdout.split()[:2] == [first, "STOPPED"]
    status = tp("job", "status", first).stdout
    assert "attempt 1\n" in status
    assert "attempt 2\n" in status


def test_wait_gives_up_after_its_time() -> None:
    name = submitted("sleep 600")
    ended = tp("job", "wait", name, "--timeout", "0.3")
    assert ended.returncode == 6
    assert "after 0.3 s" in ended.stderr


def holds_the_store(pid: int) -> bool:
    try:
        return any(str(link.readlink()).endswith("jobs.db") for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


@pytest.mark.parametrize("verb", [["wait"], ["logs", "--follow"]])
def test_interrupting_leaves_the_job_running(verb: list[str]) -> None:
    name = submitted("echo begun; sleep 600")
    for extra in ([], ["--json"]):
        watching = subprocess.Popen(
            [*TP, "job", *verb, name, *extra], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        until(lambda watching=watching: holds_the_store(watching.pid))
        time.sleep(1.0)  # from there to the wait is a few milliseconds
        watching.send_signal(signal.SIGINT)
        out, err = watching.communicate(timeout=20)
        assert watching.returncode == 130
        if extra:
            assert json.loads(out)["error"]["message"] == f"interrupted; job {name} goes on"
        else:
            assert f"interrupted; job {name} goes on; tp job stop {name} stops it" in err
            assert "Traceback" not in err
    assert manager.get(name).state == "RUNNING"


def test_interrupting_a_submission_leaves_it_accepted(tmp_path: Path) -> None:
    """Ctrl-C while the supervisor starts: the job is named, and runs."""
    code = (
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from jobs_support import control, plan, shell\n"
        "import subprocess\n"
        "real = subprocess.Popen.wait\n"
        "def wait(self, timeout=None):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(self, timeout)\n"
        "subprocess.Popen.wait = wait\n"
        "try:\n"
        "    control(say=print).submit(plan(shell('echo ran')))\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    [job] = manager.list_jobs()
    assert (
        done.stdout == f"job {job.id} is accepted and goes on; tp job stop {job.id} stops it\ninterrupted\n"
    )
    assert job.wait().state == "SUCCEEDED"


def test_following_prints_as_it_comes() -> None:
    name = submitted("for i in 1 2 3; do echo $i; sleep 0.2; done")
    followed = tp("job", "logs", name, "-f")
    assert (followed.returncode, followed.stdout) == (0, "1\n2\n3\n")
    several = manager._control().submit(plan(shell("echo x", role="a"), shell("echo y", role="b"))).id
    assert sorted(tp("job", "logs", several, "-f").stdout.splitlines()) == ["a | x", "b | y"]
    assert tp("job", "logs", several, "--role", "b").stdout == "y\n"


def test_a_reader_that_leaves_is_no_error() -> None:
    name = submitted("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo line $i; done")
    manager.get(name).wait()
    ended = subprocess.run(
        ["bash", "-c", f"{' '.join(TP)} job logs {name} | head -1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout == "line 1\n"
    assert ended.stderr == ""


METRICS = """
import math, tuneport_report as report
for step in range(10):
    report.log({"train/loss": 1 / (step + 1), "odd": math.nan if step == 3 else step}, step=step)
"""


def test_metrics_as_table_curves_and_document() -> None:
    name = submitted(f"{sys.executable} - <<'E'\n{METRICS}\nE", method="trl/sft")
    assert manager.get(name).wait().state == "SUCCEEDED"
    shown = tp("job", "metrics", name)
    assert shown.returncode == 0
    rows = {line.split()[0]: line.split()[1:] for line in shown.stdout.splitlines()}
    assert rows["train/loss"] == ["10", "9", "0.1", "0.1", "1"]
    assert rows["odd"] == ["10", "9", "9", "0", "9", "1", "not", "finite"]
    assert "⠉" not in shown.stdout  # no drawing where nobody sees it
    curves = tp("job", "metrics", name, "--curves", "--name", "train/loss")
    assert "train/loss  last 0.1" in curves.stdout
    assert "│" in curves.stdout
    plain = tp("job", "metrics", name, "--curves", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert plain.returncode == 0
    assert plain.stdout.isascii()
    assert "*" in plain.stdout
    found = document("job", "metrics", name)
    series = {one["name"]: one for one in found["series"]}
    assert series["odd"]["points"][3][:2] == [3, "NaN"]
    missing = document("job", "metrics", name, "--name", "reward")
    assert (missing["series"], missing["missing"]) == ([], ["reward"])
    silent = submitted("true", method="nobody/knows")
    manager.get(silent).wait()
    assert tp("job", "metrics", silent).stderr == "it wrote no metrics\n"


def test_a_terminal_gets_curves_and_the_last_state_of_a_progress_bar() -> None:
    name = submitted(f"printf '10%%\\r50%%\\r100%%\\n'; {sys.executable} - <<'E'\n{METRICS}\nE")
    manager.get(name).wait()
    assert on_terminal("job", "logs", name) == "100%\n"
    assert "⠉" in on_terminal("job", "metrics", name)
    assert tp("job", "logs", name).stdout == "10%\n50%\n100%\n"  # read as text: universal newlines


def on_terminal(*args: str) -> str:
    reader, writer = pty.openpty()
    with subprocess.Popen([*TP, *args], stdout=writer, stderr=writer, stdin=subprocess.DEVNULL) as process:
        os.close(writer)
        data = b""
        while True:
            try:
                chunk = os.read(reader, 65536)
            except OSError:  # how a terminal ends
                break
            if not chunk:
                break
            data += chunk
        process.wait()
    os.close(reader)
    return data.decode().replace("\r\n", "\n")


def test_ids_complete() -> None:
    name = submitted("true")
    env = {**os.environ, "_TP_COMPLETE": "bash_complete", "COMP_WORDS": "tp job logs cus", "COMP_CWORD": "3"}
    assert tp(env=env).stdout == f"plain,{name}\n"
    assert tp(env={**env, "COMP_WORDS": "tp job stop ", "COMP_CWORD": "3"}).stdout == f"plain,{name}\n"
    empty = {**env, "TUNEPORT_STATE_DIR": "/nonexistent/place"}
    assert tp(env=empty).stdout.strip() == ""


def test_commands_start_what_a_dead_command_accepted() -> None:
    job = accepted(plan(shell("echo late")))
    listed = tp("job", "ls")
    assert listed.stderr == f"job {job.id} had been accepted and not started; started now\n"
    assert tp("job", "logs", job.id, "-f").stdout == "late\n"
    broken = accepted(plan(shell("true")), digest="sha256:" + "0" * 64)
    listed = tp("job", "ls")
    assert listed.returncode == 0
    assert "cannot be started: the plan's digest does not hold" in listed.stderr
    assert broken.id in listed.stdout
    assert tp("job", "ls").stderr == ""  # said once; the record keeps it
    assert manager.get(broken.id).cause.startswith("not started: the plan's digest does not hold")


def test_a_living_command_is_given_time_to_start_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    job = control()._store.add(
        plan_to_json(plan(shell("true"))),
        experiment="",
        source="",
        fleet="local",
        fleet_kind="local",
        fleet_settings={},
    )
    listed = tp("job", "ls")  # this process lives, and may be about to start it
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "ACCEPTED" in listed.stdout
    assert control().wait(job.id).state == "SUCCEEDED"  # this process is the one that accepted it


def test_a_fleet_that_is_gone_leaves_its_jobs_readable() -> None:
    job = accepted(plan(shell("true")), fleet="old", fleet_kind="uninstalled")
    listed = tp("job", "ls")
    assert listed.returncode == 0
    assert job.id in listed.stdout
    assert "no installed plugin offers fleets of kind 'uninstalled'" in listed.stderr
    assert tp("job", "status", job.id).returncode == 0


def test_the_python_api() -> None:
    job = manager.submit(plan(shell("echo hi; sleep 0.3; echo ho")), experiment="mine", parent="other-222222")
    assert repr(job).startswith(f"<Job {job.id} ")
    assert [line.text for line in job.logs(follow=True)] == ["hi", "ho"]
    ended = job.wait()
    assert (ended.state, ended.exit_code, ended.record.parent) == ("SUCCEEDED", 0, "other-222222")
    assert job.status().cause == "ended with exit code 0"
    assert job.output_dir().is_dir()
    assert job.plan() == plan(shell("echo hi; sleep 0.3; echo ho"))
    assert job.roles() == ["trainer"]
    assert [step.after for step in job.history()][-1] == "SUCCEEDED"
    assert job.metrics().series == {}
    assert [found.id for found in manager.list_jobs()] == [job.id]
    assert manager.get(job.id[:-2]).id == job.id
    assert manager.render(plan(shell("true")), "local")[0]["plan"]["method"] == "custom/custom"
    assert job.retry().wait().record.last.number == 2
    assert job.stop().state == "SUCCEEDED"
    with pytest.raises(NotFound):
        manager.get("nope")
    with pytest.raises(Unavailable):
        manager.submit(plan(shell("true"), gpus=99))
    assert len(manager.list_jobs()) == 1
