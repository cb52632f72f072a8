"""What the tests of this plugin share: rows of every kind, compiled cases, and the release itself to ask."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tuneport import api
from tuneport.compiler.compile import Compiled
from tuneport.experiment.create import new_project
from tuneport.experiment.yamlread import read_yaml
from tuneport.registry.plugins import Hooks
from tuneport.types import FileSpec, LaunchPlan, Ref

HERE = Path(__file__).parent
RELEASES = ("1.10.0", "1.16.0")
ADOPTED = ("1.11.0", "1.12.0", "1.13.0", "1.14.2", "1.15.0")
"""Opt-in releases that `tp upstream adopt` drafted from those beside them."""
ENTRIES = {
    "sft": "trl.scripts.sft",
    "dpo": "trl.scripts.dpo",
    "kto": "trl.scripts.kto",
    "rm": "trl.scripts.reward",
    "grpo": "trl.scripts.grpo",
    "rloo": "trl.scripts.rloo",
    "opsd": "trl.scripts.distillation",
}
TOPICS = {
    "sft": ["trainer", "model", "data", "unread", "sft"],
    "dpo": ["dpo"],
    "kto": ["kto"],
    "rm": ["rm"],
    "grpo": ["sampled", "rewarded", "grpo"],
    "rloo": ["rloo"],
    "opsd": ["opsd"],
}
"""The method whose cases prove the rules of a topic."""

# One step on a tiny model; a case overrides what it is about.
STEP: dict[str, Any] = {
    "max_steps": 1,
    "per_device_train_batch_size": 2,
    "bf16": False,
    "gradient_checkpointing": False,
    "save_strategy": "no",
    "logging_steps": 1,
}
BASE: dict[str, Any] = {**STEP, "max_length": 64}
_SAMPLED = {**STEP, "max_completion_length": 4}
_REWARDED = {**_SAMPLED, "num_generations": 2, "reward_funcs": ["reward.reward"]}
BASES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("sft", "dpo", "kto", "rm"), BASE),
    **dict.fromkeys(("grpo", "rloo"), _REWARDED),
    "opsd": {**_SAMPLED, "teacher_model_name_or_path": "TEACHER"},
}
ROWS = {
    "dpo": "prefs",
    "rm": "prefs",
    "kto": "labels",
    "grpo": "prompts",
    "rloo": "prompts",
    "opsd": "prompts",
}
REWARD = "def reward(completions, **columns):\n    return [float(len(str(one)) % 3) for one in completions]\n"
_QUESTION, _ANSWER = {"role": "user", "content": "one?"}, {"role": "assistant", "content": "two"}
_OTHER = {"role": "assistant", "content": "three"}
KINDS: dict[str, dict[str, Any] | list[dict[str, Any]]] = {
    "pairs": {"prompt": "one", "completion": " two"},
    "chat": {"prompt": [_QUESTION], "completion": [_ANSWER]},
    "turns": {"messages": [_QUESTION, _ANSWER]},
    "text": {"text": "one two three"},
    "content": {"content": "one two three"},
    "prompt-response": {"prompt": "one", "response": " two"},
    "images": {"prompt": "one", "completion": " two", "image": "x.png"},
    "prefs": {"prompt": [_QUESTION], "chosen": [_ANSWER], "rejected": [_OTHER]},
    "prefs-text": {"chosen": "one two", "rejected": "one three"},
    "prefs-images": {"prompt": "one", "chosen": " two", "rejected": " three", "image": "x.png"},
    "labels": [
        {"prompt": [_QUESTION], "completion": [_ANSWER], "label": True},
        {"prompt": [_QUESTION], "completion": [_OTHER], "label": False},
    ],
    "labels-images": {"prompt": "one", "completion": " two", "label": True, "image": "x.png"},
    "prompts": {"prompt": [_QUESTION], "solution": "2"},
    "prompts-text": {"prompt": "one", "solution": "2"},
    "prompts-answer": {"prompt": [_QUESTION], "answer": "2"},
}


def lines(kind: str, count: int) -> str:
    """The text of a file of rows of one kind."""
    rows = KINDS[kind] if isinstance(KINDS[kind], list) else [KINDS[kind]]
    return "".join(json.dumps(rows[number % len(rows)]) + "\n" for number in range(count))


def base(method: str) -> dict[str, Any]:
    return dict(BASES[method])


def cases(group: str) -> list[dict[str, Any]]:
    """The cases of one group, once for each release that they hold for."""
    document = read_yaml(HERE / "cases.yaml")
    assert not document.findings
    found = []
    for number, case in enumerate(document.data[group]):
        for release in case.get("releases", RELEASES):
            name = case.get("rule") or next(iter(case["set"]))
            method = case.get("method", "sft")
            known = {
                "method": method,
                "release": str(release),
                "data": case.get("data") or ROWS.get(method, "pairs"),
            }
            found.append({**case, **known, "id": f"{name}-{number}-{release}"})
    return found


@dataclass
class Workshop:
    """Compiles configurations against both releases, in one project with rows and a model's facts."""

    root: Path
    data: Path
    model: Path

    def compile(
        self,
        release: str,
        config: Mapping[str, Any],
        *,
        method: str = "sft",
        data: str = "",
        validation: bool = False,
        profile: str = "cpu:1",
        params: Mapping[str, Any] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> Compiled:
        experiment = self.experiment(release, method)
        data = data or ROWS.get(method, "pairs")
        # JSON is YAML, and nothing in it can be read in two ways.
        text = (
            json.dumps(config).replace("PAIRS", str(self.data / "folder")).replace("TEACHER", str(self.model))
        )
        (experiment / "config.yaml").write_text(text, "utf-8")
        declared = self.root / "facts.json"
        declared.write_text(json.dumps(facts or {}), "utf-8")
        report = api.Experiment(str(experiment)).validate(
            facts=str(declared) if facts else "",
            model=str(self.model),
            profile=profile,
            train_data=self.place(data),
            validation_data=self.place(data, "validation") if validation else "",
            set=params or {},
        )
        assert report.compiled is not None, report.findings
        return report.compiled

    def experiment(self, release: str, method: str = "sft") -> Path:
        project = api.open_project(self.root)
        path = project.folder.experiments / f"{method}-{release}"
        if not path.exists():
            project.new(path.name, f"trl/{method}", release)
        return path

    def place(self, kind: str, split: str = "train") -> str:
        if kind == "none":
            return ""
        return str(self.data / "folder") if kind == "folder" else str(self.data / f"{kind}-{split}.jsonl")


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    root = tmp_path_factory.mktemp("trl")
    data = root / "data"
    (data / "folder").mkdir(parents=True)
    for kind in KINDS:
        for split, count in (("train", 4), ("validation", 2)):
            (data / f"{kind}-{split}.jsonl").write_text(lines(kind, count), "utf-8")
    for split, count in (("train", 4), ("test", 2)):
        (data / "folder" / f"{split}.jsonl").write_text(lines("pairs", count), "utf-8")
    model = root / "model"
    model.mkdir()
    (model / "config.json").write_text('{"max_position_embeddings": 256}', "utf-8")
    return Workshop(new_project(root / "project"), data, model)


@pytest.fixture(scope="session")
def interpreter() -> Callable[[str], str]:
    """The interpreter of a release's runtime, which is built where it is missing."""

    @cache
    def find(release: str) -> str:
        from tuneport.registry import surfaces
        from tuneport.runtimes.install import install
        from tuneport.runtimes.variants import pick
        from tuneport.runtimes.venvs import find_built

        variant = pick(surfaces.release("trl", release).spec, "trl", "cpu")
        return str((find_built(variant) or install(variant, print)).interpreter)

    return find


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, interpreter: Callable[[str], str]) -> Path:
    """A model small enough to train in a blink."""
    folder = tmp_path_factory.mktemp("tiny") / "model"
    subprocess.run([interpreter("1.10.0"), str(HERE / "tiny_model.py"), str(folder)], check=True, env=quiet())
    return folder


@pytest.fixture(scope="session")
def oracle(interpreter: Callable[[str], str]) -> Callable[[str, Sequence[dict[str, Any]]], dict[str, Any]]:
    """Asks one release about many cases in one process: id -> answer."""

    def ask(release: str, batch: Sequence[dict[str, Any]]) -> dict[str, Any]:
        done = subprocess.run(
            [interpreter(release), str(HERE / "trl_oracle.py")],
            input=json.dumps({"cases": list(batch)}),
            capture_output=True,
            text=True,
            env=quiet(),
        )
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert len(answers) == len(batch), done.stderr[-2000:]
        return {answer["id"]: answer for answer in answers}

    return ask


def quiet() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def launched(compiled: Compiled) -> LaunchPlan:
    """The launch of a configuration, also of one that the findings would stop."""
    return Hooks("trl").launch(compiled.context)


def question(plan: LaunchPlan, folder: Path, stage: str, name: str) -> dict[str, Any]:
    """A plan as the oracle takes it, with every reference resolved as the local fleet would."""
    (command,) = plan.commands
    words = [resolve(word, folder) for word in command.argv]
    files = {path: file_text(spec, folder) for path, spec in command.files.items()}
    files["reward.py"] = REWARD
    (entry,) = (word for word in words if word in ENTRIES.values())
    return {
        "id": name,
        "entry": entry,
        "args": words[words.index(entry) + 1 :],
        "files": files,
        "folder": str(folder),
        "stage": stage,
    }


def resolve(value: Any, folder: Path) -> Any:
    if isinstance(value, Ref):
        places = {"work_dir": folder, "output_dir": folder / "output", "log_dir": folder / "logs"}
        return str(places.get(value.ref, folder / value.ref)) + value.suffix
    if isinstance(value, Mapping):
        return {key: resolve(item, folder) for key, item in value.items()}
    return [resolve(item, folder) for item in value] if isinstance(value, list | tuple) else value


def file_text(spec: FileSpec, folder: Path) -> str:
    if spec.format == "text":
        return str(spec.content)
    import yaml

    return yaml.safe_dump(resolve(spec.content, folder), allow_unicode=True, sort_keys=False)
