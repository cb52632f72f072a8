"""A plan on the local fleet: what its commands get, how they end, and that nothing of them is left."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tuneport.errors import Invalid, NotFound, Unavailable, Untrusted
from tuneport.fleets import procs, role
from tuneport.fleets.layout import Folder
from tuneport.fleets.local import LocalFleet
from tuneport.types import FileSpec, LaunchPlan, Pool, Ref, RuntimeNeed

sys.path.insert(0, str(Path(__file__).parent))
from jobs_support import alive, command, control, lines, marked, own_state, plan, shell, tp, until


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from own_state(tmp_path, monkeypatch)


SHOW = """
import json, os, sys
seen = {"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}
json.dump(seen, open(os.environ["TUNEPORT_OUTPUT_DIR"] + "/seen.json", "w"))
"""


def seen(output: Path) -> dict[str, object]:
    document: dict[str, object] = json.loads((output / "seen.json").read_text())
    return document


def test_a_command_gets_its_folders_references_and_environment(state: Path) -> None:
    jobs = control()
    refs = [Ref(name, "/x") for name in ("output_dir", "log_dir", "work_dir", "report_file", "python")]
    plain = [Ref("job_id"), Ref("attempt"), Ref("head_addr", ":"), Ref("head_port"), Ref("node_rank")]
    job = jobs.submit(plan(python_with_args(SHOW, *refs, *plain, env={"OWN": Ref("log_dir", "/own")})))
    assert jobs.wait(job.id).state == "SUCCEEDED"
    found = seen(jobs.output_dir(job))
    root = state / "jobs" / job.id / "1"
    argv = found["argv"]
    assert argv[:5] == [
        f"{root}/output/x",
        f"{root}/tensorboard/x",
        f"{root}/work/x",
        f"{root}/report.jsonl/x",
        f"{sys.executable}/x",
    ]
    assert argv[5:8] == [job.id, "1", "127.0.0.1:"]
    assert argv[9] == "0"
    env = found["env"]
    assert found["cwd"] == f"{root}/work"
    assert env["OWN"] == f"{root}/tensorboard/own"
    assert env["TUNEPORT_OUTPUT_DIR"] == f"{root}/output"
    assert env["TUNEPORT_LOG_DIR"] == f"{root}/tensorboard"
    assert env["TUNEPORT_REPORT_FILE"] == f"{root}/report.jsonl"
    assert (env["TUNEPORT_JOB_ID"], env["TUNEPORT_ATTEMPT"]) == (job.id, "1")
    assert env["TUNEPORT_CLUSTER_NODES"] == "1"
    assert env["TUNEPORT_CLUSTER_GPUS_PER_NODE"] == "0"
    assert env["TUNEPORT_CLUSTER_PROCESSES_PER_NODE"] == "1"
    assert env["TUNEPORT_CLUSTER_NODE_RANK"] == "0"
    assert env["TUNEPORT_CLUSTER_HEAD_ADDR"] == "127.0.0.1"
    assert env["TUNEPORT_CLUSTER_HEAD_PORT"] == argv[8] != "0"
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert "TUNEPORT_SUPERVISOR" not in env


def python_with_args(text: str, *args: object, env: object = None) -> object:
    return command(sys.executable, "-S", "-c", text, *args, env=env)


def test_standard_input_is_empty_and_both_outputs_are_one_file() -> None:
    jobs = control()
    job = jobs.submit(plan(shell("cat; echo out; echo err >&2; echo out2")))
    assert jobs.wait(job.id).state == "SUCCEEDED"
    assert [line.text for line in jobs.logs(job.id)] == ["out", "err", "out2"]


def test_the_experiment_is_copied_as_planned_and_what_changed_is_refused(tmp_path: Path) -> None:
    experiment = tmp_path / "experiment"
    (experiment / "sub").mkdir(parents=True)
    (experiment / "train.sh").write_text("cat sub/data.txt; ls\n")
    (experiment / "train.sh").chmod(0o755)
    (experiment / "sub" / "data.txt").write_text("content\n")
    digests = {
        name: "sha256:" + hashlib.sha256((experiment / name).read_bytes()).hexdigest()
        for name in ("train.sh", "sub/data.txt")
    }
    (experiment / "later.bin").write_text("not in the plan")
    jobs = control()
    planned = plan(command("sh", "train.sh"), source=digests)
    job = jobs.submit(planned, source_dir=experiment)
    assert jobs.wait(job.id).state == "SUCCEEDED"
    assert [line.text for line in jobs.logs(job.id)] == ["content", "sub", "train.sh"]
    assert os.access(Folder.of(f"{job.id}-1").work / "train.sh", os.X_OK)
    (experiment / "sub" / "data.txt").write_text("other\n")
    with pytest.raises(Untrusted, match=r"sub/data\.txt changed since the plan was made"):
        jobs.submit(planned, source_dir=experiment)
    (experiment / "sub" / "data.txt").unlink()
    with pytest.raises(Untrusted, match=r"sub/data\.txt is gone since the plan was made"):
        jobs.submit(planned, source_dir=experiment)
    refused = jobs.jobs()[0]
    assert (refused.state, refused.cause) == (
        "FAILED",
        "not started: sub/data.txt is gone since the plan was made",
    )
    # A new attempt takes the files that the first was run with.
    again = jobs.retry(job.id)
    assert jobs.wait(again.id).state == "SUCCEEDED"
    assert again.last.number == 2
    assert next(jobs.logs(job.id, attempt=2)).text == "content"


def test_a_plan_cannot_copy_or_write_outside_the_work_folder(tmp_path: Path) -> None:
    jobs = control()
    (tmp_path / "secret").write_text("x")
    digest = hashlib.sha256(b"x").hexdigest()
    experiment = tmp_path / "experiment"
    experiment.mkdir()
    for name in ("../secret", str(tmp_path / "secret")):
        with pytest.raises(Invalid, match="outside the experiment folder"):
            jobs.submit(plan(shell("true"), source={name: digest}), source_dir=experiment)
    for name in ("../x", "/x", "a/../../x", ""):
        with pytest.raises(Invalid, match="outside the work folder"):
            jobs.submit(plan(shell("true", files={name: FileSpec("text", "x")})))


def test_files_are_written_with_their_references_resolved() -> None:
    jobs = control()
    tree = {
        "output_dir": Ref("output_dir"),
        "list": [1, 1e-06, True, None, "1e5", Ref("head_port")],
        "ref": {"ref": "x"},
    }
    files = {
        "a/config.yaml": FileSpec("yaml", tree),
        "config.json": FileSpec("json", tree),
        "note.txt": FileSpec("text", "line\n$(x) {ref}\n"),
    }
    job = jobs.submit(plan(shell("cp -r a config.json note.txt $TUNEPORT_OUTPUT_DIR", files=files)))
    assert jobs.wait(job.id).state == "SUCCEEDED"
    output = jobs.output_dir(job)
    read = json.loads((output / "config.json").read_text())
    assert read["output_dir"] == str(output)
    assert read["list"][:5] == [1, 1e-06, True, None, "1e5"]
    assert read["list"][5].isdigit()
    assert read["ref"] == {"ref": "x"}
    import yaml

    assert yaml.safe_load((output / "a/config.yaml").read_text()) == read
    assert (output / "note.txt").read_text() == "line\n$(x) {ref}\n"


def test_how_a_job_ended_is_said_in_words(tmp_path: Path) -> None:
    jobs = control()
    cases = {
        "exit 3": ("FAILED", 3, "trainer ended with exit code 3"),
        "kill -9 $$": (
            "FAILED",
            137,
            "trainer was killed by SIGKILL (the kernel does this when memory runs out)",
        ),
        "kill -11 $$": ("FAILED", 139, "trainer was killed by SIGSEGV"),
        "exit 0": ("SUCCEEDED", 0, "ended with exit code 0"),
    }
    for text, expected in cases.items():
        last = jobs.wait(jobs.submit(plan(shell(text))).id).last
        assert (last.state, last.exit_code, last.cause) == expected
        assert last.created <= last.started <= last.ended
    job = jobs.wait(jobs.submit(plan(command("no-such-program", "x"))).id)
    assert (job.state, job.last.exit_code) == ("FAILED", 127)
    assert job.cause == "cannot run 'no-such-program': No such file or directory"
    assert "cannot run 'no-such-program'" in next(jobs.logs(job.id)).text


def test_roles_run_together_and_end_together() -> None:
    jobs = control()
    job = jobs.submit(plan(shell("sleep 300", role="rollout"), shell("sleep 0.2; exit 5", role="trainer")))
    job = jobs.wait(job.id, timeout=20)
    assert (job.state, job.cause, job.last.exit_code) == ("FAILED", "trainer ended with exit code 5", 5)
    good = jobs.submit(plan(shell("echo a", role="a"), shell("sleep 0.3; echo b", role="b")))
    assert jobs.wait(good.id).state == "SUCCEEDED"
    assert [(line.role, line.text) for line in jobs.logs(good.id)] == [("a", "a"), ("b", "b")]
    assert [line.text for line in jobs.logs(good.id, role="b")] == ["b"]
    with pytest.raises(NotFound, match="no role 'c'"):
        jobs.logs(good.id, role="c")


STUBBORN = """
import os, signal, subprocess, sys, time
mark = "LEFTOVER_%s" % os.environ["TUNEPORT_JOB_ID"]
sleeper = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
def daemon(env):
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 64)
    os.execve(sys.executable, [sys.executable, "-S", "-c", sleeper, mark], env)
daemon(dict(os.environ))                       # detached, deaf to TERM
daemon({})                                     # detached, with nothing that marks it
subprocess.Popen([sys.executable, "-S", "-c", sleeper, mark], start_new_session=True, env={})
subprocess.Popen(["sh", "-c", "sleep 600 # " + mark])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(os.environ["TUNEPORT_OUTPUT_DIR"] + "/ready", "w").close()
if len(sys.argv) > 1:
    time.sleep(600)
"""


def test_stop_leaves_no_process(state: Path) -> None:
    jobs = control({"stop_grace": 0.3})
    job = jobs.submit(plan(python_with_args(STUBBORN, "stay")))
    until((jobs.output_dir(job) / "ready").exists)
    until(lambda: len(marked(f"LEFTOVER_{job.id}")) >= 4)
    stopped = jobs.stop(job.id)
    assert marked(f"LEFTOVER_{job.id}") == []
    assert marked(f"TUNEPORT_JOB_KEY={job.id}") == []
    assert stopped.state == "STOPPED"
    assert "had to be killed" in stopped.cause
    assert jobs.stop(job.id).cause == stopped.cause  # twice is fine
    # The supervisor ends as well.
    until(lambda: marked(f"TUNEPORT_SUPERVISOR={job.id}-1") == [])


def test_stop_ends_an_unsupervised_job_too() -> None:
    jobs = control({"stop_grace": 0.3})
    job = jobs.submit(plan(python_with_args(STUBBORN.replace("daemon({})", ""), "stay")))
    until((jobs.output_dir(job) / "ready").exists)
    until(lambda: len(marked(f"LEFTOVER_{job.id}")) >= 3)
    supervisor = Folder.of(f"{job.id}-1").supervised_by()
    os.kill(supervisor.pid, signal.SIGKILL)
    until(lambda: not alive(supervisor.pid))
    orphan = jobs.get(job.id)
    assert orphan.state == "RUNNING"
    assert orphan.cause.startswith("unsupervised: its supervisor died")
    stopped = jobs.stop(job.id)
    assert stopped.state == "STOPPED"
    assert marked(f"LEFTOVER_{job.id}") == []


def test_what_a_finished_job_leaves_behind_is_ended() -> None:
    jobs = control({"stop_grace": 0.3, "linger": 0.2})
    job = jobs.wait(jobs.submit(plan(python_with_args(STUBBORN))).id, timeout=30)
    assert job.state == "SUCCEEDED"
    assert "left behind had to be ended" in job.cause
    assert marked(f"LEFTOVER_{job.id}") == []


POLITE = """
import signal, sys, time
def leave(*_):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(600)
"""


def test_a_job_that_takes_the_request_well_is_stopped_not_succeeded() -> None:
    jobs = control()
    job = jobs.submit(plan(python_with_args(POLITE)))
    until(lambda: [line.text for line in jobs.logs(job.id)] == ["ready"])
    stopped = jobs.stop(job.id)
    assert stopped.state == "STOPPED"
    assert stopped.cause.startswith("stopped by ")
    assert [line.text for line in jobs.logs(job.id)] == ["ready", "saved"]


def test_a_job_that_submits_a_job_does_not_own_it(tmp_path: Path) -> None:
    inner = tmp_path / "inner.py"
    inner.write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from jobs_support import control, plan, shell\n"
        "print(control().submit(plan(shell('sleep 600'))).id, flush=True)\n"
        "import time; time.sleep(600)\n"
    )
    jobs = control()
    outer = jobs.submit(plan(command(sys.executable, str(inner))))
    name = until(lambda: [line.text for line in jobs.logs(outer.id)])[0]
    assert jobs.stop(outer.id).state == "STOPPED"
    assert jobs.get(name).state == "RUNNING"
    assert jobs.stop(name).state == "STOPPED"


def test_a_supervisor_that_is_told_to_end_stops_its_job() -> None:
    jobs = control()
    job = jobs.submit(plan(shell("sleep 600")))
    folder = Folder.of(f"{job.id}-1")
    until(folder.started)
    os.kill(folder.supervised_by().pid, signal.SIGTERM)
    job = jobs.wait(job.id, timeout=20)
    assert (job.state, job.cause) == ("STOPPED", "stopped: its supervisor was told to end")


def test_the_supervisor_outlives_its_terminal_and_parent(tmp_path: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from jobs_support import control, plan, shell\n"
        f"print(control().submit(plan(shell('sleep 0.5; echo survived'))).id)\n"
    )
    # A session of its own, as a terminal has one; all of it is killed when the submitter returns.
    done = subprocess.run(
        [
            "setsid",
            "--wait",
            sys.executable,
            "-c",
            script + "import os, signal; sys.stdout.flush(); os.killpg(0, signal.SIGKILL)",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    name = done.stdout.strip()
    assert name, done.stderr
    jobs = control()
    assert jobs.wait(name, timeout=20).state == "SUCCEEDED"
    assert [line.text for line in jobs.logs(name)] == ["survived"]


def test_refusals_come_before_anything_is_recorded() -> None:
    jobs = control({"gpus": [0, 1]})
    with pytest.raises(Unavailable, match="needs 8 gpu cards, this machine has 2"):
        jobs.submit(plan(shell("true"), gpus=8))
    with pytest.raises(Unavailable, match="asks for 2 nodes"):
        jobs.submit(plan(shell("true"), nodes=2))
    with pytest.raises(Invalid, match="NUL"):
        jobs.submit(plan(shell("echo a\0b")))
    with pytest.raises(Invalid, match="half a character"):
        jobs.submit(plan(shell("true", env={"X": "\udcff"})))
    with pytest.raises(Invalid, match="cannot be an environment variable"):
        jobs.submit(plan(shell("true", env={"A=B": "x"})))
    with pytest.raises(Invalid, match="two commands of the plan have one role"):
        jobs.submit(plan(shell("true"), shell("true")))
    with pytest.raises(Invalid, match="cannot be the name of a role"):
        jobs.submit(plan(shell("true", role="../x")))
    assert jobs.jobs() == []


def test_a_missing_runtime_is_said_with_the_way_out() -> None:
    planned = LaunchPlan(
        "x/y", "1", RuntimeNeed("no-such-1.0", "cpu"), (Pool("main", "cpu", 1, 1),), (shell("true"),)
    )
    with pytest.raises((Unavailable, NotFound), match="no-such-1"):
        control().submit(planned)


def test_another_jobs_output_and_datasets_are_references(state: Path) -> None:
    jobs = control()
    first = jobs.submit(plan(shell("echo weights > $TUNEPORT_OUTPUT_DIR/model.txt")))
    assert jobs.wait(first.id).state == "SUCCEEDED"
    second = jobs.submit(plan(command("cat", Ref("run_output", "/model.txt", first.id))))
    assert jobs.wait(second.id).state == "SUCCEEDED"
    assert [line.text for line in jobs.logs(second.id)] == ["weights"]
    for name in ("sft-nope22", "../x", ""):
        with pytest.raises(NotFound):
            jobs.submit(plan(command("cat", Ref("run_output", "", name))))
    with pytest.raises(NotFound):
        jobs.submit(plan(command("cat", Ref("dataset", "/x", "alice/none@v1"))))
    assert [job.id for job in jobs.jobs()] == [second.id, first.id]  # nothing was recorded of the others


def test_the_last_good_attempt_is_what_others_read(tmp_path: Path) -> None:
    jobs = control()
    flag = tmp_path / "flag"
    job = jobs.submit(plan(shell(f"echo $TUNEPORT_ATTEMPT > $TUNEPORT_OUTPUT_DIR/n; test ! -e {flag}")))
    assert jobs.wait(job.id).state == "SUCCEEDED"
    flag.touch()
    assert jobs.wait(jobs.retry(job.id).id).state == "FAILED"
    reader = jobs.submit(plan(command("cat", Ref("run_output", "/n", job.id))))
    jobs.wait(reader.id)
    assert [line.text for line in jobs.logs(reader.id)] == ["1"]


def test_render_is_pure_and_settings_are_checked() -> None:
    fleet = LocalFleet({})
    planned = plan(shell("true"))
    assert fleet.render(planned, "a-1") == fleet.render(planned, "a-1")
    assert fleet.capabilities().multi_node is False
    for settings in ({"gpus": "0"}, {"gpus": [-1]}, {"gpus": [True]}):
        with pytest.raises(Invalid, match="gpus must be"):
            LocalFleet(settings).capabilities()
    for settings in ({"max_jobs": 0}, {"max_cpu_jobs": "2"}, {"stop_grace": -1}, {"linger": True}):
        with pytest.raises(Invalid, match="must be a"):
            LocalFleet(settings)


def test_submitting_twice_with_one_key_starts_once(tmp_path: Path) -> None:
    fleet = LocalFleet({"gpus": []})
    starts = tmp_path / "starts"
    request = {**fleet.render(plan(shell(f"echo x >> {starts}; sleep 0.3")), "twice-222222-1"), "order": 1}
    for _ in range(3):
        assert fleet.submit(request, "twice-222222-1") == "twice-222222-1"
    assert fleet.find("twice-222222-1") == "twice-222222-1"
    assert fleet.find("other-222222-1") is None
    until(lambda: fleet.poll(["twice-222222-1"])["twice-222222-1"].state == "SUCCEEDED")
    fleet.submit(request, "twice-222222-1")
    time.sleep(0.3)
    assert lines(starts) == ["x"]


def test_log_offsets_go_on_without_loss_or_repeats() -> None:
    jobs = control()
    job = jobs.wait(jobs.submit(plan(shell("printf 'one\\ntwo\\n\\nfour'"))).id)
    fleet = LocalFleet({})
    texts, since = [], 0
    while True:
        line = next(fleet.logs(job.last.handle, role="trainer", since=since), None)
        if line is None:
            break
        texts.append(line.text)
        since = line.offset
    assert texts == ["one", "two", "", "four"]


def test_the_report_modules_are_on_the_path(tmp_path: Path) -> None:
    jobs = control()
    text = (
        "import tuneport_report, tuneplane.report\n"
        "from tuneplane import report\n"
        "from tuneplane.report import init, log, finish\n"
        "assert report is tuneport_report is tuneplane.report\n"
        "init(lr=1); log({'loss': 0.5}, step=3); finish()\n"
    )
    job = jobs.wait(jobs.submit(plan(command(sys.executable, "-c", text))).id)
    assert job.state == "SUCCEEDED", [line.text for line in jobs.logs(job.id)]
    kinds = [json.loads(line)["kind"] for line in lines(Folder.of(job.last.key).report)]
    assert kinds == ["init", "log", "finish"]


def test_a_job_of_another_machine_is_unknown_and_never_started_here(state: Path) -> None:
    jobs = control()
    job = jobs.submit(plan(shell("sleep 600")))
    folder = Folder.of(job.last.key)
    until(folder.started)
    record = json.loads(folder.supervisor.read_text())
    os.kill(record["pid"], signal.SIGKILL)
    folder.supervisor.write_text(json.dumps({**record, "host": "elsewhere", "boot": "another"}))
    seen_here = jobs.get(job.id)
    assert (seen_here.state, seen_here.cause) == (
        "UNKNOWN",
        "it was submitted on elsewhere, which cannot be asked from here",
    )
    assert jobs.recover() == []
    with pytest.raises(Unavailable, match="submitted on elsewhere"):
        jobs.stop(job.id)


def test_tp_fleet_check_and_ls(state: Path) -> None:
    listed = json.loads(tp("fleet", "ls", "--json").stdout)
    assert {"name": "local", "kind": "local"}.items() <= next(
        f for f in listed["fleets"] if f["name"] == "local"
    ).items()
    checked = tp("fleet", "check", "local", "--json")
    assert checked.returncode == 0
    assert json.loads(checked.stdout)["fleets"][0]["ok"] is True
    assert "answers" in tp("fleet", "check", "local").stdout
    missing = tp("fleet", "check", "nowhere", "--json")
    assert missing.returncode == 6
    assert json.loads(missing.stdout)["fleets"][0]["error"]["code"] == "fleet-plugin-missing"


def test_a_job_that_began_is_not_started_by_a_late_submission(tmp_path: Path) -> None:
    """Somebody found it unsupervised, or just not started, a moment ago, and submits or supervises it now."""
    starts = tmp_path / "starts"
    fleet = LocalFleet({"gpus": []})
    key = "late-222222-1"
    request = {**fleet.render(plan(shell(f"echo x >> {starts}; sleep 600")), key), "order": 1}
    fleet.submit(request, key)
    folder = Folder.of(key)
    until(lambda: lines(starts) == ["x"])
    first = folder.supervised_by()
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not alive(first.pid))
    for ended in (False, True):
        if ended:
            for pid in marked(f"TUNEPORT_JOB_KEY={key}"):
                os.kill(pid, signal.SIGKILL)
            until(lambda: fleet.poll([key])[key].state == "UNKNOWN")
        assert fleet.find(key) == key
        fleet.submit(request, key)
        assert folder.supervised_by() == first  # nobody took over
        assert (
            subprocess.run([sys.executable, "-m", "tuneport.fleets.supervisor", key], check=False).returncode
            == 0
        )
        assert folder.supervised_by() == first
    assert (
        role.start(folder, "trainer", ["sh", "-c", f"echo y >> {starts}"], {})[1] == "it was started before"
    )
    assert lines(starts) == ["x"]


def test_of_many_supervisors_one_lives(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    fleet = LocalFleet({"gpus": []})
    key = "many-222222-1"
    folder = Folder.of(key)
    request = {**fleet.render(plan(shell(f"echo x >> {starts}; sleep 0.3")), key), "order": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tuneport.fleets.local._start_supervisor", lambda _: None)
        fleet.submit(request, key)
    assert fleet.poll([key])[key].state == "ACCEPTED"
    command_line = [sys.executable, "-m", "tuneport.fleets.supervisor", key]
    started = [
        subprocess.Popen(command_line, env={**os.environ, "TUNEPORT_SUPERVISOR": key}) for _ in range(6)
    ]
    assert [process.wait() for process in started] == [0] * 6
    until(lambda: fleet.poll([key])[key].state == "SUCCEEDED")
    assert lines(starts) == ["x"]
    assert folder.begun("trainer").exists()


def test_a_suspended_supervisor_and_job_can_be_stopped() -> None:
    jobs = control()
    job = jobs.submit(plan(shell("sleep 600")))
    folder = Folder.of(job.last.key)
    until(folder.started)
    for pid in (folder.supervised_by().pid, folder.roots()[0].pid):
        os.kill(pid, signal.SIGSTOP)
    assert jobs.stop(job.id).state == "STOPPED"
    assert marked(f"TUNEPORT_JOB_KEY={job.last.key}") == []


def test_a_command_that_is_still_a_copy_of_its_supervisor_is_the_jobs(tmp_path: Path) -> None:
    """Between fork and exec it has the supervisor's environment; suspended there, it would never be ended."""
    copy = subprocess.Popen(
        ["sleep", "600"], env={procs.SUPERVISOR_MARK: "job-1", procs.MARK: "job-1"}, start_new_session=True
    )
    try:
        os.kill(copy.pid, signal.SIGSTOP)
        stat = procs.read_stat(copy.pid)
        assert stat is not None
        root = procs.Ident(copy.pid, stat.start, procs.boot_id(), procs.host_name())
        until(lambda: procs.SUPERVISOR_MARK.encode() in Path(f"/proc/{copy.pid}/environ").read_bytes())
        assert procs.members("job-1", tmp_path, []) == [], "a supervisor is not its job's"
        assert procs.members("job-1", tmp_path, [root]) == [copy.pid]
    finally:
        copy.kill()
        copy.wait()


def test_a_supervisor_that_is_told_to_end_while_it_waits_loses_nothing() -> None:
    jobs = control({"max_jobs": 1})
    blocker = jobs.submit(plan(shell("sleep 600")))
    job = jobs.submit(plan(shell("echo ran")))
    folder = Folder.of(job.last.key)
    os.kill(folder.supervised_by().pid, signal.SIGTERM)
    until(lambda: marked(f"TUNEPORT_SUPERVISOR={job.last.key}") == [])
    jobs.stop(blocker.id)
    assert jobs.wait(job.id, timeout=20).state == "SUCCEEDED"
    assert [line.text for line in jobs.logs(job.id)] == ["ran"]


def test_a_venv_runtime_is_first_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "bin" / "trainer-tool").write_text(
        "#!/bin/sh\necho $VIRTUAL_ENV; echo $PYTHONHOME; echo $PYTHONUNBUFFERED\n"
    )
    (venv / "bin" / "trainer-tool").chmod(0o755)
    monkeypatch.setattr("tuneport.fleets.resolve.interpreter", lambda _: venv / "bin" / "python")
    planned = plan(command("trainer-tool"))
    planned = replace(planned, runtime=RuntimeNeed("x-1", "cpu"))
    jobs = control()
    job = jobs.wait(jobs.submit(planned).id)
    assert [line.text for line in jobs.logs(job.id)] == [str(venv), "", "1"]
