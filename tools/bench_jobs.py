"""`tp job ls` with thousands of jobs on record, on a fleet of each kind: its time, and calls to the engine.

No engine runs: `squeue` is a script that knows the jobs, Ray's Jobs API and Kubernetes' answer from memory,
as in the tests, and each local job is supervised by one process that sleeps. Engines
are not timed.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import bench_setup as setup
from bench_time import Case, once, race
from tuneport.compiler.plan import plan_to_json
from tuneport.fleets import procs
from tuneport.fleets.layout import Folder
from tuneport.jobs.store import Store
from tuneport.types import Command, LaunchPlan, Pool, RuntimeNeed

JOBS, ACTIVE = 5000, 500
BAR = 200
"""Milliseconds that listing the newest 50 may take."""
CALLS = ACTIVE // 100
SINCE = 1_790_000_000.0
SQUEUE = """#!/bin/sh
echo asked >>{folder}/asked
for word in "$@"; do
    case $word in
        --name=*) awk -F'|' -v names=",${{word#--name=}}," 'index(names, "," $2 ",")' {folder}/rows ;;
    esac
done
"""
PLAN = LaunchPlan(
    method="custom/custom",
    release="custom 1",
    runtime=RuntimeNeed("custom-1", host=True),
    pools=(Pool("main", "cpu", 1, 1),),
    commands=(Command("trainer", ("true",), {}, {}, "main"),),
)

Keys = list[str]
Prepared = tuple[dict[str, Any], dict[str, str], Callable[[], int]]
"""A fleet's settings, the variables of its commands, and how many calls its engine has had."""


def section(venv: Path, work: Path, rounds: int) -> str:
    """The table of all kinds of fleets, as a part of docs/benchmarks.md."""
    with contextlib.ExitStack() as stack:
        cases, counts = [], {}
        for kind, engine in (
            ("local", _local),
            ("slurm", _slurm),
            ("ray", _ray),
            ("kubernetes", _kubernetes),
        ):
            home = work / f"jobs-{kind}"
            home.mkdir()
            environ, counts[kind] = _stored(
                home, kind, lambda *given, e=engine: stack.enter_context(e(*given))
            )
            cases.append(Case(kind, [str(venv / "bin/tp"), "job", "ls"], home, environ))
        found = race(cases, rounds)
        calls = {}
        for case in cases:
            before = counts[case.name]()
            once(case)
            calls[case.name] = counts[case.name]() - before
    lines = [
        f"## {JOBS:,} jobs, {ACTIVE} active\n",
        f"`tp job ls` where {JOBS:,} jobs are on record, of which {ACTIVE} run, on a fleet of each kind.",
        "What answers for the engine is a script or a server of this benchmark, whose own time is left",
        "out.\n",
        "| fleet | wall median | wall minimum | CPU median | CPU minimum | promised | calls | promised |",
        "|---|--:|--:|--:|--:|---|--:|---|",
    ]
    for kind, times in found.items():
        cells = " | ".join(f"{value:,.0f}" for value in times.row())
        kept = "kept" if times.row()[0] <= BAR else "**not kept**"
        asked = "kept" if calls[kind] <= CALLS else "**not kept**"
        lines.append(
            f"| `{kind}` | {cells} | at most {BAR}: {kept} | {calls[kind]} | at most {CALLS}: {asked} |"
        )
    return "\n".join(lines) + "\n"


def _stored(
    home: Path, kind: str, engine: Callable[[Path, Keys, Keys], Prepared]
) -> tuple[dict[str, str], Callable[[], int]]:
    """(environment of a command that finds the jobs, calls so far)."""
    state = home / "state"
    store = Store(state)
    store._connection.execute("PRAGMA synchronous = OFF")  # nobody crashes here
    document = plan_to_json(PLAN)
    settings: dict[str, Any] = {"ray": {"address": "http://127.0.0.1:0"}}.get(kind, {})
    given = {"experiment": "e", "source": "", "fleet": kind, "fleet_kind": kind, "fleet_settings": settings}
    jobs = [store.add(document, **given) for _ in range(JOBS)]
    keys = [job.last.key for job in jobs]
    over, active = keys[:-ACTIVE], keys[-ACTIVE:]
    for number, key in enumerate(keys):
        store.set_handle(key, {"slurm": f"{key}@{number + 1}", "kubernetes": f"{key}@jobset"}.get(kind, key))
    for key in over:
        store.move(
            key, "SUCCEEDED", "ended with exit code 0", "bench", exit_code=0, started=SINCE, ended=SINCE + 60
        )
    settings, variables, count = engine(home, over, active)
    store._connection.execute("UPDATE jobs SET fleet_settings = ?", (json.dumps(settings),))
    store.close()
    return {**setup.environment(home), "TUNEPORT_STATE_DIR": str(state), **variables}, count


@contextlib.contextmanager
def _local(home: Path, _: Keys, active: Keys) -> Iterator[Prepared]:
    supervisor = subprocess.Popen(["sleep", "infinity"])
    try:
        stat = procs.read_stat(supervisor.pid)
        start = stat.start if stat else 0
        ident = procs.Ident(supervisor.pid, start, procs.boot_id(), procs.host_name()).to_json()
        for key in active:
            folder = Folder.of(key, home / "state" / "jobs")
            folder.path.mkdir(parents=True)
            folder.supervisor.write_text(json.dumps(ident))
            folder.begun("trainer").write_text(json.dumps({**ident, "time": SINCE}))
        yield {}, {}, lambda: 0
    finally:
        supervisor.kill()
        supervisor.wait()


@contextlib.contextmanager
def _slurm(home: Path, over: Keys, active: Keys) -> Iterator[Prepared]:
    (home / "rows").write_text(
        "".join(
            f"{len(over) + number + 1}|{key}|RUNNING|2026-09-21T00:00:00|N/A|None\n"
            for number, key in enumerate(active)
        )
    )
    (home / "asked").touch()
    for name in ("squeue", "sacct"):
        (home / name).write_text(SQUEUE.format(folder=home))
        (home / name).chmod(0o700)
    path = f"{home}:{setup.environment(home)['PATH']}"
    yield {}, {"PATH": path}, lambda: len((home / "asked").read_text().splitlines())


@contextlib.contextmanager
def _ray(_: Path, over: Keys, active: Keys) -> Iterator[Prepared]:
    """A cluster that has forgotten no job: it tells of all in one answer."""
    jobs = [
        {
            "submission_id": key,
            "status": status,
            "start_time": SINCE * 1000,
            "metadata": {"tuneport_roles": "trainer"},
        }
        for keys, status in ((over, "SUCCEEDED"), (active, "RUNNING"))
        for key in keys
    ]
    body, asked = json.dumps(jobs).encode(), []

    class Jobs(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200 if self.path == "/api/jobs/" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Jobs)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield {"address": f"http://127.0.0.1:{server.server_address[1]}"}, {}, lambda: len(asked)
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def _kubernetes(home: Path, _: Keys, active: Keys) -> Iterator[Prepared]:
    sys.path.insert(0, str(setup.TREE / "plugins/fleet-kubernetes/tests"))
    from kube_fake import Cluster, Server

    cluster = Cluster()
    for key in active:
        metadata = {"name": key, "labels": {"tuneport.io/job": key}, "annotations": {"tuneport.io/key": key}}
        said = {"replicatedJobsStatus": [{"name": "trainer", "ready": 1}]}
        cluster.objects["jobsets", "ns", key] = {"metadata": metadata, "status": said}
    server = Server(cluster)
    try:
        yield {}, {"KUBECONFIG": str(server.kubeconfig(home))}, lambda: len(cluster.calls)
    finally:
        server.close()
