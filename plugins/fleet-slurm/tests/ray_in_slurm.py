"""Run in namespaces of its own: a Slurm of two nodes, and in one job of it a Ray cluster of both.

ray_in_slurm.py PYTHON_WITH_RAY FOLDER
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tuneport.compiler import ray_cluster
from tuneport.jobs.control import Control
from tuneport.types import Command, FileSpec, Pool, Ref
from tuneport_fleet_slurm.fleet import SlurmFleet

sys.path.insert(0, str(Path(__file__).parent))
from slurm_support import plan, sim

PROGRAM = """
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as By

ray.init(log_to_driver=False)
group = placement_group([{"CPU": 1}] * 2, strategy="STRICT_SPREAD")
ray.get(group.ready())
where = ray.remote(lambda: ray.get_runtime_context().get_node_id())
found = ray.get([where.options(num_cpus=1, scheduling_strategy=By(group, i)).remote() for i in (0, 1)])
print("placed on", len(set(found)), "nodes of", len(ray.nodes()))
"""


def main(python: str, folder: Path) -> int:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # Where there is no address but 127.0.0.1 glibc resolves no name for slurmctld (AI_ADDRCONFIG).
    subprocess.run(["ip", "address", "add", "10.254.0.1/32", "dev", "lo"], check=True)
    os.environ["TUNEPORT_STATE_DIR"] = str(folder / "state")
    os.environ["SLURM_CONF"] = str(folder / "sim/slurm.conf")
    sim("up", folder / "sim")
    try:
        words = (python, ray_cluster.SCRIPT, "2", Ref("node_rank"), Ref("head_addr"), Ref("head_port"))
        files = {
            ray_cluster.SCRIPT: FileSpec("text", ray_cluster._script()),
            "program.py": FileSpec("text", PROGRAM),
        }
        command = Command(
            "actor", (*words, "--", "program.py"), {"RAY_DISABLE_DOCKER_CPU_WARNING": "1"}, files
        )
        fleet = SlurmFleet({"partition": "main", "images": "none"})
        control = Control(load_fleet=lambda _kind, _settings: fleet)
        job = control.submit(
            plan(command, pools=(Pool("main", "cpu", 2, 1),)), fleet_name="c", fleet_kind="slurm"
        )
        done = control.wait(job.id, timeout=240)
        for line in control.logs(job.id):
            print(line.text)
        if done.state not in ("SUCCEEDED", "FAILED"):
            control.stop(job.id)
        print(done.state, done.cause)
        control.close()
        return 0 if done.state == "SUCCEEDED" else 1
    finally:
        sim("down", folder / "sim")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
