"""Turns: jobs never share a card, wait in the order of their intents, and give everything back."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tuneport.errors import Unavailable
from tuneport.fleets import cards
from tuneport.fleets.cards import Card, fitting, parse_smi
from tuneport.fleets.layout import Folder
from tuneport.fleets.leases import Need, Ticket, decide, limits
from tuneport.types import Pool

sys.path.insert(0, str(Path(__file__).parent))
from jobs_support import control, in_child, lines, marked, own_state, plan, shell, until


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from own_state(tmp_path, monkeypatch)


def need(key: str, order: int, wanted: int, usable: tuple[int, ...] = (0, 1, 2, 3), **more: int) -> Need:
    return Need(key, order, wanted, usable, more.get("max_jobs"), more.get("max_cpu_jobs", 2))


def test_cards_are_given_first_come_first_served() -> None:
    held = Ticket("a", 1, 2, (0, 2))
    assert decide(need("b", 2, 2), [held]).cards == (1, 3)
    assert decide(need("b", 2, 3), [held]).waits_for == "3 cards, 2 free"
    # One card is free, but an earlier job waits for more.
    earlier = Ticket("b", 2, 3, None)
    grant = decide(need("c", 3, 1), [held, earlier])
    assert (grant.cards, grant.ahead) == (None, 1)
    assert grant.waits_for == "b, which was submitted before"
    # A later one does not matter, nor do jobs without cards.
    assert decide(need("c", 3, 1), [held, Ticket("d", 4, 1, None), Ticket("e", 1, 0, None)]).cards == (1,)
    assert decide(need("f", 5, 0), [held, earlier]).cards == ()


def test_limits_hold_for_all_jobs_and_for_those_without_cards() -> None:
    idle = [Ticket("a", 1, 0, ()), Ticket("b", 2, 0, ())]
    assert decide(need("c", 3, 0), idle).waits_for == "one of 2 running jobs to end (max_cpu_jobs is 2)"
    assert decide(need("c", 3, 1), idle).cards == (0,)
    assert (
        decide(need("c", 3, 1, max_jobs=2), idle).waits_for == "one of 2 running jobs to end (max_jobs is 2)"
    )
    assert decide(need("c", 3, 0, max_cpu_jobs=3), idle).cards == ()
    assert limits({})[0] is None
    assert limits({})[1] >= 2
    assert limits({"max_jobs": 3, "max_cpu_jobs": 1}) == (3, 1)


def test_cards_come_from_nvidia_smi_less_what_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\necho '0, GPU-aaaa1111, NVIDIA H200'\necho '1, GPU-bbbb2222, NVIDIA H200'\n"
        "echo '2, GPU-cccc3333, NVIDIA GeForce RTX 4090'\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = cards.cards({})
    assert [card.index for card in found] == [0, 1, 2]
    assert fitting((Pool("main", "h200", 1, 2),), found) == (0, 1)
    assert fitting((Pool("main", "rtx4090", 1, 1),), found) == (2,)
    assert fitting((Pool("main", "gpu", 1, 3),), found) == (0, 1, 2)
    with pytest.raises(
        Unavailable, match=r"needs 4 h200 cards, this machine has 2 \(3 x NVIDIA H200, NVIDIA GeForce"
    ):
        fitting((Pool("main", "h200", 1, 4),), found)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bbbb,2")
    assert [card.index for card in cards.cards({})] == [1, 2]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert cards.cards({}) == ()
    assert [card.index for card in cards.cards({"gpus": 2})] == [0, 1]
    tool.write_text("#!/bin/sh\necho broken >&2; exit 9\n")
    assert cards.cards({}) == ()
    assert parse_smi("No devices were found\n") == []
    assert parse_smi("3, GPU-x, A, B\n") == [Card(3, "A, B", "GPU-x")]


HOLD = """
for card in $(echo $CUDA_VISIBLE_DEVICES | tr , ' '); do
  mkdir {shared}/card$card || echo "$TUNEPORT_JOB_KEY found $card taken" >> {shared}/clashes
done
echo "$TUNEPORT_JOB_KEY $CUDA_VISIBLE_DEVICES" >> {shared}/starts
sleep 0.2
for card in $(echo $CUDA_VISIBLE_DEVICES | tr , ' '); do rmdir {shared}/card$card; done
"""


def test_two_jobs_never_share_a_card(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    jobs = control({"gpus": [0, 1, 2]})
    wanted = [1, 2, 1, 3, 1, 2, 1]
    submitted = [
        jobs.submit(plan(shell(HOLD.replace("{shared}", str(shared))), gpus=count)) for count in wanted
    ]
    for job in submitted:
        assert jobs.wait(job.id, timeout=60).state == "SUCCEEDED"
    assert lines(shared / "clashes") == []
    started = [line.split() for line in lines(shared / "starts")]
    assert len(started) == len(wanted)
    for key, visible in started:
        held = visible.split(",")
        assert len(held) == wanted[[job.last.key for job in submitted].index(key)]
        assert set(held) <= {"0", "1", "2"}
    # The one that wants all cards starts after all before it and before all after it.
    order = [key for key, _ in started]
    everything = order.index(submitted[3].last.key)
    assert {order.index(job.last.key) for job in submitted[:3]} == set(range(everything))


def test_jobs_start_in_the_order_of_their_intents(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    jobs = control({"max_jobs": 1})
    gate = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    submitted = [jobs.submit(plan(shell(f"echo $TUNEPORT_JOB_KEY >> {starts}; {gate}"))) for _ in range(6)]
    until(lambda: jobs.get(submitted[5].id).cause.startswith("waits for "))
    waiting = jobs.get(submitted[5].id)
    assert waiting.state == "QUEUED"
    assert waiting.cause == "waits for one of 1 running jobs to end (max_jobs is 1)"
    assert lines(starts) == [submitted[0].last.key]
    (tmp_path / "go").touch()
    for job in submitted:
        assert jobs.wait(job.id, timeout=60).state == "SUCCEEDED"
    assert lines(starts) == [job.last.key for job in submitted]


def test_a_waiting_job_can_be_stopped_and_the_next_moves_up(tmp_path: Path) -> None:
    jobs = control({"gpus": [7]})
    first = jobs.submit(plan(shell("sleep 600"), gpus=1))
    second = jobs.submit(plan(shell("echo never"), gpus=1))
    third = jobs.submit(plan(shell("echo $CUDA_VISIBLE_DEVICES"), gpus=1))
    until(lambda: jobs.get(second.id).cause == "waits for 1 card, 0 free")
    stopped = jobs.stop(second.id)
    assert stopped.state == "STOPPED"
    assert stopped.cause.endswith("before it started")
    jobs.stop(first.id)
    assert jobs.wait(third.id, timeout=30).state == "SUCCEEDED"
    assert [line.text for line in jobs.logs(third.id)] == ["7"]
    assert [line.text for line in jobs.logs(second.id)] == []


def test_a_card_stays_leased_while_an_unsupervised_job_uses_it() -> None:
    jobs = control({"gpus": [0]})
    first = jobs.submit(plan(shell("sleep 600"), gpus=1))
    folder = Folder.of(first.last.key)
    until(folder.started)
    os.kill(folder.supervised_by().pid, signal.SIGKILL)
    second = jobs.submit(plan(shell("true"), gpus=1))
    time.sleep(0.7)
    assert jobs.get(first.id).state == "RUNNING"
    assert jobs.get(second.id).state == "QUEUED"
    for pid in marked(f"TUNEPORT_JOB_KEY={first.last.key}"):
        os.kill(pid, signal.SIGKILL)
    assert jobs.wait(second.id, timeout=30).state == "SUCCEEDED"
    ended = jobs.get(first.id)
    assert (ended.state, ended.cause) == (
        "UNKNOWN",
        "its supervisor died and it ended without a record of how",
    )
    # Unknown is not ended: a retry first makes sure of that, and says so in the record.
    again = jobs.retry(first.id)
    assert again.attempt(1).state == "STOPPED"
    assert again.last.number == 2
    assert jobs.stop(first.id).state == "STOPPED"


def test_many_processes_submit_at_once(tmp_path: Path, state: Path) -> None:
    starts = tmp_path / "starts"
    children = []
    for _ in range(6):
        pid = os.fork()
        if pid == 0:
            code = in_child(
                lambda: control({"max_cpu_jobs": 2}).submit(
                    plan(shell(f"echo $TUNEPORT_JOB_KEY >> {starts}"))
                )
            )
            os._exit(0 if code == 0 else 1)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 6
    jobs = control()
    found = jobs.jobs()
    assert len({job.id for job in found}) == 6
    for job in found:
        assert jobs.wait(job.id, timeout=60).state == "SUCCEEDED"
    assert sorted(lines(starts)) == sorted(job.last.key for job in found)
    # A supervisor takes its ticket away just after the record that ends the wait.
    until(lambda: list((state / "leases").glob("*/*.json")) == [])
