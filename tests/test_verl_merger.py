"""`tp check` of commands that merge a checkpoint's shards, with what a facts file says of the checkpoint."""
# ruff: noqa: E501 - one case a line

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tuneport import linter
from tuneport.errors import NotFound
from tuneport.registry import catalog

sys.path.insert(0, str(Path(__file__).parent))
from hydra_reference import wheel
from verl_commands import RELEASES

MERGE = "python3 -m verl.model_merger merge"
SHARDS = ["fsdp_config.json", "model_world_size_8_rank_0.pt"]
# (code, key, outside, inside, files of the checkpoint)
CASES = [
    ("verl-merge-folder", "local_dir", "--backend fsdp", "--backend fsdp --local_dir /c/actor", SHARDS),
    ("verl-merge-megatron", "backend", "--backend megatron --local_dir /c", "--backend fsdp --local_dir /c", SHARDS),
    ("inert-key", "is-value-model", "--backend fsdp --local_dir /c --is-value-model",
     "--backend fsdp --local_dir /c", SHARDS),
    ("inert-key", "tie-word-embedding", "--backend fsdp --local_dir /c --tie-word-embedding",
     "--backend megatron --local_dir /c --tie-word-embedding", ["model/dist_ckpt/"]),
    ("key-choice", "backend", "--backend fsdp2 --local_dir /c", "--backend fsdp --local_dir /c --private", SHARDS),
    ("key-unknown", "hf_model_path", "--backend fsdp --local_dir /c --hf_model_path /m",
     "--backend fsdp --local_dir /c --target_dir /o", SHARDS),
    ("key-required", "backend", "--local_dir /c", "--backend fsdp --local_dir /c", SHARDS),
]  # fmt: skip


def said(words: str, release: str, files: list[str] | None = None) -> list[tuple[str, str]]:
    facts = {"data": {"checkpoint": {"files": files}}} if files is not None else {}
    found = linter.check(words.split(), linter.Asked("verl", release, facts=facts))
    return [(one.code, one.key) for one in found.findings if one.severity != "note"]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("code", "key", "bad", "good", "files"), CASES)
def test_what_is_wrong_with_a_merge(
    code: str, key: str, bad: str, good: str, files: list[str], release: str
) -> None:
    assert (code, key) in said(f"{MERGE} {bad}", release, files)
    assert not said(f"{MERGE} {good}", release, files)


@pytest.mark.parametrize("release", RELEASES)
def test_the_folder_of_a_step_holds_no_shards(release: str) -> None:
    words = f"{MERGE} --backend fsdp --local_dir /c/global_step_5 --target_dir /o"
    assert said(words, release, ["data.pt", "actor/"]) == [("verl-merge-shards", "local_dir")]
    assert not said(words, release, ["actor/", *SHARDS])
    assert not said(words, release)


def test_the_other_things_that_the_merger_does() -> None:
    words = "python3 -m verl.model_merger test --backend fsdp --local_dir /c"
    assert said(words, "0.9.1") == [("key-required", "test_hf_dir")]
    assert not said(f"{words} --test_hf_dir /m", "0.9.1")
    with pytest.raises(NotFound, match=r"verl\.model_merger") as caught:
        linter.check(["python3", "-m", "verl.model_merger", "--backend", "fsdp"], linter.Asked())
    assert "verl.model_merger merge" in caught.value.hint


@pytest.mark.parametrize("release", RELEASES)
def test_every_source_is_there(release: str) -> None:
    _, tree = wheel("verl", release)
    checks, inert = catalog.rules("verl", release, ["merger"])
    cased = {code for code, *_ in CASES} | {"verl-merge-shards"}
    assert {rule["code"] for rule in checks} <= cased
    assert {rule["key"] for rule in inert} <= {key for _, key, *_ in CASES}
    for rule in (*checks, *inert):
        file, _, symbol = rule["source"].removeprefix(f"verl {release} ").partition(", ")
        assert f" {symbol.rpartition('.')[2]}(" in (Path(tree) / file).read_text("utf-8"), rule["source"]
