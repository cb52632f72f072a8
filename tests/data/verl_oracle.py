"""Would verl take this command line? Asks the release's own code, on processors. Runs in an environment
with torch, transformers, ray and hydra, but neither vLLM nor SGLang: what is missing is stood in for.

usage: verl_oracle.py TREE < cases, where TREE is the unpacked wheel and a case is {"entry", "args"}.
Writes one JSON line for each: {"accepted", "stage", "error"}. A case runs in a fork of a process that has
imported the release. It goes as far as upstream goes before it needs a GPU or data: composition, `main`
with its checks, the task's runner, the conversions that the workers make, and the look-ups of the first step.
"""

import contextlib
import copy
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import io
import json
import os
import sys
import types
import warnings
from pathlib import Path

import verl_separate

RL, SFT = "verl.trainer.main_ppo", "verl.trainer.sft_trainer"
CONFIGS = {RL: "ppo_trainer", SFT: "sft_trainer_engine", **verl_separate.CONFIGS}
STOOD_IN = [
    "transfer_queue",
    "vllm",
    "sglang",
    "flash_attn",
    "cachetools",
    "fastapi",
    "uvicorn",
    "nvtx",
    "wandb",
    "zmq",
    "msgspec",
]
# What a case needs of the release, imported before the first of them.
IMPORTED = [
    RL,
    SFT,
    "verl.trainer.main_ppo_v0",
    "verl.trainer.ppo.v1.trainer_base",
    "verl.trainer.ppo.rollout_corr_helper",
    "verl.workers.engine_workers",
    "verl.workers.rollout.replica",
    "verl.experimental.reward_loop.reward_manager.registry",
    *verl_separate.IMPORTED,
]
VLLM = "0.18.0"


class Reached(BaseException):
    """Upstream came to where it would need a GPU or data: the command is taken."""


class Refused(Exception):
    def __init__(self, stage, error):
        super().__init__(f"{type(error).__name__}: {error}")
        self.stage = stage


@contextlib.contextmanager
def stage(name):
    try:
        yield
    except Refused:
        raise
    except Exception as error:
        raise Refused(name, error) from error


# --- what is not installed


class Anything:
    """Stands in for whatever a missing package would have: every attribute, call, item and comparison."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *args, **kwargs):
        decorated = len(args) == 1 and not kwargs and isinstance(args[0], type | types.FunctionType)
        return args[0] if decorated else Anything()

    def __mro_entries__(self, bases):
        return ()

    def __iter__(self):
        return iter(())

    def __getitem__(self, key):
        return Anything()

    def __setitem__(self, key, value):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False

    def __hash__(self):
        return 0

    def __len__(self):
        return 1

    def __int__(self):
        return 1

    def __float__(self):
        return 1.0

    def _same(self, *others):
        return self

    def _true(self, *others):
        return True

    __index__ = __ceil__ = __int__
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __floordiv__ = _same
    __or__ = __ror__ = __and__ = __mod__ = __neg__ = _same
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _true


class Absent(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name == "__version__":
            return VLLM
        if name.startswith("__"):
            raise AttributeError(name)
        value = sys.modules.get(f"{self.__name__}.{name}") or Anything()
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        pass


def prepare(tree):
    sys.path.insert(0, tree)
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    missing = {name for name in STOOD_IN if importlib.util.find_spec(name) is None}
    sys.meta_path.append(Finder(missing))
    sys.modules["vllm.config.lora"] = None  # the release has a list of ranks of its own to fall back on
    told = importlib.metadata.version
    importlib.metadata.version = lambda name: VLLM if name in missing else told(name)
    import verl.workers.config.model as model

    model.copy_to_local = lambda *args, **kwargs: tiny_model()
    read_once(tree)
    for name in IMPORTED:
        importlib.import_module(name)


def read_once(tree):
    """Let Hydra parse each file of the release's tree once, here, and copy it for every case."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    load, parsed = OmegaConf.load, {}

    def loaded(file):
        name = getattr(file, "name", file)
        if name not in parsed:
            parsed[name] = load(file)
        return copy.deepcopy(parsed[name])

    OmegaConf.load = loaded
    os.chdir(tree)  # where the separate programs look for the trainer's files
    for entry, config in CONFIGS.items():
        with initialize_config_dir(folder(tree, entry), version_base=None):
            compose(config)


def folder(tree, entry):
    return f"{tree}/{verl_separate.FOLDERS.get(entry, 'verl/trainer/config')}"


def tiny_model():
    """A model that stands for every model that a command names."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config

    path = Path(os.environ["TMPDIR"]) / "tiny-model"
    if not (path / "config.json").exists():
        vocabulary = {"<pad>": 0, "<eos>": 1, "<unk>": 2, "a": 3}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        special = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<eos>", "unk_token": "<unk>"}
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(path)
        sizes = {"vocab_size": 4, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
        heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
        Qwen2Config(**sizes, **heads, architectures=["Qwen2ForCausalLM"]).save_pretrained(path)
    return str(path)


# --- reinforcement learning


def train(config):
    import ray
    import verl.trainer.main_ppo as entry
    import verl.trainer.main_ppo_v0 as older
    import verl.trainer.ppo.v1.trainer_base as trainer

    ray.is_initialized = lambda: False
    ray.init = lambda *args, **kwargs: None
    ray.get = lambda found, *args, **kwargs: found

    def initialise(self):
        with stage("init"):
            convert(self.config)
            self._init_tokenizer()
            self._init_resource_pool_mgr()
            check_nsight(self.config.global_profiler)
        look_up(self.config)
        raise Reached

    def no_data(*args, **kwargs):
        with stage("init"):
            convert(config)
        look_up(config)
        raise Reached

    trainer.PPOTrainer.init = initialise
    older.create_rl_dataset = no_data
    entry.TaskRunnerV1 = Here(entry.TaskRunnerV1)
    older.TaskRunner = Here(older.TaskRunner)
    with stage("main"):
        entry.main.__wrapped__(config)


class Here:
    """Runs what would be an actor of Ray in this process."""

    def __init__(self, actor):
        self._kind = actor.__ray_metadata__.modified_class

    def options(self, **kwargs):
        return self

    def remote(self):
        return types.SimpleNamespace(run=types.SimpleNamespace(remote=self._run))

    def _run(self, config):
        with stage("task"):
            self._kind().run(config)


def check_nsight(profiler):
    """What the trainer asserts where it starts its workers."""
    if profiler.get("steps") is not None and profiler.get("tool") == "nsys":
        options = profiler.global_tool_config.nsys.get("worker_nsight_options")
        assert options is not None, "worker_nsight_options must be set when using nsys with profile_steps"


def convert(config):
    """The conversions to dataclasses that the workers make, up to where they would build an engine."""
    import verl.workers.engine_workers as workers
    from verl.trainer.ppo import utils
    from verl.utils.config import omega_conf_to_dataclass as to_dataclass

    to_dataclass(config.actor_rollout_ref.rollout)
    to_dataclass(config.actor_rollout_ref.rollout.checkpoint_engine)

    class Built(BaseException):
        pass

    def built(*args, **kwargs):
        raise Built

    class Engine:
        def __init__(self, config=None):
            pass

        def nothing(self, *args):
            return {}

        reset = set_loss_fn = get_dispatch_collect = nothing

    part = copy.deepcopy(config.actor_rollout_ref)
    worker = types.SimpleNamespace(
        config=part,
        role="actor_ref" if utils.need_reference_policy(config) else "actor",
        ref_worker_cls=Engine,
        actor_worker_cls=Engine,
        set_dispatch_collect=lambda *args, **kwargs: None,
        distillation_config=config.get("distillation"),
        distillation_enabled=utils.need_teacher_policy(config),
        _omega_profiler_config=part.actor.get("profiler", {}),
    )
    workers.torch.distributed.get_rank = lambda *args, **kwargs: 0
    workers.CheckpointEngineRegistry = types.SimpleNamespace(new=built)
    with contextlib.suppress(Built):
        inspect.unwrap(workers.ActorRolloutRefWorker.init_model)(worker)
    if utils.need_critic(config):
        to_dataclass(config.critic)
    if utils.need_reward_model(config):
        to_dataclass(config.reward.reward_model.rollout)
    if utils.need_teacher_policy(config):
        to_dataclass(config.distillation)


def look_up(config):
    """What the first step looks up by name."""
    import torch
    from verl.experimental.reward_loop.reward_manager.registry import get_reward_manager_cls
    from verl.trainer.ppo import core_algos
    from verl.trainer.ppo import rollout_corr_helper as correction
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    zero, one = torch.zeros(1, 1), torch.ones(1, 1)
    actor, algorithm = config.actor_rollout_ref.actor, config.algorithm
    with stage("late"):
        core_algos.get_adv_estimator_fn(algorithm.adv_estimator)
        core_algos.get_policy_loss_fn(actor.policy_loss.get("loss_mode", "vanilla"))
        if actor.use_kl_loss:
            core_algos.kl_penalty(zero, zero, actor.kl_loss_type)
        if algorithm.use_kl_in_reward:
            core_algos.kl_penalty(zero, zero, algorithm.kl_penalty)
            core_algos.get_kl_controller(algorithm.kl_ctrl)
        engine = config.actor_rollout_ref.rollout.name
        if engine not in RolloutReplicaRegistry._registry:
            RolloutReplicaRegistry.get(engine)
        chosen = algorithm.get("rollout_correction") or {}
        if chosen.get("rollout_rs"):
            threshold = chosen.get("rollout_rs_threshold")
            correction.compute_rollout_rejection_mask(zero, one, chosen["rollout_rs"], threshold)
        if chosen.get("rollout_is"):
            threshold = chosen.get("rollout_is_threshold", 2.0)
            correction.compute_rollout_correction_weights(zero, one, chosen["rollout_is"], threshold)
        if config.reward.reward_manager.source == "register":
            get_reward_manager_cls(config.reward.reward_manager.name)


# --- supervised fine-tuning


def tune(config):
    from verl.trainer import sft_trainer

    with stage("main"):
        sft_trainer.auto_set_device(config)
    with stage("init"):
        trainer = sft_trainer.SFTTrainer.__new__(sft_trainer.SFTTrainer)
        trainer.config = config
        trainer._build_config()
    raise Reached


def run(tree, case):
    from hydra import compose, initialize_config_dir

    try:
        with stage("compose"), initialize_config_dir(folder(tree, case["entry"]), version_base=None):
            config = compose(CONFIGS[case["entry"]], overrides=case["args"])
        if case["entry"] in verl_separate.CONFIGS:
            verl_separate.train(config, case["entry"], sys.modules[__name__])
        (train if case["entry"] == RL else tune)(config)
    except Reached:
        return {"accepted": True, "stage": "", "error": ""}
    except Refused as refusal:
        return {"accepted": False, "stage": refusal.stage, "error": str(refusal)}
    return {"accepted": True, "stage": "", "error": "it came to its end"}


def apart(tree, case):
    """The answer to one case, from a fork of this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                answer = run(tree, case)
            except BaseException as error:
                answer = {"accepted": None, "stage": "oracle", "error": f"{type(error).__name__}: {error}"}
        with os.fdopen(writing, "w") as stream:
            json.dump(answer, stream)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    return json.loads(answer or '{"accepted": null, "stage": "oracle", "error": "it died"}')


def main():
    tree, cases = sys.argv[1], json.load(sys.stdin)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        prepare(tree)
        tiny_model()
    for case in cases:
        print(json.dumps(apart(tree, case)), flush=True)


if __name__ == "__main__":
    main()
