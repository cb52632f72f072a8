"""The rows that each method reads: what is right is silent, and each single mistake is named."""

from __future__ import annotations

import gzip
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
CODES = ("data-columns", "data-value", "data-mixed", "data-empty", "data-unread")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("contracts") / "p"
    new_project(path)
    return path


def write(path: Path, rows: list[Row]) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(write(path.with_suffix(""), rows).read_bytes()))
    elif path.suffix == ".parquet":
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


def said(root: Path, method: str, config: Row, data: Path, validation: Path | None = None) -> list[Finding]:
    project = api.open_project(root)
    path = project.folder.experiments / method.replace("/", "-")
    if not path.exists():
        project.new(path.name, method)
    (path / "config.yaml").write_text(json.dumps(config), "utf-8")  # JSON is YAML
    report = api.Experiment(str(path)).validate(
        model="org/m", train_data=str(data), validation_data=str(validation or data)
    )
    assert not [one for one in report.findings if one.code.startswith("yaml-")], report.findings
    return [one for one in report.findings if one.code in CODES]


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


USER = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "a"}
GRADED = {"data_source": "openai/gsm8k", "prompt": [USER], "reward_model": {"ground_truth": "1"}}
RANKED = {"context": [USER], "completions": [{"rank": n, "completion": [ANSWER]} for n in (0, 1)]}
PREFERENCES: Row = {f"data.{split}.dataset_name": "PreferenceDataset" for split in ("train", "validation")}


def graded(source: str, truth: Any) -> Row:
    return {**GRADED, "data_source": source, "reward_model": {"ground_truth": truth}}


# What upstream does with such a row was seen with its own code: verl 0.9.0 and 0.9.1, compute_score of
# reward_score/ and RLHFDataset.__getitem__; trl 1.10.0 and 1.16.0, SFTTrainer with a model of one layer;
# NeMo-RL v0.7.0, preference_preprocessor; OpenRLHF 0.11.2, preprocess_data of datasets/reward_dataset.py.
@pytest.mark.parametrize(
    ("method", "config", "row", "severity", "says"),
    [
        (
            "verl/grpo",
            {},
            graded("openai/gsm8k", 1),
            "warning",
            "column reward_model.ground_truth: it is a number",
        ),
        (
            "verl/grpo",
            {},
            graded("math_dapo", 1),
            "error",
            "column reward_model.ground_truth: it is a number",
        ),
        ("verl/grpo", {}, graded("aime24", None), "error", "column reward_model.ground_truth: it is null"),
        (
            "verl/grpo",
            {},
            graded("searchR1_nq", "x"),
            "error",
            "column reward_model.ground_truth: it is text",
        ),
        ("verl/grpo", {}, graded("searchR1_nq", {"target": "x"}), "", ""),
        ("verl/grpo", {}, graded("numina_cn_k12", 1), "", ""),
        ("verl/grpo", {}, {**GRADED, "data_source": 5}, "error", "column data_source: it is a number"),
        ("verl/grpo", {}, {**GRADED, "extra_info": "x"}, "error", "column extra_info: it is text"),
        ("verl/grpo", {}, {**GRADED, "extra_info": {"index": 1}}, "", ""),
        (
            "verl/grpo",
            {},
            {**GRADED, "prompt": [{**USER, "content": 1}]},
            "warning",
            "column prompt: the role",
        ),
        ("verl/grpo", {}, {**GRADED, "prompt": ["q"]}, "warning", "column prompt[]: it is text"),
        ("verl/grpo", {}, {**GRADED, "prompt": [{"from": "user"}]}, "warning", "no column prompt[].role"),
        (
            "verl/grpo",
            {"data.prompt_key": "chat"},
            {**GRADED, "chat": ["q"]},
            "warning",
            "column chat[]: it is text",
        ),
        (
            "openrlhf/grpo",
            {"data.apply_chat_template": True},
            {"input": ["q"]},
            "error",
            "column input[]: it is text",
        ),
        ("trl/sft", {}, {"text": "q a"}, "", ""),
        ("trl/sft", {}, {"text": 1}, "error", "column text: it is a number"),
        ("trl/sft", {"dataset_text_field": "body"}, {"body": ["q"]}, "error", "column body: it is a list"),
        (
            "trl/sft",
            {},
            {"messages": [USER, {**ANSWER, "content": 1}]},
            "warning",
            "column messages: the role",
        ),
        ("trl/sft", {}, {"prompt": "q", "messages": [USER]}, "error", "no column completion"),
        ("trl/sft", {}, {"question": "q"}, "error", "no column messages"),
        ("trl/sft", {}, {"conversations": [USER]}, "error", "column conversations: it is messages"),
        ("trl/sft", {}, {"conversations": [{"from": "user", "value": "q"}]}, "", ""),
        ("trl/sft", {}, {"input_ids": [1], "prompt": "q"}, "", ""),
        ("nemo-rl/dpo", PREFERENCES, RANKED, "", ""),
        (
            "nemo-rl/dpo",
            PREFERENCES,
            {**RANKED, "completions": RANKED["completions"][:1]},
            "error",
            "column completions: it has 1 items, and has to have 2",
        ),
        (
            "nemo-rl/dpo",
            PREFERENCES,
            {**RANKED, "completions": RANKED["completions"][:1] * 2},
            "error",
            "column completions: all its items have the same rank",
        ),
        (
            "nemo-rl/rm",
            PREFERENCES,
            {**RANKED, "completions": ["a", "b"]},
            "error",
            "completions[]: it is text",
        ),
        (
            "nemo-rl/rm",
            PREFERENCES,
            {**RANKED, "completions": [{"rank": n, "completion": "a"} for n in (0, 1)]},
            "error",
            "column completions[].completion: it is text",
        ),
        ("openrlhf/dpo", {}, PAIR, "warning", "a column prompt that is not read"),
        ("openrlhf/rm", {"data.prompt_key": "prompt"}, PAIR, "", ""),
        ("openrlhf/grpo", {}, {"input": "q", "label": "1"}, "note", "a column label that is not read"),
        ("openrlhf/grpo", {"data.label_key": "label"}, {"input": "q", "label": "1"}, "", ""),
    ],
)
def test_what_upstream_makes_of_a_row_is_said(
    root: Path, tmp_path: Path, method: str, config: Row, row: Row, severity: str, says: str
) -> None:
    found = said(root, method, config, write(tmp_path / "a.jsonl", [row, row]))
    assert {one.severity for one in found} == ({severity} if severity else set()), found
    assert all(says in one.message and one.hint for one in found)


def test_arrays_that_do_not_belong_together(root: Path, tmp_path: Path) -> None:
    images = np.zeros((4, 8, 8))
    for labels, says in (
        (np.array([0, 1, -1, 2]), "row 3, column labels: it is a negative number"),
        (np.arange(3), "4 rows of images and 3 rows of labels"),
    ):
        np.savez(tmp_path / "a.npz", images=images, labels=labels)
        found = said(root, IMAGES, {}, tmp_path / "a.npz")
        assert all(says in one.message and one.severity == "warning" for one in found) and len(found) == 2


def test_validation_rows_may_have_another_form_than_training_rows(root: Path, tmp_path: Path) -> None:
    pairs = write(tmp_path / "a.jsonl", [{"prompt": "q", "completion": "a"}])
    turns = write(tmp_path / "b.jsonl", [{"messages": [{"role": "user", "content": "q"}]}])
    for train, validation in ((pairs, turns), (turns, pairs)):
        assert not said(root, "trl/sft", {}, train, validation)


def test_a_mixture_names_both_places(root: Path, tmp_path: Path) -> None:
    rows: list[Row] = [PAIR, PAIR, {**PAIR, "chosen": [ANSWER]}]
    found, *_ = said(root, "trl/dpo", {}, write(tmp_path / "a.jsonl", rows))
    assert "row 3, column chosen: it is messages, and row 1, column chosen is text" in found.message


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("long.jsonl", "the first 1,000 of its 1,001 rows were judged"),
        ("long.parquet", "the first 1,000 of its 1,001 rows were judged"),
        ("a.parquet", ""),
        ("a.txt", "its rows were not looked into: .txt is none of .parquet"),
        ("a.jsonl.zst", "its rows were not looked into: .zst is none of .parquet"),
        ("wide.jsonl", "its first row is longer than 1 MiB"),
        ("short.jsonl", ""),
    ],
)
def test_what_was_not_looked_into_is_said_once(root: Path, tmp_path: Path, name: str, says: str) -> None:
    rows: list[Row] = [{"text": "x" * (1 << 20)}] if name == "wide.jsonl" else [{"text": "x"}] * 3
    write_as = name if Path(name).suffix in (".jsonl", ".parquet") else "other.jsonl"
    data = write(tmp_path / write_as, [{"text": "x"}] * 1001 if name.startswith("long") else rows)
    data = data.rename(tmp_path / name)
    project = api.open_project(root)
    path = project.folder.experiments / "unseen"
    if not path.exists():
        project.new(path.name, "trl/sft")
    report = api.Experiment(str(path)).validate(
        model="org/m", train_data=str(data), validation_data=str(data)
    )
    notes = [one for one in report.findings if one.code == "data-unseen"]
    assert [(one.severity, one.key) for one in notes] == ([("note", "--train-data")] if says else [])
    assert all(says in one.message for one in notes)


def test_what_reads_the_values_of_parquet_is_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuneport.experiment.parquet_rows.find_spec", lambda name: None)
    data = write(tmp_path / "a.parquet", [{"text": "x"}] * 3)
    project = api.open_project(root)
    path = project.folder.experiments / "unseen"
    if not path.exists():
        project.new(path.name, "trl/sft")
    report = api.Experiment(str(path)).validate(model="org/m", train_data=str(data))
    (note,) = [one for one in report.findings if one.code == "data-unseen"]
    assert "only the types of its columns were judged, not the values of its 3 rows" in note.message
    assert note.hint.startswith("`pip install 'tuneport-core[parquet]'`")


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".json", ".parquet", ""])
def test_every_kind_of_file_is_looked_into(root: Path, tmp_path: Path, suffix: str) -> None:
    rows: list[Row] = [dict(PAIR) for _ in range(3)]
    config = {"data.prompt_key": "prompt"}
    assert said(root, "openrlhf/dpo", config, write(tmp_path / f"a{suffix}", rows)) == []
    rows[1]["rejected"] = None
    found = said(root, "openrlhf/dpo", config, write(tmp_path / f"b{suffix}", rows))
    assert "row 2, column rejected: it is null" in found[0].message and found[0].severity == "error"
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
