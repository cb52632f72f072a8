"""`tp upstream diff` on two small releases whose every difference is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tuneport.cli.group import tp
from tuneport.registry.schemas import problems, schema
from tuneport.upstream.diff import Difference, compare
from tuneport.upstream.raises import checks
from tuneport.upstream.sources import parse

from .test_upstream_scan import cache, wheel

__all__ = ["cache"]  # a fixture

OLD = """
import argparse

def main():
    made = argparse.ArgumentParser()
    made.add_argument("--learning_rate", type=float, default=3e-5, help="step size of the optimiser")
    made.add_argument("--max_len", type=int, default=None, help="Deprecated, use max_tokens instead.")
    made.add_argument("--epochs", type=int, default=1)
    made.add_argument("--loss", choices=["hinge", "ipo"], default="hinge")
    made.add_argument("--old_only", action="store_true")
    made.add_argument("--seed", type=int, default=1)
    args = made.parse_args()
    if args.epochs < 1:
        raise ValueError("epochs")
    if args.seed < 0:
        raise ValueError("seed")
    print(args.learning_rate)

if __name__ == "__main__":
    main()
"""
NEW = """
import argparse

def main():
    made = argparse.ArgumentParser()
    made.add_argument("--optim.lr", type=float, default=3e-5, help="step size of the optimiser")
    made.add_argument("--max_tokens", type=int, default=512)
    made.add_argument("--epochs", type=float, default=1)
    made.add_argument("--loss", choices=["hinge", "ipo", "dpo"], default="ipo")
    made.add_argument("--brand_new", type=str, default="x")
    made.add_argument("--seed", type=int, default=True)
    args = made.parse_args()
    if args.epochs <= 1:
        raise ValueError("epochs")
    if args.loss == "dpo":
        raise NotImplementedError("loss")
    print(getattr(args, "optim.lr"))

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    folders = [tmp_path / "old", tmp_path / "new"]
    for folder in folders:
        folder.mkdir()
    first = wheel(folders[0], {"mill/__init__.py": "", "mill/train.py": OLD})
    second = wheel(folders[1], {"mill/__init__.py": "", "mill/train.py": NEW}, "2.0")
    return str(first), str(second)


def test_every_difference_is_told_and_nothing_else(pair: tuple[str, str]) -> None:
    found = compare(*pair)
    assert [(item.key, item.entries) for item in found.removed] == [("old_only", ("mill.train",))]
    assert [item.key for item in found.added] == ["brand_new"]
    assert {(move.old, move.new) for move in found.moved} == {
        ("learning_rate", "optim.lr"),
        ("max_len", "max_tokens"),
    }
    words = next(move for move in found.moved if move.old == "max_len")
    assert words.evidence[0] == "says: 1.0 at mill/train.py:7 names it"
    facts = {(item.kind, item.key): (item.old, item.new) for item in found.changed}
    assert facts == {
        ("types", "epochs"): (["int"], ["float"]),
        ("default", "loss"): ("hinge", "ipo"),
        ("choices", "loss"): (["hinge", "ipo"], ["dpo", "hinge", "ipo"]),
        ("default", "seed"): (1, True),
    }
    assert {(change, check.names, check.line) for change, check in found.checks} == {
        ("changed", ("epochs",), 14),
        ("removed", ("seed",), 16),
        ("added", ("loss",), 16),
    }
    assert found.touches == {} and not found.empty


def test_a_release_does_not_differ_from_itself(pair: tuple[str, str]) -> None:
    for one in pair:
        same = compare(one, one)
        assert same.empty and (same.added, same.removed, same.moved, same.changed, same.checks) == ((),) * 5


def test_back_again_is_the_same_the_other_way_round(pair: tuple[str, str]) -> None:
    there, back = compare(*pair), compare(*reversed(pair))

    def keys(found: Difference) -> tuple[set[str], set[str]]:
        moved = found.moved
        return {i.key for i in found.added} | {m.new for m in moved}, {i.key for i in found.removed} | {
            m.old for m in moved
        }

    assert keys(there) == tuple(reversed(keys(back)))


def test_the_command_ends_with_one_where_anything_changed(pair: tuple[str, str]) -> None:
    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(tp, ["upstream", "diff", *words], standalone_mode=False)
        assert done.exception is None
        return done.return_value, done.stdout

    code, text = run(*pair, "--json")
    document = json.loads(text)
    assert code == 1 and not list(problems(document, schema("upstream-diff")))
    assert document["moved"][0]["from"] and document["old"]["release"] == "1.0"
    code, text = run(*pair)
    assert code == 1
    for line in ("- old_only", "+ brand_new  str", '~ default loss: "hinge" -> "ipo"', "removed: 1"):
        assert line in text
    code, text = run(pair[0], pair[0])
    assert (code, text.splitlines()[-1]) == (0, "no difference")


def test_what_is_ours_is_named_for_each_key() -> None:
    """A shipped pair: a key that a method's parameter writes and a rule reads."""
    found = compare("trl@1.10.0", "trl@1.16.0")
    assert not found.removed and "max_tool_calling_iterations" in {item.key for item in found.added}
    touched = found.touches["loss_type"]
    assert {"rule trl-loss-type-unknown", "trl/dpo params.preference_loss"} <= set(touched)
    assert any("requirements" in why for why in found.undecided)


def test_an_entry_or_an_option_of_a_group_that_is_gone_is_told() -> None:
    found = compare("verl@0.9.0", "verl@0.9.1")
    gone = {item.key for item in found.changed if item.kind == "option" and item.new is None}
    assert "verl.trainer.main_ppo model_engine=mindspeed" in gone
    removed = {item.key: item.entries for item in found.removed}
    assert "actor_rollout_ref.actor.mindspeed.dtype" in removed
    assert len(removed["actor_rollout_ref.actor.fsdp_config.grad_offload"]) > 3


def test_of_a_check_only_facts_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "class Trainer:\n"
        "    def fit(self, other):\n"
        "        if other.lr:\n            raise ValueError('not of a configuration')\n"
        "        if self.args.lr is None:\n"
        "            for _ in range(3):\n"
        "                if cfg['beta'] > 1e400 or cfg.get('beta') not in (1, 'a' * 9):\n"
        "                    raise RuntimeError(f'{self}')\n"
        "        elif config.actor.beta:\n            pass\n"
        "        else:\n            raise errors.Broken\n"
        "        raise ValueError('always')\n"
    )
    found = list(checks(parse(path), "module.py", {"lr", "beta"}))
    assert [(item.symbol, item.kind, item.names) for item in found] == [
        ("Trainer.fit", "raise RuntimeError", ("lr", "beta")),
        ("Trainer.fit", "raise errors.Broken", ("lr", "beta")),
    ]
    assert set(found[0].operators) == {"is", "or", ">", "not in", "*"}
    assert json.loads(json.dumps(found[0].document(), allow_nan=False))
