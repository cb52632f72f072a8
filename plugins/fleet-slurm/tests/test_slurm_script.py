"""The batch script: readable, sound, and every value in it arrives as it was."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tuneport.compiler.ray_cluster import SCRIPT as RAY_SCRIPT
from tuneport.errors import Invalid, TuneportError, Unavailable
from tuneport.types import Command, FileSpec, Pool, Ref, RuntimeNeed
from tuneport_fleet_slurm.fleet import SlurmFleet
from tuneport_fleet_slurm.words import word

sys.path.insert(0, str(Path(__file__).parent))
from slurm_support import plan, shell

NODES = {"h200": {"gpus_per_node": 8, "count": 4}, "l40": {"gpus_per_node": 4, "gpu_type": "l40"}}
GOLDEN = Path(__file__).parent / "golden"
TWO = (Pool("main", "h200", 2, 8), Pool("teach", "l40", 1, 4))
ALIKE = (Pool("main", "h200", 2, 8), Pool("teach", "h200", 1, 8))


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEPORT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TUNEPORT_CACHE_DIR", str(tmp_path / "cache"))


def text(what: Any = None, key: str = "job-abc-1", **given: Any) -> str:
    fleet = SlurmFleet({"nodes": NODES, **given})
    script: str = fleet.render(what or plan(shell("true")), key)["script"]
    return script


def two(pools: tuple[Pool, ...]) -> Any:
    teacher = Command("teacher", ("serve", Ref("node_rank"), Ref("head_addr", ":1")), {}, {}, "teach")
    return plan(Command("actor", ("train", Ref("head_addr")), {"A": "b c"}), teacher, pools=pools)


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "one-node": (plan(shell("echo 1")), {"partition": "main", "limits": {"time": "01:00:00"}}),
    "whole-nodes": (
        plan(shell("echo 1"), pools=(Pool("main", "h200", 2, 8),)),
        {"account": "team", "qos": "high", "constraint": "a&b", "signal": "TERM@120", "requeue": True},
    ),
    "part-of-a-node": (
        plan(shell("echo 1"), pools=(Pool("main", "l40", 1, 2),)),
        {
            "cpus_per_gpu": 4,
            "memory_per_gpu": "32G",
            "options": ["--mail-type=END"],
            "setup": ["module load cuda"],
        },
    ),
    "heterogeneous": (two(TWO), {"partition": "main"}),
    "alike-pools": (two(ALIKE), {}),
    "apptainer": (
        replace(
            plan(shell("true"), pools=(Pool("main", "h200", 1, 8),)),
            runtime=RuntimeNeed("x-1", image="/i/x.sif"),
        ),
        {"mounts": ["/data"]},
    ),
    "pyxis": (
        replace(plan(shell("true")), runtime=RuntimeNeed("x-1", image="reg.example.org/a/b:1")),
        {"containers": "pyxis"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_scripts_are_sound_and_as_they_were(name: str, tmp_path: Path) -> None:
    what, given = CASES[name]
    script = text(what, **given)
    path = tmp_path / "job.sh"
    path.write_text(script)
    subprocess.run(["bash", "-n", path], check=True)
    if shutil.which("shellcheck"):
        # 2034: which variables a role needs is its own affair.
        done = subprocess.run(
            ["shellcheck", "-e", "SC2034", path], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
    shown = script.replace(str(tmp_path), "/shared").partition("# ---- from here on")[0]
    golden = GOLDEN / f"{name}.sh"
    if os.environ.get("TUNEPORT_WRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(shown)
    assert shown == golden.read_text()


def test_headers_follow_the_pool_and_the_fleet() -> None:
    what, given = CASES["heterogeneous"]
    lines = text(what, **given).splitlines()
    assert lines.count("#SBATCH hetjob") == 1
    assert "#SBATCH --gpus-per-node=8" in lines and "#SBATCH --gpus-per-node=l40:4" in lines
    assert lines.count("#SBATCH --job-name=job-abc-1") == 2, "so that each component is found by the key"
    what, given = CASES["alike-pools"]
    script = text(what, **given)
    assert "hetjob" not in script and "#SBATCH --nodes=3" in script and "--relative=2" in script


def test_the_request_is_pure_and_shown_as_it_is_sent() -> None:
    fleet = SlurmFleet({})
    request = fleet.render(plan(shell("true")), "job-abc-1")
    assert request == fleet.render(plan(shell("true")), "job-abc-1")
    assert json.loads(json.dumps(request)) == request
    assert request["script"].rstrip() in fleet.show(request)


ANY = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
EDGE = [
    "'",
    '"',
    "\\",
    "$(x)",
    "`x`",
    "\n#SBATCH --x",
    "-e",
    "",
    " ",
    "é",
    "\r\n",
    "!!",
    "%j",
    "\x1b[0m",
    "a\nb'c",
]


@settings(
    max_examples=int(os.environ.get("TUNEPORT_TEST_INJECTIONS", "30")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(values=st.lists(ANY | st.sampled_from(EDGE), min_size=20, max_size=20))
def test_any_value_reaches_the_command_exactly(values: list[str], tmp_path: Path) -> None:
    """Through the batch script and a real shell; the command prints what it was given."""
    half = len(values) // 2
    env = {f"V{i}": value for i, value in enumerate(values[half:])}
    show = r'printf "%s\0" "$@" ' + " ".join(f'"${name}"' for name in env)
    command = Command(
        "trainer", ("/bin/sh", "-c", show, "show", *values[:half], Ref("head_addr", values[0])), env
    )
    script = text(plan(command))
    role = script[: script.rindex("start_roles() {")] + "role_trainer\n"
    (tmp_path / "job.sh").write_bytes(role.encode())
    done = subprocess.run(
        ["bash", tmp_path / "job.sh"], capture_output=True, check=True,
        env={**os.environ, "SLURM_NODEID": "0", "tp_head_0": "h", "tp_head": "h", "tp_port": "1"},
    )  # fmt: skip
    assert done.stdout.decode().split("\0") == [*values[:half], "h" + values[0], *values[half:], ""]


def test_setting_values_that_sbatch_cannot_carry_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in ('a"b', "a\nb", "a\\b"):
        monkeypatch.setenv("TUNEPORT_STATE_DIR", f"/tmp/{bad}")
        with pytest.raises(Invalid, match="sbatch cannot be given"):
            text()
    monkeypatch.setenv("TUNEPORT_STATE_DIR", "/tmp/100% sure ü")
    assert '--output="/tmp/100%% sure ü/' in text()


def test_what_no_script_can_carry_is_refused_before_anything_is_recorded() -> None:
    fleet = SlurmFleet({})
    files = {"a.json": FileSpec("json", {"x": [Ref("head_addr")]})}
    for command, code in (
        (Command("trainer", ("a\0",)), "value-unusable"),
        (Command("trainer", ("a",), {"A-B": "x"}), "value-unusable"),
        (Command("trainer", ("a",), {}, files), "plan-ref"),
        (Command("trainer", ("a",), {}, {}, "nowhere"), "plan-pool"),
    ):
        with pytest.raises(TuneportError) as caught:
            fleet.refuse(plan(command))
        assert caught.value.code == code


def test_images_are_as_the_fleet_wants_them() -> None:
    def runs(image: str, policy: str) -> bool:
        what = replace(plan(shell("true")), runtime=RuntimeNeed("x-1", image=image))
        try:
            SlurmFleet({"images": policy}).render(what, "job-abc-1")
        except Unavailable as error:
            assert error.code == "runtime-image-form" and error.hint
            return False
        return True

    named = f"reg/a@sha256:{'0' * 64}"
    assert [runs(named, policy) for policy in ("any", "digest", "none")] == [True, True, False]
    assert [runs("reg/a:1", policy) for policy in ("any", "digest", "none")] == [True, False, False]


def test_a_reference_stands_between_its_texts() -> None:
    assert word(Ref("head_addr", "'x", "", "--a=")) == """--a="$tp_head"''"'"'x'"""
    assert word("plain") == "plain" and word("") == "''"


def test_ray_clusters_get_ranks_over_all_pools() -> None:
    words = (
        Ref("python"),
        RAY_SCRIPT,
        "3",
        Ref("node_rank"),
        Ref("head_addr"),
        Ref("head_port"),
        "--",
        "-m",
        "x",
    )
    what = plan(Command("actor", words), Command("teacher", words, {}, {}, "teach"), pools=ALIKE)
    script = text(what)
    assert "tp_rank=$((SLURM_NODEID + 0))" in script and "tp_rank=$((SLURM_NODEID + 2))" in script
    assert script.count('"$tp_rank"') == 2 and script.count('"$tp_head"') == 2
