"""What the tests of this plugin share: its cases, argument lists as `tp check` judges them, and its
runtimes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tuneport import linter
from tuneport.experiment.yamlread import read_yaml
from tuneport.registry import surfaces

HERE = Path(__file__).parent
LM_EVAL, EVALSCOPE = "lm-eval-0.4.13", "evalscope-1.14.1"
RELEASES = (LM_EVAL, EVALSCOPE)
RUBRIC: dict[str, Any] = {
    "rubric": "truth",
    "version": "1",
    "scale": {"min": 1, "max": 5},
    "criteria": [{"name": "correct", "text": "It is true."}],
    "template": "{criteria}\n{question}\n{answer}",
}
COMMANDS = {LM_EVAL: ["lm_eval"], EVALSCOPE: ["evalscope", "eval"]}
_DOCUMENT = read_yaml(HERE / "cases.yaml")
assert not _DOCUMENT.findings, _DOCUMENT.findings
CASES: Mapping[str, Any] = _DOCUMENT.data


def check(release: str, args: Sequence[str], facts: Mapping[str, Any] = {}) -> linter.Checked:
    asked = linter.Asked(facts=facts)
    return linter.check([*COMMANDS[release], *args], asked)


def cases(group: str) -> list[tuple[str, dict[str, Any]]]:
    """(release, case) of one group."""
    return [
        (release, case)
        for name, release in (("lm-eval", LM_EVAL), ("evalscope", EVALSCOPE))
        for case in CASES[name].get(group, ())
    ]


@pytest.fixture(scope="session")
def interpreter() -> Callable[[str, str], str]:
    """The interpreter of a release's runtime, which is built where it is missing."""

    @cache
    def find(framework: str, release: str) -> str:
        from tuneport.runtimes.install import install
        from tuneport.runtimes.variants import pick
        from tuneport.runtimes.venvs import find_built

        variant = pick(surfaces.release(framework, release).spec, framework, "cpu")
        return str((find_built(variant) or install(variant, print)).interpreter)

    return find


def quiet() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
