"""The kept form of a user's file is the parsed form, and never outlives a change."""

from __future__ import annotations

from pathlib import Path

import pytest
from tuneport.experiment import twin
from tuneport.experiment.twin import read_kept
from tuneport.experiment.yamlread import parse_yaml

TEXT = "a: 1e-6\nb: {c: [1, {d: no}, .inf], 'é': 'x # y'}\nc: ~\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEPORT_CACHE_DIR", str(tmp_path / "cache"))


def refuse(*_: object) -> None:
    raise AssertionError("parsed again")


def test_the_second_reading_is_the_first_and_needs_no_parser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(TEXT, "utf-8")
    first = read_kept(path)
    assert first == parse_yaml(TEXT, str(path))
    assert first.data["b"]["c"][1] == {"d": False} and first.raw[("b", "c", 1, "d")] == "no"
    monkeypatch.setattr(twin, "parse_yaml", refuse)
    assert read_kept(path) == first


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1\n", "utf-8")
    assert read_kept(path).data == {"a": 1}
    path.write_text("a: 2\n", "utf-8")
    assert read_kept(path).data == {"a": 2}


def test_what_has_findings_is_never_kept(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1\na: 2\n", "utf-8")
    codes = [[finding.code for finding in read_kept(path).findings] for _ in range(2)]
    assert codes == [["yaml-duplicate-key"], ["yaml-duplicate-key"]]


def test_a_damaged_cache_only_costs_time(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1\n", "utf-8")
    read_kept(path)
    for kept in (tmp_path / "cache" / "index").iterdir():
        kept.write_text("{", "utf-8")
    assert read_kept(path).data == {"a": 1}
