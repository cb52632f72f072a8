"""Jobs on a real Ray cluster: they run, end, stop and come back as the fleet says, whatever is lost."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tuneport.compiler.ray_cluster import SCRIPT
from tuneport.experiment import create, fleets
from tuneport.jobs.control import Control
from tuneport.jobs.model import Record
from tuneport.testing.fleets import FleetTests, lost_after
from tuneport.types import Command, FileSpec, Pool, Ref
from tuneport_fleet_ray.fleet import RayFleet

sys.path.insert(0, str(Path(__file__).parent))
from ray_support import cluster, plan, shell

pytestmark = pytest.mark.engine
TWO = (Pool("main", "cpu", 2, 1),)


@pytest.fixture(scope="module")
def ray() -> Iterator[str]:
    yield from cluster()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("RAY_") or (name.startswith("TUNEPORT_") and "CACHE" not in name):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TUNEPORT_STATE_DIR", str(tmp_path / "state of ü"))
    return tmp_path / "state of ü"


@pytest.fixture
def fleet(ray: str, tmp_path: Path) -> RayFleet:
    nodes = {
        "h200": {"gpus_per_node": 8, "count": 1, "resources": {"big": 0.5}},
        "l40": {"gpus_per_node": 2, "resources": {"small": 0.5}},
    }
    return RayFleet({"address": ray, "storage": str(tmp_path / "shared é"), "nodes": nodes})


@pytest.fixture
def control(fleet: RayFleet) -> Iterator[Control]:
    made = Control(load_fleet=lambda _kind, _settings: fleet)
    yield made
    made.close()


def submit(control: Control, *commands: Command, folder: Path | None = None, **more: Any) -> Record:
    return control.submit(
        plan(*commands, **more), source_dir=folder, fleet_name="r", fleet_kind="ray", fleet_settings={}
    )


def until(what: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.3)
    return value


def said(control: Control, job: Record, **more: Any) -> list[str]:
    return [line.text for line in control.logs(job.id, **more)]


class TestRay(FleetTests):
    kind = "ray"

    @contextlib.contextmanager
    def away(self, fleet: RayFleet) -> Iterator[None]:
        real, fleet._api.address = fleet._api.address, "http://127.0.0.1:9"
        try:
            yield
        finally:
            fleet._api.address = real

    def reply_lost(self, fleet: RayFleet) -> contextlib.AbstractContextManager[None]:
        return lost_after(fleet._api, "send")

    def seam(self, fleet: RayFleet) -> tuple[Any, str, Callable[..., Any]]:
        return fleet._api, "_call", lambda method, *_: b"<html>busy" if method == "GET" else None

    def known(self, fleet: RayFleet, key: str) -> int:
        return [one["submission_id"] for one in fleet._api.ask("/api/jobs/")].count(key)


def test_the_fleet_answers_what_it_is_asked(fleet: RayFleet, ray: str) -> None:
    can = fleet.capabilities()
    assert (can.accelerators, can.multi_node) == (16, True)
    probes = list(fleet.probes())
    assert all(probe.ok for probe in probes), probes
    more = {"h200": {"gpus_per_node": 8, "count": 2, "resources": {"big": 0.5}}}
    bad = [probe for probe in RayFleet({"address": ray, "nodes": more}).probes() if not probe.ok]
    assert [probe.what for probe in bad] == ["nodes"] and "small" in bad[0].hint


def test_each_node_gets_its_part_and_every_value_as_it_was(control: Control, tmp_path: Path) -> None:
    odd = "\n'$(x)\" é\\ `y`"
    source = tmp_path / "exp"
    source.mkdir()
    (source / "data ü.txt").write_text("content")
    digests = {"data ü.txt": "sha256:" + hashlib.sha256(b"content").hexdigest()}
    show = (
        "import json,os,sys; e=os.environ; rank=e['TUNEPORT_CLUSTER_NODE_RANK'];"
        "json.dump([sys.argv[1:], e['ODD'], open('data ü.txt').read(), e['CUDA_VISIBLE_DEVICES'],"
        "e['TUNEPORT_CLUSTER_NODES'], e['TUNEPORT_CLUSTER_HEAD_ADDR']],"
        " open(e['TUNEPORT_OUTPUT_DIR'] + '/' + rank, 'w')); print('rank', rank)"
    )
    words = (Ref("python"), "-S", "-c", show, odd, Ref("node_rank", odd, prefix=odd))
    command = Command("trainer", words, {"ODD": odd})
    job = submit(control, command, folder=source, source=digests, pools=(Pool("main", "x1", 2, 4),))
    done = control.wait(job.id, timeout=90)
    assert done.state == "SUCCEEDED", (done.cause, said(control, job))
    for rank in ("0", "1"):
        found = json.loads((control.output_dir(done) / rank).read_text())
        assert found[:3] == [[odd, odd + rank + odd], odd, "content"]
        assert len(found[3].split(",")) == 4 and found[4:] == ["2", "127.0.0.1"]
        assert f"{rank}: rank {rank}" in said(control, job)


def test_pools_are_placed_by_their_resources(control: Control) -> None:
    show = 'echo "$CUDA_VISIBLE_DEVICES of $TUNEPORT_CLUSTER_TEACH_NODES as $1"'
    roles = [
        Command(role, ("sh", "-c", show, "sh", Ref("node_rank")), {}, {}, pool)
        for role, pool in (("actor", "main"), ("teacher", "teach"))
    ]
    job = submit(control, *roles, pools=(Pool("main", "h200", 1, 8), Pool("teach", "l40", 1, 2)))
    assert control.wait(job.id, timeout=90).state == "SUCCEEDED", said(control, job)
    assert "0,1,2,3,4,5,6,7 of 1 as 0" in said(control, job, role="actor")
    assert said(control, job, role="teacher") == ["0,1 of 1 as 1"]


def test_a_program_that_works_on_ray_gets_the_cluster(control: Control) -> None:
    program = (
        "import ray; ray.init(log_to_driver=False); from ray.util.placement_group import placement_group\n"
        "group = placement_group([{'GPU': 8, 'CPU': 1}] * 2, strategy='STRICT_SPREAD')\n"
        "ray.get(group.ready())\n"
        "from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as By\n"
        "where = ray.remote(lambda: ray.get_runtime_context().get_node_id())\n"
        "tasks = [where.options(num_gpus=8, scheduling_strategy=By(group, i)).remote() for i in (0, 1)]\n"
        "print(len(set(ray.get(tasks))), 'nodes')\n"
    )
    text = (Path(sys.modules[Control.__module__].__file__ or "").parents[1]
            / "compiler/ray_cluster_script.py").read_text()  # fmt: skip
    words = (Ref("python"), SCRIPT, "2", Ref("node_rank"), Ref("head_addr"), Ref("head_port"), "--", "p.py")
    files = {SCRIPT: FileSpec("text", text), "p.py": FileSpec("text", program)}
    commands = [
        Command(role, words, {}, files, pool) for role, pool in (("actor", "main"), ("critic", "other"))
    ]
    pools = (Pool("main", "h200", 1, 8), Pool("other", "l40", 1, 8))
    job = submit(control, *commands, pools=pools)
    assert control.wait(job.id, timeout=120).state == "SUCCEEDED", said(control, job)
    assert "2 nodes" in said(control, job)


def test_stop_ends_everything_in_time_and_retry_runs_again(control: Control) -> None:
    text = 'trap "echo heard; exit 3" TERM; echo up; sh -c "sleep 1000; : $TUNEPORT_JOB_ID" & wait'
    job = submit(control, shell(text))
    follow = control.logs(job.id, follow=True)
    until(lambda: next(follow).text == "up")
    assert control.get(job.id).state == "RUNNING"
    assert control.stop(job.id).state == "STOPPED" and control.stop(job.id).state == "STOPPED"
    assert "heard" in said(control, job)
    marks = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert f"sleep 1000; : {job.id}" not in marks
    assert control.retry(job.id).last.number == 2
    control.stop(job.id)


def test_a_cluster_that_forgot_loses_nothing(
    control: Control, fleet: RayFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(control, shell("true"))
    assert control.wait(job.id, timeout=60).state == "SUCCEEDED"
    # A head that was started anew knows nothing: the job's own record tells, and without it nobody can.
    monkeypatch.setattr(fleet, "_info", lambda _key: None)
    (status,) = fleet.poll([f"{job.id}-1"]).values()
    assert status.state == "SUCCEEDED"
    (control.output_dir(control.get(job.id)).parent / "exit.json").unlink()
    (status,) = fleet.poll([f"{job.id}-1"]).values()
    assert status.state == "UNKNOWN" and fleet.find(f"{job.id}-1"), "so that nothing is started again"


def test_digits_are_learned_by_torchrun_on_two_nodes(
    ray: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuneport.runtimes import resolve_python
    from tuneport.types import RuntimeNeed

    python = resolve_python(RuntimeNeed("pytorch-2.13.0", "cpu"))
    root = create.new_project(tmp_path / "project")
    monkeypatch.chdir(root)
    (root / fleets.FILE).write_text(
        "fleets:\n"
        f"  r: {{kind: ray, address: '{ray}', images: none, storage: '{tmp_path}/shared',\n"
        f"      python: '{python}',\n"
        "      nodes: {cpu: {gpus_per_node: 1, count: 2}}}\n"
    )
    tp = [sys.executable, "-m", "tuneport"]
    new = [*tp, "new", "digits", "--method", "pytorch/image-classification", "--framework-version", "2.13.0"]
    subprocess.run(new, check=True, capture_output=True)
    words = ["--fleet", "r", "--profile", "cpu:2", "--set", "epochs=4", "--follow", "--json"]
    done = subprocess.run(
        [*tp, "submit", "digits", *words], capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    job = json.loads(done.stdout)["job"]
    shown = subprocess.run([*tp, "job", "metrics", job, "--json"], capture_output=True, text=True, check=True)
    (accuracy,) = [one for one in json.loads(shown.stdout)["series"] if one["name"] == "validation/accuracy"]
    assert accuracy["points"][-1][1] > 0.9, accuracy
