"""Parts of the release's set-up, training loops and workers that refuse a configuration by themselves.

Each takes the declared configuration, as the program made it, and calls the release's own code with it; what
is no configuration (clusters, tensors, models) stands for nothing in particular. `nemo_rl_oracle.py` calls
them; the cases of the rules name them.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


class Parts:
    """`stub` makes a value that answers everything; `kind` a class of such values."""

    def __init__(self, stub: Any, kind: Any) -> None:
        self.stub, self.kind = stub, kind

    def cluster(self, made: Any) -> None:
        from nemo_rl.distributed.virtual_cluster import RayVirtualCluster

        gpus = made.cluster["gpus_per_node"]
        nodes = [gpus] * made.cluster["num_nodes"]
        RayVirtualCluster(nodes, True, num_gpus_per_node=gpus, max_colocated_worker_groups=1)

    def responses(self, made: Any) -> None:
        from nemo_rl.data.datasets.response_datasets import load_response_dataset

        load_response_dataset(made.data["train"])

    def pairs(self, made: Any) -> None:
        from nemo_rl.data.datasets.preference_datasets import load_preference_dataset

        load_preference_dataset(made.data["train"])

    def environment(self, made: Any) -> None:
        from nemo_rl.data.utils import setup_response_data

        setup_response_data(self.stub(), made.data, made.env)

    def distillation(self, made: Any) -> None:
        from nemo_rl.algorithms.loss.loss_functions import DistillationLossFn

        DistillationLossFn(made.loss_fn)

    def distance(self, made: Any) -> None:
        from nemo_rl.algorithms.utils import calculate_kl

        calculate_kl(self.stub(), self.stub(), kl_type=made.loss_fn.reference_policy_kl_type)

    def estimator(self, made: Any) -> None:
        module = "ppo" if hasattr(made, "ppo") else "grpo"
        importlib.import_module(f"nemo_rl.algorithms.{module}")._create_advantage_estimator(made)

    def penalties(self, made: Any) -> None:
        from nemo_rl.algorithms.grpo import _resolve_message_level_advantage_penalties

        _resolve_message_level_advantage_penalties(made)

    def program(self, made: Any) -> None:
        """What the program asks between its set-up and its training loop, and the loop at its start."""
        program = sys.modules["program"]
        program.MasterConfig = lambda **_: made
        program.init_ray = lambda *_: None
        program.get_tokenizer = lambda *_: self.stub()
        program.configure_generation_config = lambda config, *_, **__: config
        program.setup_response_data = lambda *_, **__: (self.stub(),) * 4
        program.setup = lambda *_, **__: (self.stub(),) * 10 + (made,) + (self.stub(),) * 2
        program.main()

    def no_validation_data(self, made: Any) -> None:
        there = self.stub() if made.data.get("validation") else None
        sys.modules["program"].setup(made, self.stub(), self.stub(), there)

    def policy(self, made: Any) -> None:
        from nemo_rl.models.policy import lm_policy

        lm_policy.RayWorkerGroup = self.kind("RayWorkerGroup")
        lm_policy.Policy(self._eight(), made.policy, self.stub())

    def save(self, made: Any) -> None:
        from nemo_rl.models.policy.lm_policy import Policy

        policy = Policy.__new__(Policy)
        policy.cfg, policy.worker_group = made.policy, self.stub()
        policy.save_checkpoint("/nowhere", checkpointing_cfg=made.checkpointing)

    def automodel(self, made: Any) -> None:
        from nemo_rl.models.automodel.setup import validate_and_prepare_config

        validate_and_prepare_config(made.policy, None, 0)

    def megatron(self, made: Any) -> None:
        from nemo_rl.models.megatron import setup

        setup._apply_parallelism_config(self.stub(), made.policy)
        setup._validate_optimizer_config(made.policy)
        setup._validate_chunking_config(made.policy)

    def replay(self, made: Any) -> None:
        from nemo_rl.models.megatron.router_replay import validate_router_replay_config

        validate_router_replay_config(made.policy)

    def timer(self, made: Any) -> None:
        from nemo_rl.utils.timer import convert_to_seconds

        convert_to_seconds(made.checkpointing["checkpoint_must_save_by"])

    def _eight(self) -> Any:
        found = self.stub()
        found.world_size = lambda: 8
        return found
