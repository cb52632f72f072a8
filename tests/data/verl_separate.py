"""The part of verl_oracle.py for the programs that train and generate on GPUs of their own: how far each
comes with a command before it needs a GPU, data or Ray. What runs is upstream's; stood in for are Ray's
actors, which run here, the data set, and groups of workers, which have the methods that theirs would have.
"""

import asyncio
import importlib
import types

FULLY = "verl.experimental.fully_async_policy.fully_async_main"
ONE_STEP = "verl.experimental.one_step_off_policy.main_ppo"
CONFIGS = {FULLY: "fully_async_ppo_trainer", ONE_STEP: "one_step_off_ppo_trainer"}
FOLDERS = {
    FULLY: "verl/experimental/fully_async_policy/config",
    ONE_STEP: "verl/experimental/one_step_off_policy/config",
}
IMPORTED = [FULLY, ONE_STEP, "verl.experimental.separation.engine_workers"]
ROWS = 1 << 20  # of a data set that nothing is short of


def train(config, entry, oracle):
    import ray

    ray.is_initialized = lambda: False
    ray.init = lambda *args, **kwargs: None
    ray.get = lambda found, *args, **kwargs: found
    main = importlib.import_module(entry)
    if entry == FULLY:
        prepare_fully(main, oracle)
    else:
        prepare_one_step(main, oracle)
    with oracle.stage("main"):
        main.main.__wrapped__(config)


class Actor:
    """A class of Ray's actors whose objects live in this process; `methods` replaces some of theirs."""

    def __init__(self, actor, methods):
        self._kind, self._methods = actor.__ray_metadata__.modified_class, methods

    def remote(self, **kwargs):
        made = self._kind(**kwargs)
        called = {}
        for name, method in self._methods.items():
            called[name] = types.SimpleNamespace(remote=lambda *args, run=method: run(made, *args))
        return types.SimpleNamespace(**called)


def prepare_fully(main, oracle):
    import verl.experimental.fully_async_policy.fully_async_rollouter as rollouter

    rollouter.create_rl_dataset = rollouter.create_rl_sampler = nothing
    kind = main.FullyAsyncRollouter.__ray_metadata__.modified_class
    kind._create_dataloader = loaded

    def generate(made):
        servers(made.config, made.get_hybrid_worker_group())

    def reach(made):
        made.lock = asyncio.Lock()
        made.llm_server_manager = types.SimpleNamespace(get_active_server_count=lambda: 1)
        with oracle.stage("init"):
            asyncio.run(kind.set_max_required_samples(made))
            schedule(made.config)
            oracle.convert(made.config)
        step(made.config, oracle)
        raise oracle.Reached

    def hybrid(made, group):
        made._hybrid_worker_group = group

    main.FullyAsyncTaskRunner = oracle.Here(main.FullyAsyncTaskRunner)
    main.copy_to_local = lambda *args, **kwargs: oracle.tiny_model()
    main.FullyAsyncTrainer = Actor(
        main.FullyAsyncTrainer, {"init_workers": started, "get_actor_wg": lambda made: made.actor_wg}
    )
    methods = {"set_hybrid_worker_group": hybrid, "init_workers": generate}
    main.FullyAsyncRollouter = Actor(main.FullyAsyncRollouter, {**methods, "set_max_required_samples": reach})


def prepare_one_step(main, oracle):
    import verl.utils.fs

    def initialise(made):
        with oracle.stage("init"):
            started(made)
            servers(made.config, None)
            oracle.convert(made.config)
        step(made.config, oracle)
        raise oracle.Reached

    verl.utils.fs.copy_to_local = lambda *args, **kwargs: oracle.tiny_model()
    main.create_rl_dataset = main.create_rl_sampler = nothing
    main.OneStepOffRayTrainer._create_dataloader = loaded
    main.OneStepOffRayTrainer.init_workers = initialise
    main.OneStepTaskRunner = oracle.Here(main.OneStepTaskRunner)


def nothing(*args, **kwargs):
    return None


def loaded(made, *args):
    made.train_dataloader = range(ROWS)


def started(made):
    """What the trainer does to start its workers: classes in pools, then the calls to each group."""
    manager = made.resource_pool_manager
    manager.resource_pool_dict = {name: name for name in manager.resource_pool_spec}
    made.resource_pool_to_cls = {pool: {} for pool in manager.resource_pool_dict}
    made._create_worker_classes()
    made.all_wg = {
        role: Group(built.cls) for pool in made.resource_pool_to_cls.values() for role, built in pool.items()
    }
    made._init_models()


class Group:
    """A group of workers: it has the methods that its worker's class registers for it, and no others."""

    def __init__(self, actor):
        self._kind = actor.__ray_metadata__.modified_class

    def __getattr__(self, name):
        from verl.single_controller.base.decorator import MAGIC_ATTR

        if not hasattr(getattr(self._kind, name, None), MAGIC_ATTR):
            raise AttributeError(f"a group of {self._kind.__name__} has no {name}")
        return nothing


def servers(config, group):
    """What the managers of rollout servers assert, and each replica of them."""
    from verl.workers.rollout.llm_server import LLMServerManager
    from verl.workers.rollout.replica import RolloutReplica

    try:
        from verl.workers.rollout.router import GlobalRequestLoadBalancer
    except ImportError:  # 0.9.0
        from verl.workers.rollout.llm_server import GlobalRequestLoadBalancer

    LLMServerManager(config, group)
    rollout = config.actor_rollout_ref.rollout
    size = rollout.tensor_model_parallel_size * rollout.data_parallel_size
    size *= rollout.pipeline_model_parallel_size
    count = rollout.nnodes * rollout.n_gpus_per_node // size
    if count:
        made = types.SimpleNamespace()
        RolloutReplica.__init__(made, 0, rollout, None, rollout.n_gpus_per_node)
    if not group:  # the first request looks for one of them
        balancer = GlobalRequestLoadBalancer(dict.fromkeys(map(str, range(count))))
        balancer._request_id_to_server = {}  # what cachetools, which is not installed, would be there
        balancer.acquire_server("first")


def schedule(config):
    """What fully_async_main looks up by name."""
    from verl.experimental.fully_async_policy.dynamic_schedule import build_policy
    from verl.experimental.separation.engine_workers import DetachActorWorker

    if config.async_training.use_dynamic_resource_scheduling:
        build_policy(config.async_training.dynamic_schedule_policy)
    if not config.algorithm.rollout_correction.bypass_mode and config.model_engine == "dp":
        worker = types.SimpleNamespace(config=config.actor_rollout_ref, _strategy_handlers=None)
        DetachActorWorker._get_strategy_handlers(worker)


def step(config, oracle):
    """The look-ups of the first step, and its advantages from what the program's batches hold."""
    import numpy as np
    import torch
    from verl import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    oracle.look_up(config)
    one = torch.ones(2, 1)
    held = {"response_mask": one, "token_level_rewards": one, "old_log_probs": -one}
    measured = not config.algorithm.rollout_correction.bypass_mode
    if measured and config.actor_rollout_ref.actor.calculate_sum_pi_squared:
        held["sum_pi_squared"] = one
    batch = DataProto.from_dict(tensors=held, non_tensors={"uid": np.array(["a", "a"], dtype=object)})
    algorithm = config.algorithm
    if algorithm.adv_estimator == "gdpo":  # it goes by what a reward function returns
        return
    with oracle.stage("late"):
        compute_advantage(batch, algorithm.adv_estimator, num_repeat=2, config=algorithm)
