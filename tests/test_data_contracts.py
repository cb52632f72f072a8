"""The rows that each method reads: what is right is silent, and each single mistake is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tuneport import api
from tuneport.checks import columns
from tuneport.experiment.create import new_project
from tuneport.registry import catalog
from tuneport.types import Finding

Row = dict[str, Any]
CASES: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("data").joinpath("data_contracts.yaml").read_text("utf-8")
)
PAIR = {"prompt": "q", "chosen": "a", "rejected": "b"}
NONE = {"custom/custom", "evalkit/benchmark"}  # no rows of their own: the script, or the harness, has them
IMAGES = "pytorch/image-classification"
CODES = ("data-columns", "data-value", "data-mixed", "data-empty")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("contracts") / "p"
    new_project(path)
    return path


def write(path: Path, rows: list[Row]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), "utf-8")
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    else:
        table = pa.Table.from_pylist(rows)
        path.mkdir(exist_ok=True)
        with pa.OSFile(str(path / "a.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
        (path / "state.json").write_text('{"_data_files": [{"filename": "a.arrow"}]}')
        features = {name: {"_type": "Value"} for name in table.column_names}
        (path / "dataset_info.json").write_text(json.dumps({"features": features}))
    return path


def said(root: Path, method: str, config: Row, data: Path) -> list[Finding]:
    project = api.open_project(root)
    path = project.folder.experiments / method.replace("/", "-")
    if not path.exists():
        project.new(path.name, method)
    (path / "config.yaml").write_text(json.dumps(config), "utf-8")  # JSON is YAML
    report = api.Experiment(str(path)).validate(
        model="org/m", train_data=str(data), validation_data=str(data)
    )
    assert not [one for one in report.findings if one.code.startswith("yaml-")], report.findings
    return [
        one
        for one in report.findings
        if one.code in ("data-columns", "data-value", "data-mixed", "data-empty")
    ]


def mutations(row: Row, required: list[str], wrong: Row) -> Iterator[tuple[list[Row], str, str]]:
    """(rows with one mistake in the third, its code, what the message names)."""
    for name in sorted(required):
        yield [{k: v for k, v in one.items() if k != name} for one in (row, row, row)], "data-columns", name
    for name, value in wrong.items():
        yield [row, row, {**row, name: value}], "data-value", f"row 3, column {name}"
    for name, value in row.items():
        if isinstance(value, str | list) and name in wrong:
            blank = type(value)()
            yield [row, row, {**row, name: blank}], "data-empty", f"row 3, column {name}"


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("method", "number"), [(method, n) for n, case in enumerate(CASES) for method in case["methods"]]
)
def test_each_mistake_is_named_and_what_is_right_is_silent(
    root: Path, tmp_path: Path, method: str, number: int
) -> None:
    case = CASES[number]
    config, row = case.get("config", {}), {**case["row"], "note": "read by nobody"}
    assert said(root, method, config, write(tmp_path / "good.jsonl", [row] * 3)) == []
    for at, (rows, code, says) in enumerate(mutations(row, case["needs"], case["wrong"])):
        found = said(root, method, config, write(tmp_path / f"{at}.jsonl", rows))
        named = [one for one in found if one.code == code and says in one.message]
        assert named, (code, says, found)
        assert all(one.hint for one in found)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet", ""])
def test_every_kind_of_file_is_looked_into(root: Path, tmp_path: Path, suffix: str) -> None:
    rows: list[Row] = [dict(PAIR) for _ in range(3)]
    config = {"data.prompt_key": "prompt"}
    assert said(root, "openrlhf/dpo", config, write(tmp_path / f"a{suffix}", rows)) == []
    rows[1]["rejected"] = None
    found = said(root, "openrlhf/dpo", config, write(tmp_path / f"b{suffix}", rows))
    where = "a row" if suffix == ".parquet" else "row 2"
    assert f"{where}, column rejected: it is null" in found[0].message and found[0].severity == "error"
    for row in rows:
        del row["rejected"]
    found = said(root, "openrlhf/dpo", config, write(tmp_path / f"c{suffix}", rows))
    assert found[0].code == "data-columns" and "set rejected_column" in found[0].hint


def test_rows_that_upstream_leaves_out_are_a_warning(root: Path, tmp_path: Path) -> None:
    rows: list[Row] = [PAIR, {**PAIR, "prompt": None}]
    for method, severity in (("openrlhf/rm", "warning"), ("openrlhf/dpo", "error")):
        found = said(root, method, {"data.prompt_key": "prompt"}, write(tmp_path / "a.jsonl", rows))
        assert {one.severity for one in found} == {severity}, found


def test_images_that_the_shipped_script_cannot_read_are_a_warning(root: Path, tmp_path: Path) -> None:
    images = np.zeros((4, 8, 8))
    np.savez(tmp_path / "good.npz", images=images, labels=np.arange(4))
    np.savez(tmp_path / "bad.npz", images=images, targets=np.arange(4))
    assert said(root, IMAGES, {}, tmp_path / "good.npz") == []
    found, *_ = said(root, IMAGES, {}, tmp_path / "bad.npz")
    assert (found.code, found.severity) == ("data-columns", "warning")


def test_every_method_that_reads_rows_says_which() -> None:
    tried = {method for case in CASES for method in case["methods"]}
    names = {name for name, _, _ in catalog.methods()}
    assert tried == names - NONE - {IMAGES}
    for name in names:
        assert bool(columns.readings(catalog.method(name))) != (name in NONE), name
