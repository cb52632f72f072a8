"""The two scripts that run inside jobs, with stand-ins for Ray and for the release's merger."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from tuneport_verl import export_script

SCRIPTS = files("tuneport_verl")
RAY = """
import json, os, pathlib
log = pathlib.Path(os.environ["FAKE_RAY"])
def init(address, log_to_driver): note("init", address)
def nodes():
    count = sum(1 for line in log.read_text().splitlines() if json.loads(line)[0] == "init")
    return [{"Alive": True}] * min(count, 2)
def note(*words):
    with log.open("a") as stream: stream.write(json.dumps(words) + "\\n")
"""
COMMAND_LINE = """
import os, sys, ray
if __name__ == "__main__":
    ray.note(*sys.argv[1:])
    sys.exit(int(os.environ.get("FAKE_RAY_START", 0)))
"""
MERGER = """
import json, os, sys
if __name__ == "__main__":
    with open(os.environ["FAKE_MERGER"], "w") as stream: json.dump(sys.argv[1:], stream)
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    for name, text in {
        "packages/ray/__init__.py": RAY,
        "packages/ray/scripts/__init__.py": "",
        "packages/ray/scripts/scripts.py": COMMAND_LINE,
        "packages/verl/__init__.py": "",
        "packages/verl/model_merger.py": MERGER,
        "job.py": "import os, sys; print(os.environ.get('RAY_ADDRESS'), *sys.argv[1:]); sys.exit(7)",
        "quick.py": QUICK,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return tmp_path / "packages"


QUICK = """
import runpy, sys, time
time.sleep = lambda seconds: None
ticks = iter(range(0, 10**9, int(sys.argv[1])))
time.monotonic = lambda: next(ticks)
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(packages: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    log = packages.parent / "ray.log"
    log.touch()
    more = {"PYTHONPATH": str(packages), "FAKE_RAY": str(log), **env}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=packages.parent, env=kept | more, capture_output=True, text=True)


def calls(packages: Path) -> list[str]:
    return (packages.parent / "ray.log").read_text("utf-8").splitlines()


def cluster(packages: Path, *words: str, step: int = 1, **env: str) -> subprocess.CompletedProcess[str]:
    return run(
        packages,
        "quick.py",
        str(step),
        str(files("tuneport.compiler") / "ray_cluster_script.py"),
        *words,
        **env,
    )


def test_the_first_node_starts_the_cluster_waits_and_runs_the_command(packages: Path) -> None:
    done = cluster(packages, "2", "0", "10.0.0.1", "6379", "--", "job.py", "a=1", "b c")
    assert done.returncode == 7
    assert done.stdout.splitlines()[-1] == "10.0.0.1:6379 a=1 b c"
    assert "1 of 2 nodes have joined" in done.stdout
    first, *_, last = calls(packages)
    assert first == (
        '["start", "--head", "--node-ip-address=10.0.0.1", "--port=6379", "--disable-usage-stats"]'
    )
    assert last == '["stop"]'


def test_a_cluster_that_is_there_already_is_used(packages: Path) -> None:
    done = cluster(packages, "2", "0", "10.0.0.1", "6379", "--", "job.py", RAY_ADDRESS="ray://head:1")
    assert (done.returncode, done.stdout) == (7, "ray://head:1\n")
    assert not calls(packages)


def test_nodes_that_never_come_are_an_error(packages: Path) -> None:
    done = cluster(packages, "3", "0", "10.0.0.1", "6379", "--", "job.py", step=400)
    assert done.returncode == 1
    assert "of 3 nodes joined the Ray cluster" in done.stderr
    assert calls(packages)[-1] == '["stop"]'


@contextlib.contextmanager
def head_until(over: Callable[[], bool]) -> Iterator[str]:
    """The port of a head that answers until `over()`, and is gone then."""
    with socket.create_server(("127.0.0.1", 0)) as head:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while not over():
                    head.accept()[0].close()
                head.close()

        threading.Thread(target=answer, daemon=True).start()
        yield str(head.getsockname()[1])


def test_another_node_joins_and_stays_until_the_head_is_gone(packages: Path) -> None:
    log = packages.parent / "ray.log"
    with head_until(lambda: log.exists() and bool(calls(packages))) as port:
        done = cluster(packages, "2", "1", "127.0.0.1", port, "--", "job.py")
    assert done.returncode == 0, "however short the job was"
    start = f'["start", "--address=127.0.0.1:{port}", "--block", "--disable-usage-stats"]'
    assert set(calls(packages)) == {start}


def test_a_head_that_never_comes_up_is_an_error(packages: Path) -> None:
    done = cluster(packages, "2", "1", "127.0.0.1", "1", "--", "job.py", step=20)
    assert done.returncode == 1 and "no Ray cluster came up at 127.0.0.1:1" in done.stderr
    assert not calls(packages)


def test_a_node_that_cannot_join_a_living_head_is_an_error(packages: Path) -> None:
    with head_until(lambda: False) as port:
        done = cluster(packages, "2", "1", "127.0.0.1", port, "--", "job.py", step=200, FAKE_RAY_START="3")
    assert done.returncode == 3
    assert calls(packages)


# --- the exporter


def checkpoint(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}", "utf-8")
    return root


@pytest.mark.parametrize("given", ["", "global_step_20", "global_step_20/actor"])
def test_the_newest_step_is_merged(packages: Path, tmp_path: Path, given: str) -> None:
    steps = [f"global_step_{step}/actor/fsdp_config.json" for step in (3, 20)]
    root = checkpoint(tmp_path / "out", *steps, "global_step_9x/actor/fsdp_config.json")
    log = tmp_path / "merger.json"
    done = run(
        packages,
        str(SCRIPTS / "export_script.py"),
        TUNEPORT_CHECKPOINT=str(root / given),
        TUNEPORT_BACKEND="fsdp",
        TUNEPORT_OUTPUT_DIR="/to",
        FAKE_MERGER=str(log),
    )
    assert done.returncode == 0, done.stderr
    words = ["merge", "--backend", "fsdp", "--local_dir", str(root / "global_step_20/actor")]
    assert log.read_text("utf-8") == str([*words, "--target_dir", "/to"]).replace("'", '"')


@pytest.mark.parametrize(
    ("names", "backend", "word"),
    [
        (["weights.bin"], "fsdp", "holds no verl checkpoint"),
        (["global_step_5/data.pt"], "fsdp", "holds no verl checkpoint"),
        (["actor/transformer_config.json"], "fsdp", "--checkpoint-format verl-megatron"),
        (["actor/fsdp_config.json"], "megatron", "--checkpoint-format verl-fsdp"),
        (["model_world_size_2_rank_0.pt"], "fsdp", "has no fsdp_config.json"),
    ],
)
def test_what_cannot_be_merged_is_said(
    packages: Path, tmp_path: Path, names: list[str], backend: str, word: str
) -> None:
    root = checkpoint(tmp_path / "out", *names)
    env = {"TUNEPORT_CHECKPOINT": str(root), "TUNEPORT_BACKEND": backend, "TUNEPORT_OUTPUT_DIR": "/to"}
    done = run(packages, str(SCRIPTS / "export_script.py"), **env)
    assert done.returncode == 1
    assert word in done.stderr


def test_shards_alone_make_a_folder_a_checkpoint(tmp_path: Path) -> None:
    root = checkpoint(tmp_path, "global_step_1/actor/model_world_size_1_rank_0.pt")
    assert export_script.find(root) == root / "global_step_1/actor"
