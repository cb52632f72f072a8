"""The moves that our releases declare are those that upstream made."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tuneport.porting import moves
from tuneport.registry import catalog, surfaces

TRUTH = {
    (item["old"], item["new"]): item["moves"]
    for item in yaml.safe_load((Path(__file__).parent / "data/upstream_moves.yaml").read_text())
}
DOTTED = TRUTH["openrlhf==0.10.1", "openrlhf==0.10.2"]
CORRECTION = TRUTH["openrlhf==0.11.1", "openrlhf==0.11.2"]


@pytest.mark.parametrize(("release", "since"), [("0.11.0", {}), ("0.11.2", CORRECTION)])
def test_a_flag_of_before_the_dots_is_found_by_every_name_it_has_now(
    release: str, since: dict[str, list[str]]
) -> None:
    declared = catalog.release_spec("openrlhf", release)["moves"]
    for old, names in DOTTED.items():
        wanted = {new for name in names for new in since.get(name, [name])}
        assert {move["to"] for move in declared if move["from"] == old} == wanted, old
    for old, new in since.items():
        (move,) = [move for move in declared if move["from"] == old]
        assert [move["to"]] == new and move["note"], "its values mean something else"


def test_one_flag_that_became_two_is_left_to_a_person() -> None:
    steps = moves.between("openrlhf", "0.10.1", "0.11.2")
    keys = surfaces.release("openrlhf", "0.11.2", "openrlhf.cli.train_ppo_ray").keys
    assert moves.destination("ref_reward_offload", steps, keys).names == ("ref.offload", "reward.offload")
    correction = moves.destination("enable_vllm_is_correction", steps, keys)
    assert correction.names == ("algo.advantage.is_correction_level",) and correction.notes
