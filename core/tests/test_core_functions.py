"""What a Python file defines, read from its syntax tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tuneport.experiment.functions import read_functions
from tuneport.types import Json


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def from_text(text: str) -> dict[str, Json]:
        path = tmp_path / "reward.py"
        path.write_text(text, "utf-8")
        return read_functions(path)

    return from_text


def test_a_function_with_every_kind_of_parameter(read: Any) -> None:
    found = read("\n\ndef score(a, /, b, c=1, *rest, d, e=2, **more): ...\n")["score"]
    assert found == {
        "kind": "function",
        "line": 3,
        "args": ["a", "b", "c", "d", "e"],
        "required": ["a", "b", "d"],
        "positional_only": ["a"],
        "varargs": True,
        "kwargs": True,
        "async": False,
        "decorated": False,
    }


def test_decorators_and_coroutines_are_told(read: Any) -> None:
    found = read("@wraps(f)\nasync def score(a): ...\n")["score"]
    assert (found["async"], found["decorated"], found["varargs"]) == (True, True, False)


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("class Score: ...", "Score", "class"),
        ("from here import score", "score", "import"),
        ("import a.b", "a", "import"),
        ("from here import x as score", "score", "import"),
        ("score = partial(f, 1)", "score", "value"),
        ("score: Callable = f", "score", "value"),
    ],
)
def test_other_ways_to_bind_a_name(read: Any, text: str, name: str, kind: str) -> None:
    found = read(text)
    assert found[name]["kind"] == kind
    assert not found[""]["dynamic"]


@pytest.mark.parametrize(
    "text",
    [
        "from here import *",
        "if True:\n    def score(a): ...",
        "a, score = f()",
        "for score in x: ...",
        "a.b = 1",
    ],
)
def test_names_that_cannot_be_known(read: Any, text: str) -> None:
    assert read(text)[""]["dynamic"]


def test_only_the_top_level_counts(read: Any) -> None:
    found = read("class A:\n    def score(self): ...\ndef outer():\n    def inner(): ...\n")
    assert set(found) == {"", "A", "outer"}


@pytest.mark.parametrize("text", ["def score(:\n", "x = '\0'", "x = " + "(" * 400])
def test_a_file_that_cannot_be_read(read: Any, text: str) -> None:
    found = read(text)
    assert found[""]["error"]
    assert list(found) == [""]


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "reward.py"
    path.write_bytes(b"\xff\xfe\x00")
    assert read_functions(path)[""]["error"]
