"""The GSM8K recipe that comes with the methods runs, on data of its shape, and verl can read the result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tuneport.experiment.create import new_project
from tuneport.registry import catalog

RECIPE = "prepare_gsm8k.py"
ROWS = [
    {
        "question": "Ann has 3 bags of 400 nuts. How many is that?",
        "answer": "3 * 400 = 1,200 nuts.\n#### 1,200",
    },
    {"question": "It was 5 degrees and fell by 8. How cold is it?\n", "answer": "5 - 8 = -3\n#### -3"},
    {"question": "Half of 3 litres, in litres?", "answer": "3 / 2 = 1.5\n#### 1.5"},
]
RL = [row[0] for row in catalog.methods("verl") if RECIPE in catalog.templates(row[0])]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"TUNEPORT_{name}_DIR", str(tmp_path / name))
    root = new_project(tmp_path / "project")
    monkeypatch.chdir(root)
    (root / "raw").mkdir()
    for split in ("train", "test"):
        lines = "".join(json.dumps(row) + "\n" for row in ROWS)
        (root / "raw" / f"{split}.jsonl").write_text(lines, "utf-8")
    tp("new", "math", "--method", "verl/grpo")
    config = root / "experiments/math/config.yaml"
    text = config.read_text("utf-8").replace("batch_size: 256", "batch_size: 2")
    config.write_text(text.replace("mini_batch_size: 64", "mini_batch_size: 2"), "utf-8")
    return root


def tp(*words: str, code: int = 0, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuneport", *words]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})})
    assert done.returncode == code, done.stdout + done.stderr
    return done


def prepare(*words: str, code: int = 0) -> Any:
    given = ["--python", sys.executable, "--out", "data", "--json"]
    return json.loads(tp("dataset", "prepare", "math", *given, "--", *words, code=code).stdout)


def test_it_comes_with_every_method_that_learns_from_answers() -> None:
    assert set(RL) == {row[0] for row in catalog.methods("verl")} - {"verl/sft"}


def test_rows_are_as_the_release_reads_them(project: Path) -> None:
    found = prepare("--source", "raw")
    assert found["ok"]
    assert {finding["code"] for finding in found["findings"]} == {"verl-steps"}
    for split in ("train", "test"):
        facts = found["files"][f"{split}.parquet"]
        assert facts["rows"] == 3
        assert facts["data_source_values"] == ["openai/gsm8k"]
        assert "ground_truth" in facts["column_fields"]["reward_model"]
        rows = pq.read_table(project / "data" / f"{split}.parquet").to_pylist()
        assert [row["reward_model"]["ground_truth"] for row in rows] == ["1200", "-3", "1.5"]
        assert [row["reward_model"]["style"] for row in rows] == ["rule"] * 3
        for row, raw in zip(rows, ROWS, strict=True):
            (message,) = row["prompt"]
            assert message["role"] == "user"
            assert message["content"].startswith(raw["question"].strip())
            assert message["content"].endswith('"####".')
            assert row["extra_info"]["split"] == split


def test_the_hubs_own_layout_is_read(project: Path) -> None:
    for folder, name in (("main", "{}-00000-of-00001.parquet"), ("socratic", "{}-00000-of-00001.parquet")):
        (project / "hub" / folder).mkdir(parents=True)
        rows = ROWS if folder == "main" else [{"question": "no", "answer": "no"}]
        for split in ("train", "test"):
            pq.write_table(pa.Table.from_pylist(rows), project / "hub" / folder / name.format(split))
    found = prepare("--source", "hub", "--limit", "2")
    assert [found["files"][f"{split}.parquet"]["rows"] for split in ("train", "test")] == [2, 2]
    rows = pq.read_table(project / "data/test.parquet").to_pylist()
    assert [row["reward_model"]["ground_truth"] for row in rows] == ["1200", "-3"]


def test_it_becomes_a_version_that_a_plan_can_name(project: Path) -> None:
    words = ["--python", sys.executable, "--as", "me/gsm8k", "v1", "--", "--source", "raw"]
    tp("dataset", "prepare", "math", *words)
    data = ["--train-dataset", "me/gsm8k@v1", "--train-data", "train.parquet"]
    data += ["--validation-dataset", "me/gsm8k@v1", "--validation-data", "test.parquet"]
    done = tp("plan", "math", "--model", "org/model", "--profile", "h200:1", *data, "--json")
    assert '"name": "me/gsm8k@v1"' in done.stdout


def test_what_verl_could_not_read_is_said(project: Path) -> None:
    script = project / "experiments/math" / RECIPE
    text = script.read_text("utf-8")
    for before, after, code in [
        ('"ground_truth"', '"answer"', "data-columns"),
        ('SOURCE = "openai/gsm8k"', 'SOURCE = "my/sums"', "verl-data-source-unknown"),
        ('"data_source": SOURCE', '"source": SOURCE', "data-columns"),
        ('"reward_model":', '"reward":', "data-columns"),
        ('"prompt": [', '"messages": [', "data-columns"),
        ('"prompt": [{"role": "user", "content": f', '"prompt": str([{"role": "user", "content": f', "…"),
    ]:
        if code == "…":
            broken = text.replace(before, after).replace('{REQUEST}"}],', '{REQUEST}"}]),')
            code = "data-value"
        else:
            broken = text.replace(before, after)
        assert broken != text
        script.write_text(broken, "utf-8")
        found = prepare("--source", "raw", code=3)
        assert code in [item["code"] for item in found["findings"] if item["severity"] == "error"], code
        for path in (project / "data").iterdir():
            path.unlink()


def test_what_it_cannot_use_is_said(project: Path) -> None:
    (project / "raw/test.jsonl").unlink()
    done = tp(
        "dataset",
        "prepare",
        "math",
        "--python",
        sys.executable,
        "--out",
        "a",
        "--",
        "--source",
        "raw",
        code=3,
    )
    assert "raw holds neither test.jsonl nor test.parquet" in done.stderr
    (project / "raw/test.jsonl").write_text('{"question": "?", "answer": "who knows"}\n')
    done = tp(
        "dataset",
        "prepare",
        "math",
        "--python",
        sys.executable,
        "--out",
        "b",
        "--",
        "--source",
        "raw",
        code=3,
    )
    assert "raw/test.jsonl:1: the answer has no number behind ####" in done.stderr


def test_rows_that_are_odd_and_right(project: Path) -> None:
    odd = [
        ({"question": "a\u2028b", "answer": "x\u2028#### 7"}, "7"),
        ({"question": "q", "answer": "#### $18"}, "18"),
        ({"question": "q", "answer": "#### 1\n#### -$1,234,567.5"}, "-1234567.5"),
        ({"question": "q", "answer": "#### $-3."}, "-3"),
    ]
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record, _ in odd)
    (project / "raw/train.jsonl").write_text(text, "utf-8")
    assert prepare("--source", "raw")["ok"]
    rows = pq.read_table(project / "data/train.parquet").to_pylist()
    assert [row["reward_model"]["ground_truth"] for row in rows] == [truth for _, truth in odd]


@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        ('{"question": "q", "answer": "#### 1"}\n{"question": "q"\n', (), "raw/train.jsonl:2: no JSON"),
        ('{"question": "q"}\n', (), "raw/train.jsonl:1: a row needs a question and an answer"),
        ('["q"]\n', (), "raw/train.jsonl:1: a row needs"),
        ('{"question": "q", "answer": "#### none"}\n', (), "raw/train.jsonl:1: the answer has no number"),
        ("\n", (), "raw holds no rows for train"),
        ('{"question": "q", "answer": "#### 1"}\n', ("--limit", "-1"), "give 0 or more"),
    ],
)
def test_a_bad_row_is_placed(project: Path, text: str, words: tuple[str, ...], says: str) -> None:
    (project / "raw/train.jsonl").write_text(text, "utf-8")
    given = ["dataset", "prepare", "math", "--python", sys.executable, "--out", "data", "--"]
    assert says in tp(*given, "--source", "raw", *words, code=3).stderr
    assert not list((project / "data").iterdir())


@pytest.mark.parametrize(
    ("name", "row", "code", "severity"),
    [
        ("train.csv", "", "verl-data-format", "error"),
        ("train.jsonl", {"prompt": []}, "data-empty", "warning"),
        ("train.jsonl", {"reward_model": None}, "data-value", "error"),
        (
            "train.jsonl",
            {"reward_model": {"style": "rule", "ground_truth": ""}},
            "verl-data-answer-blank",
            "warning",
        ),
        ("train.parquet", {"prompt": []}, "data-empty", "warning"),
        ("train.parquet", {"reward_model": {"ground_truth": ""}}, "verl-data-answer-blank", "warning"),
        ("train.jsonl", "broken", "prepare-unreadable", "error"),
    ],
)
def test_data_that_trains_nothing_is_said(
    project: Path, name: str, row: Any, code: str, severity: str
) -> None:
    good = {"data_source": "openai/gsm8k", "prompt": [{"role": "user", "content": "q"}]}
    good["reward_model"] = {"style": "rule", "ground_truth": "1"}
    rows = [{**good, **row} if isinstance(row, dict) else good] * 3
    target = project / "made" / name
    target.parent.mkdir()
    if name.endswith(".parquet"):
        message = pa.list_(pa.struct({"role": pa.string(), "content": pa.string()}))
        answer = pa.struct({"style": pa.string(), "ground_truth": pa.string()})
        schema = pa.schema({"data_source": pa.string(), "prompt": message, "reward_model": answer})
        pq.write_table(pa.Table.from_pylist(rows, schema), target)
    elif name.endswith(".csv"):
        target.write_text("data_source,prompt,reward_model\n" + "a,b,c\n" * 3)
    else:
        target.write_text(
            "".join(json.dumps(one) + "\n" for one in rows) + ('{"a' if row == "broken" else "")
        )
    copy = f"import os, shutil; shutil.copy({str(target)!r}, os.environ['TUNEPORT_OUTPUT_DIR'])\n"
    (project / "experiments/math" / RECIPE).write_text(copy)
    found = prepare(code=3 if severity == "error" else 0)["findings"]
    assert (code, severity) in [(item["code"], item["severity"]) for item in found]
    if row == "broken":
        assert "line 4 of train.jsonl" in found[0]["message"]


def test_modelscope_is_the_hub_where_the_job_says_so(project: Path) -> None:
    """Neither hub's package is here: each is asked for where it is the one to ask."""
    words = ["dataset", "prepare", "math", "--python", sys.executable, "--out"]
    assert "pip install huggingface_hub" in tp(*words, "a", code=3).stderr
    (project / "experiments/math/job.yaml").write_text('env: {VERL_USE_MODELSCOPE: "True"}\n')
    assert "pip install modelscope" in tp(*words, "b", code=3).stderr


@pytest.mark.upstream
@pytest.mark.parametrize("release", catalog.releases("verl"))
def test_the_releases_own_scorer_finds_the_answers(project: Path, release: str) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests"))
    from hydra_reference import wheel

    prepare("--source", "raw")
    _, tree = wheel("verl", release)
    namespace: dict[str, Any] = {}
    exec((tree / "verl/utils/reward_score/gsm8k.py").read_text("utf-8"), namespace)
    rows = pq.read_table(project / "data/train.parquet").to_pylist()
    truths = [row["reward_model"]["ground_truth"] for row in rows]
    for row, raw, truth in zip(rows, ROWS, truths, strict=True):
        assert namespace["compute_score"](raw["answer"], truth) == 1.0
        assert namespace["compute_score"]("I think it is\n#### 7", truth) == 0.0
        assert row["data_source"] == "openai/gsm8k"
