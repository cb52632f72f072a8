"""The methods of verl for tests: experiments that compile, and values of every parameter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuneport import api
from tuneport.compiler.compile import Compiled
from tuneport.experiment.create import new_project
from tuneport.registry import catalog
from tuneport.registry.plugins import Hooks
from tuneport.types import Json, Param, Ref

METHODS = [row[0] for row in catalog.methods("verl")]
WORDS = {
    "resume_from": "/out/global_step_10",
    "rollout_is_threshold": "0.5_5.0",
    "rollout_rs_threshold": "0.5,2.0",
    "rollout_rs": "seq_mean_k3",
    "agent_loop": "tool_agent",
    "lr_schedule": "cosine",
    "optimizer": "AdamW",
}


class Workshop:
    """One experiment for each method and release, in one project."""

    def __init__(self, root: Path) -> None:
        self.project = api.open_project(new_project(root / "project"))
        self.pools = root / "pools.yaml"
        self.pools.write_text(
            "pools:\n"
            "- {name: training, series: h200, nodes: 1, gpus_per_node: 8}\n"
            "- {name: teaching, series: h200, nodes: 1, gpus_per_node: 8}\n"
            "roles: {actor: training, rollout: training, teacher: teaching}\n",
            "utf-8",
        )

    def compile(self, method: str, release: str, asked: Mapping[str, Any], nodes: int = 1) -> Compiled:
        name = f"{method.partition('/')[2]}-{release}"
        folder = self.project.folder.experiments / name
        made = api.Experiment(str(folder)) if folder.exists() else self.project.new(name, method, release)
        request: dict[str, Any] = {
            "model": "org/model",
            "train_data": "/data/train.parquet",
            "validation_data": "/data/test.parquet",
            "profile": f"h200:{8 * nodes}",
        }
        if method == "verl/distillation":
            del request["profile"]
            request |= {"resources": str(self.pools), "fleet": "cluster"}
            asked = {"teacher_model": "org/teacher", **asked}
        compiled = made.validate(**request, set=dict(asked)).compiled
        assert compiled is not None
        return compiled


def command(compiled: Compiled) -> tuple[str, list[str]]:
    """(module, arguments) of a plan, with a made-up path for every place of the fleet."""
    plan = Hooks("verl").launch(compiled.context)
    words = [
        word.prefix + f"/{word.ref}" + word.suffix if isinstance(word, Ref) else word
        for word in plan.commands[0].argv
    ]
    position = max(index for index, word in enumerate(words) if word == "-m")
    return words[position + 1], words[position + 2 :]


def samples(name: str, param: Param) -> Iterator[Json]:
    """Values of a parameter: each choice, its lowest and highest, an example; just one where it is free."""
    schema = param.schema
    options = schema.get("anyOf", [schema])
    for option in options:
        if name in WORDS:
            yield WORDS[name]
        elif "enum" in option:
            yield from option["enum"]
        elif "examples" in schema:
            yield schema["examples"][0]
        elif option["type"] == "boolean":
            yield from (True, False)
        elif option["type"] == "array":
            items = option.get("items", {})
            yield [items["enum"][0] if "enum" in items else "word"]
        elif option["type"] == "string":
            yield "word"
        else:
            low = option.get("minimum")
            if low is None and "exclusiveMinimum" in option:
                low = option["exclusiveMinimum"] + (1 if option["type"] == "integer" else 0.001)
            yield 1 if low is None else low
            if "maximum" in option:
                yield option["maximum"]
