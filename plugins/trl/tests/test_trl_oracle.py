"""The release rejects what the rules reject, accepts the neighbours, and ignores what is said to be inert."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from trl_support import RELEASES, TOPICS, Workshop, base, cases, launched, question
from tuneport.registry import catalog

SOURCE = re.compile(r"(?:(?P<dist>\S+) (?P<version>[0-9]\S*) )?(?P<file>\S+\.py), (?P<symbol>\S+)")
WHEEL = "trl METADATA, Requires-Dist"
KINDS = (ast.ClassDef, ast.FunctionDef)
pytestmark = pytest.mark.engine
Ask = Callable[[str, Sequence[dict[str, Any]]], dict[str, Any]]


@pytest.fixture
def built(workshop: Workshop, tiny: Path) -> Workshop:
    """The workshop with a model that can be trained."""
    return Workshop(workshop.root, workshop.data, tiny)


def asked(
    workshop: Workshop,
    case: Mapping[str, Any],
    layers: Sequence[str],
    folder: Path,
    stage: str,
    data: str = "",
) -> dict[str, Any]:
    config = base(case["method"])
    for layer in layers:
        config |= case.get(layer) or {}
    kind, validation = data or case["data"], case.get("validation", False)
    compiled = workshop.compile(
        case["release"], config, method=case["method"], data=kind, validation=validation
    )
    name = f"{case['id']}-{layers[-1]}"
    return question(launched(compiled), folder / name, stage, name)


def first(release: str) -> list[Any]:
    """The releases, of which only one is asked in every run."""
    return [pytest.param(one, marks=[] if one == release else pytest.mark.upstream) for one in RELEASES]


# Asked together, because a process that has the release imported is dear. All but the first take long.
GROUPS = (
    ("sft",),
    pytest.param(("dpo", "kto", "rm"), marks=pytest.mark.upstream),
    pytest.param(("grpo", "rloo", "opsd"), marks=pytest.mark.upstream),
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("release", first(RELEASES[0]))
@pytest.mark.parametrize("methods", GROUPS, ids=lambda methods: methods[0])
def test_rules_agree_with_the_release(
    methods: tuple[str, ...], release: str, built: Workshop, oracle: Ask, tmp_path: Path
) -> None:
    questions: list[dict[str, Any]] = []
    expected: dict[str, bool] = {}
    rules: dict[str, dict[str, Any]] = {}
    for case in cases("rules"):
        if case["release"] != release or case["stage"] == "none" or case["method"] not in methods:
            continue
        stage, data = case["stage"], case.get("bad_data", "")
        questions.append(asked(built, case, ("with", "bad"), tmp_path, stage, data))
        expected[questions[-1]["id"]], rules[questions[-1]["id"]] = False, case
        if case.get("good_stage") != "none":
            questions.append(asked(built, case, ("with", "good"), tmp_path, case.get("good_stage", stage)))
            expected[questions[-1]["id"]] = True
    answers = oracle(release, questions)
    wrong = [
        f"{name}: {answer['error'] or 'accepted'}"
        for name, answer in answers.items()
        if answer["accepted"] != expected[name]
    ]
    assert len(answers) > {"sft": 80, "dpo": 25, "grpo": 40}[methods[0]]
    assert not wrong, "\n".join(wrong)
    elsewhere = []
    for name, answer in answers.items():
        if not expected[name]:
            checks, _ = catalog.rules("trl", release, TOPICS[rules[name]["method"]])
            (source,) = (rule["source"] for rule in checks if rule["code"] == rules[name]["rule"])
            if not _at(answer["frames"], source):
                elsewhere.append(f"{name}: {answer['error']} at {answer['frames'][-1:]}, not {source}")
    assert not elsewhere, "\n".join(elsewhere)


def _at(frames: Sequence[str], source: str) -> bool:
    """Whether the release stopped where the rule says that it decides: file and function are on the way."""
    match = SOURCE.fullmatch(source)
    assert match is not None, source
    # A parser that stops by itself leaves no frames; what it took offence at is an enumeration.
    return not frames or any(f"{match['file']}:{match['symbol'].rpartition('.')[2]}" in one for one in frames)


@pytest.mark.parametrize("release", RELEASES)
def test_sources_exist(release: str, interpreter: Callable[[str], str]) -> None:
    packages = Path(interpreter(release)).parent.parent / "lib"
    (site,) = packages.glob("python3*/site-packages")
    topics = [topic for proved in TOPICS.values() for topic in proved]
    checks, inert = catalog.rules("trl", release, topics)
    (metadata,) = site.glob("trl-*.dist-info/METADATA")
    asked = re.findall(r"^Requires-Dist: ([a-z]+)>=", metadata.read_text("utf-8"), re.MULTILINE)
    packages_of_rules = {r["key"].split(".")[-1] for r in checks if r["source"] == WHEEL}
    assert packages_of_rules and packages_of_rules <= set(asked)
    for source in {rule["source"] for rule in [*checks, *inert]} - {"the model's config.json", WHEEL}:
        match = SOURCE.fullmatch(source)
        assert match is not None, source
        if match["version"]:
            assert list(site.glob(f"{match['dist']}-{match['version']}*.dist-info")), source
        assert _defines((site / match["file"]).read_text("utf-8"), match["symbol"]), source


def _defines(text: str, symbol: str) -> bool:
    body: list[ast.stmt] = ast.parse(text).body
    for name in symbol.split("."):
        found = [node for node in body if isinstance(node, KINDS) and node.name == name]
        if not found:
            return False
        body = found[0].body
    return True


@pytest.mark.timeout(900)
@pytest.mark.parametrize("release", first(RELEASES[-1]))
@pytest.mark.parametrize("methods", GROUPS, ids=lambda methods: methods[0])
def test_inert_keys_change_nothing(
    methods: tuple[str, ...], release: str, built: Workshop, oracle: Ask, tmp_path: Path
) -> None:
    mine = [case for case in cases("inert") if case["release"] == release and case["method"] in methods]
    mine = [case for case in mine if not case.get("untrained")]
    questions: list[dict[str, Any]] = []
    plain: dict[str, str] = {}  # many keys are inert beside the very same settings: those are trained once
    for case in mine:
        questions.append(asked(built, case, ("with", "set"), tmp_path, "train"))
        beside = asked(built, case, ("with",), tmp_path, "train")
        known = plain.setdefault(
            repr([case.get(key) for key in ("method", "with", "data", "validation")]), beside["id"]
        )
        case["plain"] = known
        if known == beside["id"]:
            questions.append(beside)
    answers = oracle(release, questions)
    wrong = []
    for case in mine:
        with_it, without = answers[f"{case['id']}-set"], answers[case["plain"]]
        for part in ("accepted", "logs", "weights"):
            if with_it.get(part) != without.get(part) or not without["accepted"]:
                wrong.append(
                    f"{case['id']}: {part} {with_it.get(part)} / {without.get(part)} {with_it['error']}"
                )
                break
    assert not wrong, "\n".join(wrong)
