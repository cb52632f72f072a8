"""What the script makes of a model's folder and of the files that harnesses leave behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tuneport.registry.schemas import problems, schema
from tuneport_evalkit import run_script


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_script, "OUT", tmp_path)
    monkeypatch.setattr(run_script, "HARNESS", tmp_path / "harness")
    return tmp_path


def write(path: Path, content: Any, lines: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(item) + "\n" for item in content) if lines else json.dumps(content)
    path.write_text(text, "utf-8")


def valid(rows: list[dict[str, Any]]) -> None:
    document = {"harness": "h", "harness_version": "1", "model": "m", "scores": rows}
    assert not list(problems(document, schema("scores")))


def test_scores_of_lm_eval(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = {
        "results": {
            "gsm8k": {
                "alias": "gsm8k", "name": "gsm8k", "sample_len": 9,
                "exact_match,strict-match": 0.5, "exact_match_stderr,strict-match": 0.1,
                "exact_match,flexible-extract": 0.75, "exact_match_stderr,flexible-extract": "N/A",
            },
            "mmlu": {"alias": "mmlu", "acc,none": 0.25, "acc_stderr,none": 0.02},
            "odd": {"alias": "odd", "acc,none": float("nan"), "bypass,none": 999, "bypass_stderr,none": None},
        },
        "n-samples": {"gsm8k": {"original": 9, "effective": 8}},
        "n-shot": {"gsm8k": 5},
        "versions": {"gsm8k": 3.0, "mmlu": 2},
    }  # fmt: skip
    write(out / "harness/org__m/results_2026-01-01.json", results)
    rows = list(run_script.lm_eval_rows())
    valid(rows)
    about = {"task": "gsm8k", "metric": "exact_match", "n": 8, "fewshot": 5, "task_version": "3.0"}
    assert rows[0] == {**about, "value": 0.5, "stderr": 0.1, "filter": "strict-match"}
    assert rows[1] == {**about, "value": 0.75, "stderr": None, "filter": "flexible-extract"}
    assert rows[2] == {
        "task": "mmlu",
        "metric": "acc",
        "value": 0.25,
        "stderr": 0.02,
        "n": None,
        "task_version": "2",
    }
    assert [row["metric"] for row in rows[3:]] == ["bypass"]
    assert "odd acc: nan is no score" in capsys.readouterr().out


def test_answers_of_lm_eval_are_what_was_written_once_per_question(out: Path) -> None:
    def sample(number: int, way: str) -> dict[str, Any]:
        asked = {"gen_args_0": {"arg_0": f"q{number}", "arg_1": {"until": []}}}
        return {"doc_id": number, "arguments": asked, "resps": [[f"a{number}"]], "target": "t", "filter": way}

    compared = {
        "doc_id": 0,
        "arguments": {"gen_args_0": {"arg_0": "q", "arg_1": " yes"}},
        "resps": [[["-1", "False"]]],
    }
    write(
        out / "harness/m/samples_my_task_2026-01-01T00.jsonl",
        [sample(0, "a"), sample(1, "a"), sample(0, "b")],
        True,
    )
    write(out / "harness/m/samples_choices_2026-01-01T00.jsonl", [compared], True)
    assert sorted(run_script.lm_eval_answers()) == [
        ("my_task", "q0", "a0", "t"),
        ("my_task", "q1", "a1", "t"),
    ]


def metric(name: str, score: float, **dimensions: Any) -> dict[str, Any]:
    return {
        "identity": {"name": name, "aggregation": "mean", "dimensions": dimensions},
        "score": score,
        "num": 2,
    }


def review(index: int, value: dict[str, float], **metadata: Any) -> dict[str, Any]:
    messages = [
        {"role": "user", "content": f"q{index}"},
        {"role": "assistant", "content": [{"type": "text", "text": f"a{index}"}]},
    ]
    score = {"score": {"value": value, "metadata": metadata}}
    return {"index": index, "target": ["t"], "messages": messages, "sample_score": score}


def test_scores_of_evalscope_leave_out_what_could_not_be_calculated(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = out / "harness"
    qa = [metric("bleu", 0.0, ngram=1), metric("rouge", 0.4, statistic="recall", variant="l")]
    write(harness / "reports/m/general_qa.json", {"dataset_name": "general_qa", "metrics": qa})
    errors = {"metric_errors": {"BLEU": "LookupError"}}
    write(harness / "reviews/m/general_qa_default.jsonl", [review(0, {"b": 0, "r": 1}, **errors)], True)
    write(harness / "reports/m/gsm8k.json", {"dataset_name": "gsm8k", "metrics": [metric("accuracy", 0.5)]})
    write(harness / "reviews/m/gsm8k_main.jsonl", [review(0, {"acc": 1}), review(1, {"acc": 0})], True)
    rows = {row["task"]: row for row in run_script.evalscope_rows()}
    valid(list(rows.values()))
    assert rows["general_qa"] == {
        "task": "general_qa",
        "metric": "rouge.recall.l",
        "value": 0.4,
        "n": 2,
        "stderr": None,
    }
    assert rows["gsm8k"]["stderr"] == pytest.approx(0.5)  # two scores, 0 and 1: 0.7071 / sqrt(2)
    assert "general_qa bleu.1 could not be calculated" in capsys.readouterr().out
    answers = [answer for answer in run_script.evalscope_answers() if answer[0] == "gsm8k"]
    assert answers == [("gsm8k", "q0", "a0", "t"), ("gsm8k", "q1", "a1", "t")]


def test_a_model_is_found_in_what_a_job_wrote(tmp_path: Path) -> None:
    assert run_script.located("org/m") == {"name": "org/m"}
    whole, adapter, cut = tmp_path / "whole", tmp_path / "adapter", tmp_path / "cut"
    write(whole / "config.json", {})
    assert run_script.located(str(whole)) == {"name": str(whole)}
    write(adapter / "adapter_config.json", {"base_model_name_or_path": "org/base"})
    assert run_script.located(str(adapter)) == {"name": "org/base", "adapter": str(adapter)}
    for step in (9, 10):
        write(cut / f"checkpoint-{step}/config.json", {})
    write(cut / "checkpoint-best/config.json", {})
    assert run_script.located(str(cut)) == {"name": str(cut / "checkpoint-10")}
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="holds no model"):
        run_script.located(str(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("harness", "words", "model", "told"),
    [
        ("lm-eval", [], {"name": "m"}, {"pretrained": "m"}),
        ("lm-eval", [], {"name": "b", "adapter": "a"}, {"pretrained": "b", "peft": "a"}),
        (
            "lm-eval",
            ["--model=vllm"],
            {"name": "b", "adapter": "a"},
            {"pretrained": "b", "lora_local_path": "a"},
        ),
        ("lm-eval", ["--model=local-chat-completions"], {"name": "m"}, {"model": "m"}),
    ],
)
def test_each_engine_is_told_its_model_by_its_own_name(
    harness: str, words: list[str], model: dict[str, str], told: dict[str, str]
) -> None:
    flag, value = run_script.model_words(harness, model, words)
    assert (flag, json.loads(value)) == ("--model_args", told)
    assert run_script.model_words("evalscope", model, words) == [
        "--model",
        model.get("adapter", model["name"]),
    ]
    assert run_script.model_words("lm-eval", {"name": ""}, words) == []


def test_a_harness_that_fails_or_writes_nothing_fails_the_job(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_script.main(["m", "--", "-c", "import sys; sys.exit(7)", "lm_eval"]) == 7
    assert run_script.main(["m", "--", "-c", "pass", "lm_eval"]) == 1
    assert "lm-eval wrote no score" in capsys.readouterr().out
    assert not (out / "scores.json").exists()
