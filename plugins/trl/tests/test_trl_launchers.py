"""What rules of launchers refuse is refused by torchrun and accelerate, which the runtime of TRL has."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest
from tuneport import linter

pytestmark = pytest.mark.engine
PROGRAM = "trl/scripts/sft.py --model_name_or_path a/b --dataset_name c/d"
# What only the settings of a file or a default file could mend is no error of ours, and not asked.
TORCHRUN = [
    "--nproc_per_node=all",
    "--nnodes=2-4",
    "--max_restarts=-1",
    "--rdzv_backend=nccl",
    "--rdzv_backend=c10d --rdzv_endpoint=h1:port",
    "--rdzv_backend=c10d --rdzv_endpoint=h1:29500 --nproc_per_node=2",
    "--rdzv_backend=c10d --rdzv_endpoint=[fe80::1]:29500",
    "--rdzv_backend=c10d --rdzv_endpoint=[fe80::1]",
    "--rdzv_backend=c10d --rdzv_endpoint=[fe80::1]:port",
    "--rdzv_backend=c10d --rdzv_endpoint=h1:29x00",
]
ACCELERATE = [
    "--use_fsdp --use_deepspeed",
    "--use_deepspeed --multi_gpu",
    "--multi_gpu --cpu",
    "--multi_gpu --num_processes 1",
    "--mixed_precision bfloat16",
    "--use_fsdp --fsdp_version 3",
    "--use_parallelism_config",
    "--use_parallelism_config --use_fsdp --fsdp_version 1",
    "--multi_gpu --num_processes 2 --mixed_precision bf16",
]
ASK = """
import json, sys
import torch.distributed.run as run
from torch.distributed.elastic.rendezvous.api import rendezvous_handler_registry as known
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from accelerate.commands.launch import _validate_launch_command, launch_command_parser

def torchrun(words):
    config, _, _ = run.config_from_args(run.parse_args([*words, "t.py"]))
    if config.rdzv_backend not in known._registry:
        raise ValueError(config.rdzv_backend)
    if config.rdzv_backend != "static":
        parse_rendezvous_endpoint(config.rdzv_endpoint, 29400)

def accelerate(words):
    words = ["--config_file", sys.argv[2], *words, "t.py"]
    _validate_launch_command(launch_command_parser().parse_args(words))

answers = []
for name, flags in json.loads(sys.argv[1]):
    try:
        {"torchrun": torchrun, "accelerate launch": accelerate}[name](flags.split())
        answers.append(True)
    except (Exception, SystemExit):
        answers.append(False)
print(json.dumps(answers))
"""


def test_what_a_rule_refuses_the_launcher_refuses(interpreter: Callable[[str], str], tmp_path) -> None:  # type: ignore[no-untyped-def]
    asked = [("torchrun", flags) for flags in TORCHRUN] + [
        ("accelerate launch", flags) for flags in ACCELERATE
    ]
    settings = tmp_path / "a.yaml"
    settings.write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nnum_processes: 2\n", "utf-8"
    )
    words = [interpreter("1.10.0"), "-c", ASK, json.dumps(asked), str(settings)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    taken = json.loads(ran.stdout.splitlines()[-1])
    ours = []
    for name, flags in asked:
        found = linter.check([*name.split(), *flags.split(), *PROGRAM.split()], linter.Asked()).findings
        ours.append(
            not [one for one in found if one.code == "launcher-refuses" or one.key == "--nproc_per_node"]
        )
    assert ours == taken and True in taken and False in taken
