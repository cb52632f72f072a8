"""The surface is what the release's parser holds, and every value reaches that parser as it was written."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from trl_support import BASE, ENTRY, RELEASES, Workshop, launched, question, resolve
from tuneport.registry import catalog
from tuneport.types import Key

pytestmark = pytest.mark.engine
Ask = Callable[[str, Sequence[dict[str, Any]]], dict[str, Any]]

NASTY = (
    "",
    " ",
    "plain",
    "two words",
    "-1",
    "--learning_rate=5",
    "-c",
    "=",
    "a=b",
    "none",
    "None",
    "null",
    "true",
    "no",
    "1e-5",
    "007",
    "[a, b]",
    '{"a": "1"}',
    "{a: 1}",
    "it's",
    'say "yes"',
    "$(touch /tmp/x)",
    "`id`",
    "${HOME}",
    "~",
    "a;b|c&d>e",
    "line\nbreak",
    "tab\tstop",
    "back\\slash",
    "%s %(x)d %%",
    "@file",
    "#comment",
    "a: b",
    "* & ! | >",
    "ünïcödé",
    "日本語",
    "🦙",
    "\u2028",
    "\x7f\x1b[31m",
    "é" * 300,
)
# Written by the platform, or no plain values.
SKIPPED = {
    "output_dir",
    "model_name_or_path",
    "dataset_name",
    "report_to",
    "use_cpu",
    "local_rank",
    "hub_token",
}
SKIPPED |= {"debug", "parallelism_config", "datasets"}


@pytest.mark.parametrize("release", RELEASES)
def test_surface_is_what_the_parser_holds(release: str, oracle: Ask, tmp_path: Path) -> None:
    case = {"id": "all", "args": [], "files": {}, "folder": str(tmp_path), "stage": "surface"}
    held = oracle(release, [case])["all"]["values"]
    keys = catalog.release("trl", release, ENTRY).keys
    assert set(keys) == set(held)
    for name, key in keys.items():
        default, choices, required = held[name]
        assert (name, key.default, type(key.default)) == (name, default, type(default))
        assert (name, list(key.choices) or None, key.required) == (name, choices, required)


@pytest.mark.parametrize("release", RELEASES)
def test_every_value_arrives_as_it_was_written(
    release: str, workshop: Workshop, oracle: Ask, tmp_path: Path
) -> None:
    draw = random.Random(f"tuneport {release}")
    keys = [key for name, key in catalog.release("trl", release, ENTRY).keys.items() if name not in SKIPPED]
    questions, wanted = [], {}
    for number in range(120):
        config = {key.name: value(draw, key) for key in draw.sample(keys, 12)}
        compiled = workshop.compile(release, config)
        odd = [f for f in compiled.findings if f.code.startswith("key-")]
        assert not odd, odd
        name = str(number)
        questions.append(question(launched(compiled), tmp_path / name, "values", name))
        wanted[name] = resolve(compiled.context.config, tmp_path / name)
    answers = oracle(release, questions)
    for name, expected in wanted.items():
        assert answers[name]["accepted"], answers[name]["error"]
        found = answers[name]["values"]
        wrong = {k: (v, found[k]) for k, v in expected.items() if not same(v, found[k])}
        assert not wrong, wrong
    assert sum(len(w) for w in wanted.values()) > 10_000


def value(draw: random.Random, key: Key) -> Any:
    """A random value that the key takes; text as nasty as it gets."""
    if key.choices:
        return draw.choice(key.choices)
    makers: dict[str, Callable[[], Any]] = {
        "bool": lambda: draw.random() < 0.5,
        "int": lambda: draw.randint(-(10**6), 10**12),
        "float": lambda: draw.choice([0.0, 1.0, -2.5, 1e-8, 1e300, 0.1 + 0.2, 3]),
        "str": lambda: draw.choice(NASTY),
        "list": lambda: [draw.choice(NASTY) for _ in range(draw.randint(0, 4))],
        "dict": lambda: {
            draw.choice(NASTY): draw.choice([*NASTY, 1, 2.5, True, None, ["a", "-b"], {"x": "y"}])
        },
        "null": lambda: None,
    }
    return makers[draw.choice(key.types)]()


def same(wanted: Any, found: Any) -> bool:
    """Equality that tells true from 1, as the release does; 3 is as good as 3.0 for it."""
    return bool(wanted == found) and isinstance(wanted, bool) == isinstance(found, bool)


@pytest.mark.parametrize("release", RELEASES)
def test_lists_and_mixtures_arrive_whole(
    release: str, workshop: Workshop, oracle: Ask, tmp_path: Path
) -> None:
    mixture = [
        {"path": "PAIRS", "columns": ["prompt", "completion"]},
        {"path": "json", "data_files": {"a": "-x"}},
    ]
    config = {**BASE, "datasets": mixture, "report_to": ["wandb", "mlflow"], "fsdp": True}
    compiled = workshop.compile(release, config, data="none")
    found = oracle(release, [question(launched(compiled), tmp_path, "values", "one")])["one"]["values"]
    assert found["report_to"] == ["wandb", "mlflow", "tensorboard"]
    assert found["fsdp"] is True
    assert found["datasets"] == compiled.context.config["datasets"]
    assert found["datasets"][1]["data_files"] == {"a": "-x"}
