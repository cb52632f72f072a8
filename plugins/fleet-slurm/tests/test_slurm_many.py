"""Hundreds of jobs: what one look at them asks of Slurm, and what `tp job ls` loads for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tuneport.compiler.plan import plan_to_json
from tuneport.fleets.layout import Folder
from tuneport.jobs.store import Store
from tuneport_fleet_slurm.engine import Engine
from tuneport_fleet_slurm.fleet import SlurmFleet

sys.path.insert(0, str(Path(__file__).parent))
from slurm_support import plan, shell

ANSWER = """#!/bin/sh
echo asked >>{folder}/{name}-asked
for word in "$@"; do
    case $word in
        --name=*) awk -F'|' -v names=",${{word#--name=}}," 'index(names, "," $2 ",")' {folder}/{name}-rows ;;
    esac
done
"""
"""A tool of Slurm that knows the jobs of a file, and counts its calls."""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("squeue", "sacct"):
        (tmp_path / name).write_text(ANSWER.format(folder=tmp_path, name=name))
        (tmp_path / name).chmod(0o700)
        (tmp_path / f"{name}-rows").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("TUNEPORT_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def asked(tools: Path, name: str) -> int:
    file = tools / f"{name}-asked"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_the_accounting_is_asked_about_five_hundred_at_once(tools: Path) -> None:
    keys = [f"sft-{number:04}-1" for number in range(1050)]
    rows = [f"{number + 1}|{key}|COMPLETED|Unknown|Unknown|0:0" for number, key in enumerate(keys)]
    (tools / "sacct-rows").write_text("\n".join(rows) + "\n")
    found = Engine(30).accounting([*keys, keys[0]])
    assert [row.key for row in found] == keys
    assert asked(tools, "sacct") == 3


def test_what_the_accounting_said_is_kept_when_it_is_switched_off(tools: Path) -> None:
    off = "echo 'Slurm accounting storage is disabled' >&2; exit 1"
    tool = tools / "sacct"
    head, rest = tool.read_text().split("\n", 1)
    tool.write_text(
        f"{head}\nif [ -s {tools}/sacct-asked ]; then echo again >>{tools}/sacct-asked; {off}; fi\n{rest}"
    )
    keys = [f"sft-{number:04}-1" for number in range(1050)]
    rows = [f"{number + 1}|{key}|COMPLETED|Unknown|Unknown|0:0" for number, key in enumerate(keys)]
    (tools / "sacct-rows").write_text("\n".join(rows) + "\n")
    assert [row.key for row in Engine(30).accounting(keys)] == keys[:500]
    assert asked(tools, "sacct") == 2, "it is not asked once more"


def test_a_look_at_jobs_that_are_all_forgotten_is_no_more_than_a_call_for_each_hundred(tools: Path) -> None:
    keys = [f"sft-{number:04}-1" for number in range(500)]
    rows = [f"{number + 1}|{key}|COMPLETED|Unknown|Unknown|0:0" for number, key in enumerate(keys)]
    (tools / "sacct-rows").write_text("\n".join(rows) + "\n")
    found = SlurmFleet({}).poll([f"{key}@{number + 1}" for number, key in enumerate(keys)])
    assert {status.state for status in found.values()} == {"SUCCEEDED"} and len(found) == 500
    assert asked(tools, "squeue") + asked(tools, "sacct") <= 5


def test_what_runs_is_told_without_a_look_into_its_folder(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tools / "squeue-rows").write_text("7|sft-a-1|RUNNING|2026-11-30T10:00:00|N/A|None\n")
    monkeypatch.setattr(Folder, "exit", property(lambda _: pytest.fail("it was looked into")))
    (status,) = SlurmFleet({}).poll(["sft-a-1@7"]).values()
    assert (status.state, status.cause) == ("RUNNING", "Slurm job 7: started") and status.started


def test_a_list_of_jobs_asks_once_about_five_hundred_and_loads_no_more_than_that_takes(tools: Path) -> None:
    store = Store()
    store._connection.execute("PRAGMA synchronous = OFF")  # nobody crashes here
    given = {"experiment": "", "source": "", "fleet": "s", "fleet_kind": "slurm", "fleet_settings": {}}
    document = plan_to_json(plan(shell("true")))
    jobs = [store.add(document, **given) for _ in range(520)]
    for number, job in enumerate(jobs):
        store.set_handle(job.last.key, f"{job.last.key}@{number + 1}")
        if number < 510:  # the others are found to run by the look itself
            store.move(job.last.key, "SUCCEEDED" if number < 10 else "RUNNING", "", "test")
    store.close()
    lines = [
        f"{number + 1}|{job.last.key}|RUNNING|2026-11-30T10:00:00|N/A|None" for number, job in enumerate(jobs)
    ]
    (tools / "squeue-rows").write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tuneport", "job", "ls", "--json"],
        capture_output=True, text=True, check=True, env=dict(os.environ),
    )  # fmt: skip
    listed = json.loads(done.stdout)["jobs"]
    assert [(job["id"], job["state"]) for job in listed] == [(job.id, "RUNNING") for job in jobs[:-51:-1]]
    assert (asked(tools, "squeue"), asked(tools, "sacct")) == (2, 0)
    assert sum(job.state == "RUNNING" for job in Store().jobs()) == 510
    loaded = {
        line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import")
    }
    assert {"click", "tuneport_fleet_slurm.engine"} <= loaded
    heavy = {
        "tuneport.types",
        "tuneport.compiler",
        "tuneport.experiment",
        "pluggy",
        "yaml",
        "hashlib",
        "secrets",
    }
    assert not heavy & loaded
