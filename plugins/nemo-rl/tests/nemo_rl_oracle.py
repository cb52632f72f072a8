"""Asks the release's own code whether it takes a command: files, overrides, declared classes, set-up.

    python nemo_rl_oracle.py SOURCE_TREE < questions.json > answers.jsonl

A question is {"entry": "run_grpo", "args": […]}, with "file": the text of a YAML document to build on, and
with "load": true to stop before the set-up, and with "part": the name of a part of the set-up or of a worker
(nemo_rl_parts.py) that is called alone in its place. An answer is {"accepted", "error", "where"}; "load" adds
"config", the resolved document. Needs hydra-core, omegaconf, pydantic, numpy and PyYAML; every other
package that the release imports stands for nothing in particular, so no GPU, Ray or model is needed. What a
set-up asks of those it cannot answer, and that is where the question ends: nothing was refused up to there.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import Any, Protocol

from nemo_rl_parts import Parts

VERSIONS = {"transformers": "5.10.0"}
OURS = ("nemo_rl/", "examples/")
# What a package lacks that the release brings itself, and refuses to where the package has it.
LACKING = "NeMoAutoModelForTokenClassification"


class Anything:
    """Answers every question about itself with another one."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *given: Any, **named: Any) -> Any:
        only = len(given) == 1 and not named
        return (
            given[0] if only and isinstance(given[0], type | types.FunctionType) else Anything()
        )  # a decorator

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return ()

    def __getitem__(self, key: Any) -> Any:
        return Anything()

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 1_000_000

    def __bool__(self) -> bool:
        return True

    def __int__(self) -> int:
        return 1_000_000

    __index__ = __int__

    def __float__(self) -> float:
        return 1e6

    def _other(self, *_: Any) -> Any:
        return Anything()

    __or__ = __ror__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _other
    __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = _other

    def __hash__(self) -> int:
        return id(self)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> bool:
        return False


class Kind(type(Protocol)):  # type: ignore[misc] # what classes of packages that are not here are made by
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or name == LACKING:
            raise AttributeError(name)
        return Anything()


def kind(name: str) -> type:
    return Kind(name, (Anything,), {"__init__": lambda self, *given, **named: None})


class Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return VERSIONS.get(self.__name__, "999.0.0")
        if name.startswith("__") or name == LACKING:
            raise AttributeError(name)
        found = sys.modules.get(f"{self.__name__}.{name}")
        if found is None:
            found = kind(name) if name[0].isupper() else Anything()
            setattr(self, name, found)
        return found


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the packages that the release imports and that are not installed."""

    def __init__(self, root: str) -> None:
        found: set[str] = set()
        for folder in ("nemo_rl", "examples"):
            for file in Path(root, folder).rglob("*.py"):
                for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                    if isinstance(node, ast.Import):
                        found |= {alias.name.partition(".")[0] for alias in node.names}
                    elif isinstance(node, ast.ImportFrom) and not node.level:
                        found.add((node.module or "").partition(".")[0])
        here = {name for name in found if name and importlib.util.find_spec(name) is None}
        self.missing = here - set(sys.stdlib_module_names)

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.partition(".")[0] not in self.missing or name.endswith(f".{LACKING}"):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        made = Module(spec.name)
        made.__path__ = []
        return made

    def exec_module(self, module: Any) -> None: ...


class Passed(BaseException):
    """The question is answered."""


def prepare(root: str) -> None:
    sys.path.insert(0, root)
    sys.path.insert(0, os.path.join(root, "examples"))
    sys.meta_path.append(Finder(root))
    import typing

    import typing_extensions

    for name in ("TypedDict", "NotRequired", "Required"):  # pydantic wants these before Python 3.12
        setattr(typing, name, getattr(typing_extensions, name))
    os.environ["NRL_SKIP_DISTILLATION_TOKENIZER_CHECK"] = "1"
    os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"
    with contextlib.suppress(ImportError):
        import nemo_rl.algorithms.grpo  # noqa: F401


def answer(root: str, question: dict[str, Any]) -> dict[str, Any]:
    path = os.path.join(root, "examples", f"{question['entry']}.py")
    spec = importlib.util.spec_from_file_location("program", path)
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    sys.modules["program"] = program
    seen: dict[str, Any] = {}
    real = program.MasterConfig

    def whole(**config: Any) -> Any:
        seen["config"] = config
        seen["made"] = real(**config)
        return seen["made"]

    def stop(*_: Any, **__: Any) -> Any:
        raise Passed

    program.MasterConfig, program.init_ray = whole, stop
    program.get_next_experiment_dir = lambda name: name
    with tempfile.TemporaryDirectory() as folder:
        words = list(question["args"])
        if "file" in question:
            name = os.path.join(folder, "config.yaml")
            Path(name).write_text(question["file"], "utf-8")
            words = ["--config", name, *words]
        sys.argv = [path, *words]
        try:
            try:
                program.main()
            except Passed:
                if question.get("load"):
                    return {"accepted": True, "error": "", "where": "", "config": seen["config"]}
            made = seen["made"]
            if "part" in question:
                getattr(Parts(Anything, kind), question["part"])(made)
                return {"accepted": True, "error": "", "where": "the end of the part"}
            with contextlib.chdir(folder):
                program.setup(made, Anything(), Anything(), Anything())
        except Exception as error:  # the release may refuse in any way
            where = place(error)
            refused = isinstance(error, AssertionError | ValueError | NotImplementedError | KeyError)
            refused = refused or (isinstance(error, TypeError) and " missing " in str(error))
            if "made" in seen and not (refused and "named_sharding" not in where and where.startswith(OURS)):
                return {
                    "accepted": True,
                    "error": "",
                    "where": f"{where}: {type(error).__name__}: {error}"[:300],
                }
            return {"accepted": False, "error": f"{type(error).__name__}: {error}"[:300], "where": where}
    return {"accepted": True, "error": "", "where": "the end of the set-up"}


def place(error: BaseException) -> str:
    found, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        for part in OURS:
            if f"/{part}" in file:
                found = f"{part}{file.rsplit('/' + part, 1)[1]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def forked(root: str, question: dict[str, Any]) -> str:
    """The answer from a process of its own: set-ups change the modules that they use."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
        try:
            found = answer(root, question)
        except BaseException as error:  # said to whoever asks
            found = {"accepted": None, "error": f"{type(error).__name__}: {error}", "where": place(error)}
        with os.fdopen(writing, "w") as stream:
            json.dump(found, stream, default=repr)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    os.wait()
    return text


if __name__ == "__main__":
    prepare(sys.argv[1])
    for one in json.load(sys.stdin):
        print(forked(sys.argv[1], one))
