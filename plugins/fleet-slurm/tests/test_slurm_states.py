"""What Slurm says and what the fleet makes of it, for every state and odd answer."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tuneport.errors import Unavailable
from tuneport.fleets.failure import NotStarted
from tuneport.fleets.protocol import Status
from tuneport_fleet_slurm import check, states
from tuneport_fleet_slurm.engine import Engine, Row, environment, exit_code
from tuneport_fleet_slurm.runtime import _enroot


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH but the basics; a test puts into it what Slurm is to say."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def tool(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(stat.S_IRWXU)


SEEN = [
    ("PENDING", "Resources", False, "QUEUED", "waits for free nodes"),
    ("PENDING", "ReqNodeNotAvail, UnavailableNodes:n1", False, "QUEUED", "down or reserved"),
    ("PENDING", "QOSMaxGRESPerUser", False, "QUEUED", "waits (QOSMaxGRESPerUser)"),
    ("PENDING", "None", False, "QUEUED", "waits"),
    ("PENDING", "JobHeldUser", False, "QUEUED", "scontrol release 5"),
    ("PENDING", "{odd}", False, "QUEUED", "{odd}"),
    ("PENDING", "BeginTime", True, "RUNNING", "requeued, waits for its begin time"),
    ("CONFIGURING", "None", False, "QUEUED", "being prepared"),
    ("RUNNING", "None", True, "RUNNING", "started"),
    ("COMPLETING", "None", True, "RUNNING", "ending"),
    ("SUSPENDED", "None", True, "RUNNING", "suspended"),
    ("COMPLETED", "None", True, "SUCCEEDED", "exit code 0"),
    ("CANCELLED", "None", True, "STOPPED", "cancelled"),
    ("FAILED", "NonZeroExitCode", True, "FAILED", "NonZeroExitCode"),
    ("TIMEOUT", "TimeLimit", True, "FAILED", "time limit"),
    ("OUT_OF_MEMORY", "None", True, "FAILED", "ran out of memory"),
    ("NODE_FAIL", "NodeDown", True, "FAILED", "a node of it failed"),
    ("PREEMPTED", "None", True, "FAILED", "preempted"),
    ("BOOT_FAIL", "None", False, "FAILED", "did not boot"),
    ("DEADLINE", "None", False, "FAILED", "deadline"),
    ("SOMETHING_NEW", "None", True, "UNKNOWN", "SOMETHING_NEW"),
]


@pytest.mark.parametrize(("state", "reason", "begun", "ours", "cause"), SEEN)
def test_every_state_is_said_in_our_words(
    state: str, reason: str, begun: bool, ours: str, cause: str
) -> None:
    found = states.status(Row("5", "k-1", state, reason, 1.0, 2.0), None, begun=begun)
    assert found.state == ours and cause in found.cause


def test_the_jobs_own_record_adds_what_slurm_does_not_know() -> None:
    ran = Status("FAILED", "critic ended with exit code 7 on n2", 7)
    found = states.status(Row("5", "k-1", "FAILED"), ran, begun=True)
    assert (found.cause, found.exit_code) == (ran.cause, 7)
    late = states.status(Row("5", "k-1", "TIMEOUT"), Status("FAILED", "ended by Slurm", 143), begun=True)
    assert "time limit" in late.cause, "the engine knows better why it ended a job"
    stopped = states.status(Row("5", "k-1", "CANCELLED"), Status("STOPPED", "", 143), begun=True)
    assert (stopped.state, stopped.cause) == ("STOPPED", "Slurm job 5: stopped")


def test_exit_codes_and_cards() -> None:
    assert [exit_code(text) for text in ("0:0", "7:0", "0:9", "", "x", "3")] == [0, 7, 137, None, None, 3]
    lists = {
        "gpu:8": 8,
        "gpu:h200:8(S:0-1)": 8,
        "shard:16,gpu:2": 2,
        "gpu:a:1,gpu:b:3": 4,
        "(null)": 0,
        "": 0,
    }
    assert {text: check.cards(text) for text in lists} == lists


def test_an_images_name_is_enroots() -> None:
    assert _enroot("reg.example.org/a/b:1") == "reg.example.org#a/b:1"
    assert _enroot("reg:5000/a") == "reg:5000#a"
    assert (_enroot("org/image:1"), _enroot("image")) == ("org/image:1", "image")


def test_the_queue_is_read_whatever_stands_in_it(tools: Path) -> None:
    lines = [
        "12|k-1|RUNNING|2026-11-30T10:00:00|N/A|None",
        "13+0|k-2|PENDING|N/A|N/A|Resources|more",
        "13+1|k-2|PENDING|N/A|N/A|Resources",
        "14_3|k-1|RUNNING|x|y|z",
        "15|somebody-1|RUNNING|N/A|N/A|None",
        "nonsense",
        "",
    ]
    tool(tools, "squeue", "cat <<'END'\n" + "\n".join(lines) + "\nEND")
    first, second = Engine(5).queue(["k-1", "k-2"])
    assert (first.id, first.state) == ("12", "RUNNING") and first.started and first.ended is None
    assert (second.id, second.reason) == ("13", "Resources|more")


def test_lost_contact_and_refusals_are_told_apart(tools: Path) -> None:
    engine = Engine(1)
    for said, code in (
        ("Unable to contact slurm controller (connect failure)", "fleet-unreachable"),
        ("Socket timed out on send/recv operation", "fleet-unreachable"),
        ("Munge encode failed: Failed to access munged.socket", "fleet-unreachable"),
        ("Batch job submission failed: Invalid account or account/partition combination", "fleet-refused"),
        ("Requested node configuration is not available", "fleet-refused"),
    ):
        tool(tools, "sbatch", f"echo 'sbatch: error: {said}' >&2; exit 1")
        with pytest.raises(Unavailable) as caught:
            engine.submit("job.sh", str(tools))
        assert caught.value.code == code and said in caught.value.message
        assert isinstance(caught.value, NotStarted) is (code == "fleet-unreachable")
    tool(tools, "sbatch", "exec sleep 20")
    with pytest.raises(NotStarted, match="did not answer"):
        engine.submit("job.sh", str(tools))
    for odd in ("", "Submitted batch job 5", "5;cluster"):
        tool(tools, "sbatch", f"echo '{odd}'")
        if odd.startswith("5"):
            assert engine.submit("job.sh", str(tools)) == "5"
        else:
            with pytest.raises(NotStarted):
                engine.submit("job.sh", str(tools))


def test_accounting_is_used_where_there_is_some(tools: Path) -> None:
    engine = Engine(5)
    tool(tools, "sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    assert engine.accounting(["k-1"]) == []
    tool(tools, "sacct", "echo '7|k-1|CANCELLED by 0|2026-11-30T10:00:00|2026-11-30T11:00:00|0:15'")
    (row,) = engine.accounting(["k-1"])
    assert (row.id, row.state, row.code) == ("7", "CANCELLED", 143)


def test_nothing_of_the_callers_slurm_wins_over_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SBATCH_PARTITION", "SLURM_JOB_ID", "SQUEUE_FORMAT", "SLURM_CONF", "SLURMISH"):
        monkeypatch.setenv(name, "x")
    kept = environment()
    assert {"SLURM_CONF", "SLURMISH"} <= set(kept)
    assert not {"SBATCH_PARTITION", "SLURM_JOB_ID", "SQUEUE_FORMAT"} & set(kept)
    assert kept["PATH"] == os.environ["PATH"]


def test_a_machine_without_slurm_says_where_to_go(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tools))
    (probe,) = check.probes(Engine(5), {}, tools)
    assert not probe.ok and "login node" in probe.hint
