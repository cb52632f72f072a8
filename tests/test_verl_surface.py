"""The surfaces of verl against the real Hydra composing the real tree, and against the generator."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tuneport.dialects.hydra.compose import compose
from tuneport.dialects.hydra.defaults import Choices, Tree
from tuneport.registry import surfaces

sys.path.insert(0, str(Path(__file__).parent))
from hydra_reference import Reference, same, value, wheel

RELEASES = ("0.9.0", "0.9.1")
HYDRA_ENTRIES = (
    "verl.trainer.main_ppo",
    "verl.trainer.sft_trainer",
    "verl.trainer.sft_trainer_ray",
    "verl.trainer.main_eval",
    "verl.trainer.main_generation_server",
    "verl.experimental.fully_async_policy.fully_async_main",
    "verl.experimental.one_step_off_policy.main_ppo",
)


SURFACES = Path(__file__).parents[1] / "manifests" / "tuneport_manifests" / "verl" / "surfaces"


def document(release: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SURFACES / f"{release}.json").read_text("utf-8"))
    return found


def choices(surface: Mapping[str, Any], entry: Mapping[str, Any], *, main: bool) -> Iterator[dict[str, str]]:
    """No choice, each option of each group that the command line can name, and choices that meet."""
    plain = compose(surface, entry, Choices())
    yield {}
    for key, options in plain.options.items():
        for option in options:
            if option != plain.groups[key] and (main or key == "model_engine"):
                yield {key: option}
    if not main:
        return
    if "model_engine" in plain.options:
        yield {"model_engine": "megatron", "actor@actor_rollout_ref.actor": "dp_actor"}
        yield {"model_engine": "veomni", "critic": "megatron_critic"}
    if "engine" in plain.options:
        yield {"engine": "megatron", "optim": "megatron"}
        yield {"engine": "veomni", "optim": "veomni"}


def cases() -> Iterator[tuple[str, str, str, bool]]:
    """(release, folder, primary file, whether it is what an entry composes by itself), each once."""
    for release in RELEASES:
        surface = document(release)
        entries = surface["entries"].values()
        own = {(entry["path"][0], entry["config"]) for entry in entries if "config" in entry}
        for folder in sorted({folder for folder, _ in own}):
            for name in Tree(surface["files"], [folder]).options(""):
                yield release, folder, name, (folder, name) in own


@pytest.fixture(scope="module")
def hydra() -> Iterator[Reference]:
    process = Reference()
    yield process
    process.close()


@pytest.mark.upstream
@pytest.mark.parametrize(("release", "folder", "name", "main"), list(cases()))
def test_surface_is_what_hydra_composes(
    hydra: Reference, release: str, folder: str, name: str, main: bool
) -> None:
    surface = document(release)
    _, root = wheel("verl", release)
    entry = {"path": [folder], "config": name}
    compared = 0
    for chosen in choices(surface, entry, main=main):
        overrides = [f"{key}={option}" for key, option in chosen.items()]
        real = hydra.ask(
            "compose",
            folder=str(root / folder),
            config=name,
            overrides=overrides,
            cwd=str(root),
            packages=["verl.trainer.config"],
        )
        assert real is not None, f"{overrides}: {hydra.reason}"
        expected = {key: value(item) for key, item in real}
        keys = {k: v for k, v in compose(surface, entry, Choices(chosen)).keys.items() if not v.add}
        assert keys.keys() == expected.keys(), f"{overrides}: {keys.keys() ^ expected.keys()}"
        for key, item in keys.items():
            ours = "???" if item.required else item.default
            assert same(ours, expected[key]), f"{overrides}: {key} is {ours!r}, not {expected[key]!r}"
        compared += len(keys)
    assert compared > 5


def test_every_entry_of_the_wheel_is_there() -> None:
    for release in RELEASES:
        assert set(HYDRA_ENTRIES) <= document(release)["entries"].keys()


def test_a_group_that_only_the_files_search_path_reaches_is_chosen() -> None:
    entry = "verl.experimental.one_step_off_policy.main_ppo"
    plain = surfaces.release("verl", "0.9.0", entry)
    chosen = surfaces.release("verl", "0.9.0", entry, {"model_engine": "megatron"})
    assert chosen.composed is not None
    assert chosen.composed.chosen == {"model_engine": "megatron"}
    assert (
        "actor_rollout_ref.actor.megatron.tensor_model_parallel_size"
        in chosen.keys.keys() - plain.keys.keys()
    )


def test_an_entry_is_read_quickly() -> None:
    """Median of nine readings from the file to the keys, in CPU time."""
    path = SURFACES / "0.9.1.json"
    times = []
    for _ in range(9):
        start = time.process_time()
        surface = json.loads(path.read_bytes())
        keys = compose(surface, surface["entries"]["verl.trainer.main_ppo"], Choices()).keys
        times.append(time.process_time() - start)
    assert len(keys) > 800
    assert sorted(times)[4] < 0.05, f"{times}"  # 5 to 10 ms on an idle core


def test_keys_know_their_types_choices_and_sources() -> None:
    surface = document("0.9.0")
    keys = compose(surface, surface["entries"]["verl.trainer.main_ppo"], Choices()).keys
    loss = keys["actor_rollout_ref.actor.loss_agg_mode"]
    assert loss.types == ("str",)
    assert "token-mean" in loss.choices
    assert loss.choices_from.startswith("verl/workers/config/actor.py:")
    assert loss.source.startswith("verl/trainer/config/actor/actor.yaml:")
    added = keys["actor_rollout_ref.actor.ppo_infer_max_token_len_per_gpu"]
    assert added.add and added.types == ("int",) and added.default == 16384
    assert keys["trainer.total_epochs"].inferred


@pytest.mark.upstream
@pytest.mark.parametrize("release", RELEASES)
def test_surface_is_generated_from_the_wheel(release: str, tmp_path: Path) -> None:
    from tuneport.upstream.hydra import main

    package, root = wheel("verl", release)
    words = [str(root), "--package", "verl", "--program", "verl.model_merger", "--artefact", str(package)]
    words += ["--builder", "omega_conf_to_dataclass"]
    assert main(["verl", release, *words, "--out", str(tmp_path / "made.json")]) == 0
    assert (tmp_path / "made.json").read_text("utf-8") == (SURFACES / f"{release}.json").read_text("utf-8")
