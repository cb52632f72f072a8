"""What is said of local jobs whose files are damaged or gone: contact is lost, and with those jobs alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tuneport.fleets import procs
from tuneport.fleets.layout import Folder
from tuneport.fleets.local import LocalFleet
from tuneport.fleets.record import write_exit

sys.path.insert(0, str(Path(__file__).parent))
from jobs_support import control, own_state, plan, shell, until


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from own_state(tmp_path, monkeypatch)


DAMAGE = {
    "deep": ("exit.json", "[" * 100_000),
    "a list": ("exit.json", "[]"),
    "a state of no job": ("exit.json", '{"state": 7, "cause": 3}'),
    "not text": ("exit.json", "\udcff"),
    "a folder": ("exit.json", None),
    "an endless number": ("supervisor.json", '{"pid": 1e999, "start": 1, "boot": "", "host": ""}'),
    "a number": ("begun-trainer.json", "3"),
    "a time that is text": ("begun-trainer.json", '{"time": "x"}'),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_record_is_contact_lost_and_hides_no_other_job(kind: str) -> None:
    name, text = DAMAGE[kind]
    ident = procs.myself()._replace(pid=2**22 + 1).to_json()
    for key in ("bad-1", "good-1"):
        folder = Folder.of(key)
        folder.path.mkdir(parents=True)
        folder.supervisor.write_text(json.dumps(ident))
        folder.begun("trainer").write_text(json.dumps({**ident, "time": 1.0}))
    write_exit(folder, "SUCCEEDED", "ended with exit code 0", exit_code=0)
    damaged = Folder.of("bad-1").path / name
    if text is None:
        damaged.mkdir()
    else:
        damaged.write_bytes(text.encode(errors="surrogateescape"))
    found = LocalFleet({}).poll(["bad-1", "good-1"])
    assert [found[key].state for key in ("bad-1", "good-1")] == ["UNKNOWN", "SUCCEEDED"]


def test_contact_is_lost_with_a_job_whose_folder_is_gone() -> None:
    jobs = control()
    job = jobs.submit(plan(shell("sleep 600")))
    folder = Folder.of(job.last.key)
    until(folder.started)
    assert jobs.get(job.id).state == "RUNNING"
    for pid in (json.loads(folder.supervisor.read_text())["pid"], *(one.pid for one in folder.roots())):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder.path.parent)
    seen_here = jobs.wait(job.id, timeout=5)
    assert (seen_here.state, seen_here.cause) == (
        "UNKNOWN",
        "it ran, and its fleet has nothing of it any more",
    )
    assert jobs.get(job.id).state == "UNKNOWN", "and stays so"
    assert jobs.stop(job.id).state == "STOPPED"
