"""The surface is what the release's parser holds, and every value reaches that parser as it was written."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from trl_support import BASE, ENTRIES, RELEASES, Workshop, launched, question, resolve
from tuneport.dialects.dataclass_read import read
from tuneport.registry import surfaces
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
    blank = {"args": [], "files": {}, "folder": str(tmp_path), "stage": "surface"}
    answers = oracle(release, [{**blank, "id": entry, "entry": entry} for entry in ENTRIES.values()])
    for entry in ENTRIES.values():
        held, keys = answers[entry]["values"], surfaces.release("trl", release, entry).keys
        # The manifest knows of one key that a file may hold what its annotation does not say.
        assert set(keys) == set(held)
        for name, key in keys.items():
            default, choices, required = held[name]
            assert (name, key.default, type(key.default)) == (name, default, type(default)), entry
            assert (name, list(key.choices) or None, key.required) == (name, choices, required), entry


WORDS = (
    *(["5"], ["-5"], ["0.5"], ["1e-5"], ["true"], ["No"], ["none"], ["Null"], ["maybe"], ["a", "b"], []),
    *(["1", "2.5"], ["{}"], ['{"a": "1", "b": "0.5", "c": {"d": "True"}}'], ["{a: 1}"], ["[1, 2]"], ["x y"]),
)


# Each word of these makes an object: an option looked up by name, a dataset by its path, or the tuple of
# its letters, by which no reward can be clipped; that one is refused where it is read.
OBJECTS = ("debug", "datasets", "reward_clip_range")


@pytest.mark.parametrize("release", RELEASES)
def test_words_are_read_as_the_parser_reads_them(release: str, oracle: Ask, tmp_path: Path) -> None:
    """Every key with every kind of word, under either of its spellings, and the flags that switch off."""
    draw = random.Random(f"words {release}")
    blank = {"files": {}, "folder": str(tmp_path), "stage": "words"}
    asked: dict[str, list[tuple[str, list[str]]]] = {}
    seen = set(OBJECTS)
    for entry in ENTRIES.values():
        keys = surfaces.release("trl", release, entry).keys
        new = {name: key for name, key in keys.items() if (name, key.types, str(key.default)) not in seen}
        seen |= {(name, key.types, str(key.default)) for name, key in new.items()}
        for name, key in new.items():
            if name in OBJECTS:
                continue
            flags = [name, name.replace("_", "-")]
            for words in WORDS:
                args = [f"--{draw.choice(flags)}", *words]
                args = [f"{args[0]}={words[0]}"] if words and draw.random() < 0.2 else args
                asked.setdefault(entry, []).append((name, args))
            if key.default is True:
                asked[entry].append((name, [draw.choice([f"--no_{flags[0]}", f"--no-{flags[1]}"])]))
    cases = [
        {**blank, "id": entry, "entry": entry, "lists": [args for _, args in lists]}
        for entry, lists in asked.items()
    ]
    answers = oracle(release, cases)
    wrong = []
    for entry, lists in asked.items():
        keys = surfaces.release("trl", release, entry).keys
        for (name, args), theirs in zip(lists, answers[entry]["answers"], strict=True):
            applied = read(args, keys).read.applied
            refused = any(finding.severity == "error" for finding in applied.findings)
            # Which words are choices is judged where keys are.
            refused = refused or bool(keys[name].choices and applied.own[name] not in keys[name].choices)
            if refused or isinstance(theirs, str):
                if refused != isinstance(theirs, str):
                    wrong.append(f"{entry} {args}: {applied.findings or applied.own} / {theirs}")
            elif not same(applied.own[name], theirs[name]):
                wrong.append(f"{entry} {args}: {applied.own[name]!r} / {theirs[name]!r}")
    assert sum(map(len, asked.values())) > 4_000
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:30])


@pytest.mark.parametrize("release", RELEASES)
def test_every_value_arrives_as_it_was_written(
    release: str, workshop: Workshop, oracle: Ask, tmp_path: Path
) -> None:
    draw = random.Random(f"tuneport {release}")
    questions, wanted = [], {}
    for number in range(140):
        method = list(ENTRIES)[number % len(ENTRIES)]
        known = surfaces.release("trl", release, ENTRIES[method]).keys.items()
        keys = [key for name, key in known if name not in SKIPPED]
        config = {key.name: value(draw, key) for key in draw.sample(keys, 12)}
        compiled = workshop.compile(release, config, method=method)
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
