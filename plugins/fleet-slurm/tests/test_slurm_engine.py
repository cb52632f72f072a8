"""Jobs on a real Slurm: they run, end, stop and come back as the fleet says, whatever is lost on the way."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tuneport.checks import directives
from tuneport.errors import Unavailable
from tuneport.experiment import create, fleets
from tuneport.jobs.control import Control
from tuneport.jobs.model import Record
from tuneport.settings import cache_dir
from tuneport.testing.fleets import FleetTests, lost_after
from tuneport.types import Command, Pool, Ref, RuntimeNeed
from tuneport_fleet_slurm.fleet import SlurmFleet

sys.path.insert(0, str(Path(__file__).parent))
from slurm_support import cluster, plan, shell, sim

pytestmark = pytest.mark.engine
SETTINGS = {"partition": "main", "images": "none", "timeout": 30}
TWO = (Pool("main", "cpu", 2, 1),)


@pytest.fixture(scope="module")
def slurm() -> Iterator[Path]:
    yield from cluster()


@pytest.fixture(autouse=True)
def state(slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith(("SLURM_", "SBATCH_")) or (name.startswith("TUNEPORT_") and "CACHE" not in name):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", str(slurm / "slurm.conf"))
    monkeypatch.setenv("TUNEPORT_STATE_DIR", str(tmp_path / "state of ü"))
    return tmp_path / "state of ü"


@pytest.fixture
def control(state: Path) -> Iterator[Control]:
    fleet = SlurmFleet(SETTINGS)
    made = Control(load_fleet=lambda _kind, _settings: fleet)
    yield made
    made.close()


def submit(control: Control, *commands: Command, **more: Any) -> Record:
    return control.submit(
        plan(*commands, **more), fleet_name="cluster", fleet_kind="slurm", fleet_settings={}
    )


def until(what: Callable[[], Any], seconds: float = 40) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.3)
    return value


def said(control: Control, job: Record, **more: Any) -> list[str]:
    return [line.text for line in control.logs(job.id, **more)]


def jobs_called(key: str) -> list[str]:
    words = ["squeue", "-h", "-t", "all", f"--name={key}", "-o", "%i %T"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


class TestSlurm(FleetTests):
    """Its faults are below: they are those of Slurm's commands."""

    kind = "slurm"

    @pytest.fixture
    def fleet(self, state: Path) -> SlurmFleet:
        return SlurmFleet(SETTINGS)

    @contextlib.contextmanager
    def away(self, fleet: SlurmFleet) -> Iterator[None]:
        """Slurm's commands look for the controller where none is."""
        real = Path(os.environ["SLURM_CONF"])
        other = real.with_name("away.conf")
        other.write_text(re.sub(r"(?m)^SlurmctldPort=.*", "SlurmctldPort=9", real.read_text()))
        os.environ["SLURM_CONF"] = str(other)
        try:
            yield
        finally:
            os.environ["SLURM_CONF"] = str(real)

    def reply_lost(self, fleet: SlurmFleet) -> contextlib.AbstractContextManager[None]:
        return lost_after(fleet._engine, "submit")

    def known(self, fleet: SlurmFleet, key: str) -> int:
        return len(jobs_called(key))


def test_the_fleet_answers_what_it_is_asked(tmp_path: Path) -> None:
    shapes = {"h200": {"gpus_per_node": 8, "count": 2}}
    fleet = SlurmFleet({**SETTINGS, "nodes": shapes})
    can = fleet.capabilities()
    assert (can.accelerators, can.multi_node, can.runtimes) == (16, True, ("venv",))
    probes = {probe.what: probe for probe in fleet.probes()}
    assert all(probe.ok for probe in probes.values()), probes
    assert "2 of 2 nodes usable, 16 cards" in probes["partition"].found
    bad = {p.what: p for p in SlurmFleet({"partition": "nope"}).probes()}
    assert not bad["partition"].ok and "main" in bad["partition"].hint
    shapes["h200"]["count"] = 3
    assert not {p.what: p for p in SlurmFleet({**SETTINGS, "nodes": shapes}).probes()}["nodes"].ok


def test_a_job_runs_on_two_nodes_with_what_user_code_may_ask(control: Control) -> None:
    own = '"$TUNEPORT_CLUSTER_NODE_RANK of $TUNEPORT_CLUSTER_NODES at $TUNEPORT_CLUSTER_HEAD_ADDR'
    text = f'echo {own} $CUDA_VISIBLE_DEVICES $1"'
    command = Command("trainer", ("sh", "-c", text, "sh", Ref("node_rank", "\n'$(x)")), {"A": "é"})
    job = submit(control, command, pools=(Pool("main", "h200", 2, 8),))
    done = control.wait(job.id, timeout=60)
    assert (done.state, done.last.exit_code) == ("SUCCEEDED", 0), done.cause
    assert done.last.started and done.last.ended and done.last.ended >= done.last.started
    lines = said(control, job)
    for rank in (0, 1):
        assert f"{rank}: {rank} of 2 at 127.0.0.1 0,1,2,3,4,5,6,7 {rank}" in lines, lines
        assert f"{rank}: '$(x)" in lines
    states = [step.after for step in control.history(done)]
    assert states[0] == "ACCEPTED" and states[-1] == "SUCCEEDED" and "RUNNING" in states


def test_pools_of_two_kinds_are_a_heterogeneous_job(state: Path) -> None:
    fleet = SlurmFleet({**SETTINGS, "nodes": {"h200": {"gpus_per_node": 8}, "l40": {"gpus_per_node": 2}}})
    control = Control(load_fleet=lambda _kind, _settings: fleet)
    show = 'echo "$CUDA_VISIBLE_DEVICES $TUNEPORT_CLUSTER_TEACH_NODES rank $1"; sleep 2'
    roles = [
        Command(role, ("sh", "-c", show, "sh", Ref("node_rank")), {}, {}, pool)
        for role, pool in (("actor", "main"), ("teacher", "teach"))
    ]
    job = submit(control, *roles, pools=(Pool("main", "h200", 1, 8), Pool("teach", "l40", 1, 2)))
    done = control.wait(job.id, timeout=60)
    assert done.state == "SUCCEEDED", (done.cause, said(control, job))
    assert "0,1,2,3,4,5,6,7 1 rank 0" in said(control, job, role="actor")
    assert "0,1 1 rank 1" in said(control, job, role="teacher")
    control.close()


def test_one_role_that_fails_ends_the_others_and_is_the_cause(control: Control) -> None:
    job = submit(
        control, shell("sleep 100", "actor"), shell("sleep 1; exit 7", "critic", "other"),
        pools=(Pool("main", "cpu", 1, 1), Pool("other", "cpu", 1, 1)),
    )  # fmt: skip
    done = control.wait(job.id, timeout=60)
    assert (done.state, done.last.exit_code) == ("FAILED", 7)
    assert done.cause.startswith("critic ended with exit code 7 on sn")


def test_a_job_that_waits_says_for_what_and_can_be_stopped(control: Control) -> None:
    first = submit(control, shell("sleep 100"), pools=(Pool("main", "h200", 2, 8),))
    until(lambda: control.get(first.id).state == "RUNNING")
    second = submit(control, shell("true"), pools=(Pool("main", "h200", 1, 8),))
    waiting = until(lambda: (job := control.get(second.id)).cause.endswith("waits for free nodes") and job)
    assert waiting.state == "QUEUED"
    assert control.stop(second.id).state == "STOPPED"
    assert control.stop(first.id).state == "STOPPED"


def test_of_two_slurm_jobs_for_one_submission_one_runs(control: Control, state: Path) -> None:
    job = submit(control, shell("echo once; sleep 3"))
    script = state / "jobs" / job.id / "1" / "job.sh"
    subprocess.run(["sbatch", "--parsable", str(script)], capture_output=True, check=True)
    done = control.wait(job.id, timeout=60)
    assert done.state == "SUCCEEDED"
    until(lambda: all("COMPLETED" in line for line in jobs_called(f"{job.id}-1")))
    lines = said(control, job)
    assert lines.count("once") == 1 and any("has nothing to do" in line for line in lines)


def test_a_controller_that_is_down_loses_nothing(control: Control, slurm: Path) -> None:
    running = submit(control, shell("echo begun; sleep 6; echo survived"))
    until(lambda: "begun" in said(control, running))
    sim("controller-stop", slurm)
    try:
        lost = control.get(running.id)
        assert lost.state == "UNKNOWN" and "Unable to contact" in lost.cause
        accepted = submit(control, shell("echo later"))
        with pytest.raises(Unavailable):
            control.stop(running.id)
        probes = list(SlurmFleet(SETTINGS).probes())
        assert not probes[-1].ok and probes[-1].hint
    finally:
        sim("controller-start", slurm)
    done = control.wait(running.id, timeout=5)
    until(lambda: control.recover() is not None and control.get(accepted.id).state in ("SUCCEEDED",), 60)
    assert len(jobs_called(f"{accepted.id}-1")) == 1
    # The wish to stop, which could not be carried out, ends nothing later.
    assert done.state in ("RUNNING", "UNKNOWN", "SUCCEEDED")
    assert until(lambda: (job := control.get(running.id)).state == "SUCCEEDED" and job)
    assert "survived" in said(control, running)


def test_a_requeued_job_starts_anew_under_the_same_name(state: Path) -> None:
    fleet = SlurmFleet({**SETTINGS, "requeue": True})
    control = Control(load_fleet=lambda _kind, _settings: fleet)
    job = submit(control, shell('echo "start $TUNEPORT_RESTARTS"; [ "$TUNEPORT_RESTARTS" = 1 ] || sleep 100'))
    until(lambda: "start 0" in said(control, job))
    (row,) = jobs_called(f"{job.id}-1")
    subprocess.run(["scontrol", "requeue", row.split()[0]], check=True)
    until(lambda: "requeued" in control.get(job.id).cause)
    assert control.get(job.id).state == "RUNNING", "it does not go back to waiting"
    done = control.wait(job.id, timeout=90)
    assert done.state == "SUCCEEDED", done.cause
    assert [line for line in said(control, job) if line.startswith("start")] == ["start 0", "start 1"]
    control.close()


def test_the_time_limit_is_a_cause_and_the_command_hears_of_it(state: Path) -> None:
    fleet = SlurmFleet({**SETTINGS, "limits": {"time": "00:01:00"}})
    control = Control(load_fleet=lambda _kind, _settings: fleet)
    job = submit(control, shell('trap "echo heard; exit 3" TERM; sleep 300 & wait'))
    done = control.wait(job.id, timeout=150)
    assert done.state == "FAILED" and done.cause.endswith("ran into its time limit")
    assert "heard" in said(control, job)
    control.close()


def test_a_refusal_is_said_with_what_to_do(state: Path) -> None:
    control = Control(load_fleet=lambda _kind, _settings: SlurmFleet({"partition": "nope"}))
    with pytest.raises(Unavailable) as caught:
        submit(control, shell("true"))
    assert "nvalid partition" in caught.value.message and "sinfo" in caught.value.hint
    (job,) = control.jobs()
    assert job.state == "FAILED" and "not started" in job.cause
    control.close()


def test_a_job_that_slurm_forgot_is_told_by_its_own_record(control: Control, state: Path) -> None:
    job = submit(control, shell("exit 5"))
    done = control.wait(job.id, timeout=60)
    assert done.last.exit_code == 5
    fleet = SlurmFleet(SETTINGS)
    fleet._engine.queue = lambda keys: []  # type: ignore[method-assign] # as after MinJobAge
    (status,) = fleet.poll([f"{job.id}-1@{99999}"]).values()
    assert (status.state, status.exit_code) == ("FAILED", 5)
    (state / "jobs" / job.id / "1" / "exit.json").unlink()
    (status,) = fleet.poll([f"{job.id}-1@{99999}"]).values()
    assert status.state == "UNKNOWN" and "forgotten" in status.cause


FAULTY = """#!/bin/sh
# Stands before a command of Slurm: now and then it fails before it did anything, or after it did it all.
number=$(od -An -N2 -tu2 /dev/urandom)
[ -e "$FAULTS/on" ] && case $((number % 7)) in
  0) echo . >>"$FAULTS/count"; echo "Unable to contact slurm controller (connect failure)" >&2; exit 1 ;;
  1) echo . >>"$FAULTS/count"; REAL "$@" >/dev/null; echo "Socket timed out on send/recv" >&2; exit 1 ;;
  2) echo . >>"$FAULTS/count"; REAL "$@" >/dev/null; echo "garbage;|+"; exit 0 ;;
esac
exec REAL "$@"
"""


def test_directives_are_read_as_sbatch_reads_them(tmp_path: Path) -> None:
    chance, script = random.Random(7), tmp_path / "job.sh"
    for _ in range(60):
        line = "".join(chance.choice("ab=- \t\"'\\#N2-") for _ in range(chance.randint(1, 14)))
        script.write_text(f"#!/bin/sh\n#SBATCH {line}\n")
        done = subprocess.run(
            ["sbatch", "-vvvv", "--test-only", str(script)], capture_output=True, text=True, check=False
        )
        if "Unmatched" not in done.stderr:
            said = re.findall(r'Found in script, argument "(.*)"$', done.stderr, re.MULTILINE)
            assert directives.words(line) == said


def test_whatever_fails_around_slurm_each_job_runs_once(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty jobs and at least so many faults: 0 lost, 0 started twice, 0 failed."""
    for name in ("sbatch", "squeue", "scontrol"):
        real = shutil.which(name)
        assert real is not None
        (tmp_path / name).write_text(FAULTY.replace("REAL", real))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FAULTS", str(tmp_path))
    (tmp_path / "on").touch()
    count, faults = tmp_path / "count", FleetTests.faults
    fleet = SlurmFleet({**SETTINGS, "timeout": 10})
    control = Control(load_fleet=lambda _kind, _settings: fleet)
    jobs = []
    for _ in range(20):
        jobs.append(submit(control, shell(f"echo once >>{tmp_path}/ran-$TUNEPORT_JOB_ID")).id)
    while not count.exists() or len(count.read_text()) < 2 * faults:
        control.recover()
        with contextlib.suppress(Unavailable):  # asked also once all have ended, when nobody else would
            fleet.poll([f"{job}-1" for job in jobs])
    (tmp_path / "on").unlink()
    until(lambda: control.recover() is not None and all(j.state == "SUCCEEDED" for j in control.jobs()), 120)
    assert len(jobs) == len(set(jobs)) == 20
    for job in jobs:
        assert (tmp_path / f"ran-{job}").read_text() == "once\n"
    control.close()


def test_digits_are_learned_by_torchrun_on_two_nodes(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = create.new_project(tmp_path / "project")
    monkeypatch.chdir(root)
    nodes = "nodes: {cpu: {gpus_per_node: 1, count: 2}}"
    (root / fleets.FILE).write_text(
        f"fleets:\n  cluster: {{kind: slurm, partition: main, images: none, {nodes}}}\n"
    )
    tp = [sys.executable, "-m", "tuneport"]
    new = [*tp, "new", "digits", "--method", "pytorch/image-classification", "--framework-version", "2.13.0"]
    subprocess.run(new, check=True, capture_output=True)
    words = ["--fleet", "cluster", "--profile", "cpu:2", "--set", "epochs=4", "--follow", "--json"]
    done = subprocess.run(
        [*tp, "submit", "digits", *words], capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    job = json.loads(done.stdout)["job"]
    shown = subprocess.run([*tp, "job", "metrics", job, "--json"], capture_output=True, text=True, check=True)
    (accuracy,) = [one for one in json.loads(shown.stdout)["series"] if one["name"] == "validation/accuracy"]
    assert accuracy["points"][-1][1] > 0.9, accuracy


def test_an_image_is_started_by_apptainer(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apptainer is in no package here: a stand-in writes down how it was called, and runs the command."""
    image = "/images/x.sif"
    stub = f'''#!/bin/sh
printf '%s\\n' "$@" >"$TUNEPORT_OUTPUT_DIR/argv"
while [ "$1" != "{image}" ]; do shift; done
shift
exec "$@"
'''
    (tmp_path / "apptainer").write_text(stub)
    (tmp_path / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    fleet = SlurmFleet({"partition": "main", "mounts": ["/data:/data:ro"]})
    control = Control(load_fleet=lambda _kind, _settings: fleet)
    what = plan(shell("echo in $TUNEPORT_ROLE"), pools=(Pool("main", "h200", 1, 8),))
    what = replace(what, runtime=RuntimeNeed("x-1", image=image))
    job = control.submit(what, fleet_name="cluster", fleet_kind="slurm", fleet_settings={})
    done = control.wait(job.id, timeout=60)
    assert done.state == "SUCCEEDED" and "in trainer" in said(control, job), done.cause
    argv = (control.output_dir(done) / "argv").read_text().splitlines()
    assert argv[:2] == ["exec", "--nv"] and argv[argv.index(image) + 1] == "sh"
    binds = [argv[n + 1] for n, word in enumerate(argv) if word == "--bind"]
    assert "/data:/data:ro" in binds and str(state / "jobs" / job.id) in binds
    control.close()


def test_a_ray_cluster_is_brought_up_inside_a_job() -> None:
    """In a process namespace, because `ray stop` ends every Ray that it sees, and in a network one, because
    Ray listens on every interface."""
    pythons = sorted(cache_dir().glob("engines/ray-*/bin/python"))
    if not pythons:
        pytest.skip("no Ray here: tools/engines/ray.sh install")
    folder = Path(tempfile.mkdtemp(prefix="tp-rs-"))
    folder.chmod(0o755)
    script = Path(__file__).with_name("ray_in_slurm.py")
    words = ["unshare", "--net", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", sys.executable]
    done = subprocess.run(
        [*words, str(script), str(pythons[-1]), str(folder)],
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    shutil.rmtree(folder)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "placed on 2 nodes of 2" in done.stdout
