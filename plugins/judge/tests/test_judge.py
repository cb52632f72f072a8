"""The judge against a real server: what it asks, how it retries, what it refuses to guess, what it keeps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tuneport_judge
from hypothesis import given
from hypothesis import strategies as st
from judge_server import Server, completion, slow
from tuneport.registry.digest import digest as core_digest
from tuneport_judge import Judge, JudgeError, Rubric, rewards
from tuneport_judge.endpoint import Endpoint
from tuneport_judge.rubric import digest

ONE: dict[str, Any] = {
    "rubric": "truth",
    "version": "1",
    "scale": {"min": 1, "max": 5, "step": 1},
    "criteria": [{"name": "correct", "text": "It is true."}],
    "template": "Criteria:\n{criteria}\nQuestion: {question}\nAnswer: {answer}",
}
TWO = {
    **ONE,
    "criteria": [
        {"name": "correct", "text": "It is true.", "weight": 3},
        {"name": "clear", "text": "It is short."},
    ],
}


def judge(server: Server, document: dict[str, Any] = ONE, **more: Any) -> Judge:
    settings = {
        "rubric": document,
        "base_url": server.url,
        "model": "m",
        "cache": False,
        "pause": 0.01,
        **more,
    }
    return Judge.of(settings)


def test_a_question_is_asked_as_the_rubric_says(server: Server) -> None:
    document = {
        **TWO,
        "system": "You judge.",
        "sampling": {"temperature": 0.5, "seed": 7},
        "examples": [{"question": "q", "answer": "a", "why": "so", "scores": {"correct": 5, "clear": 1}}],
    }
    server.answer = lambda body, before: '{"correct": 4, "clear": 2}'
    (result,) = judge(server, document).score(["1+1?"], ["{question} is 2"])
    (asked,) = server.seen
    roles = [message["role"] for message in asked["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert json.loads(asked["messages"][2]["content"]) == {"why": "so", "correct": 5, "clear": 1}
    last = asked["messages"][3]["content"]
    assert "Answer: {question} is 2" in last, "braces of an answer are the answer's own"
    assert "- correct: It is true." in last
    assert '{"correct": <points>, "clear": <points>}' in last
    assert (asked["model"], asked["temperature"], asked["seed"], asked["path"]) == (
        "m",
        0.5,
        7,
        "/v1/chat/completions",
    )
    # (3 x 4 + 1 x 2) / 4 = 3.5 on a scale from 1 to 5
    assert result.value == pytest.approx((3.5 - 1) / 4)
    assert result.points == {"correct": 4, "clear": 2}


@pytest.mark.parametrize(
    "text",
    [
        '{"correct": 3}',
        '```json\n{"correct": 3}\n```',
        'It is right, but long.\n{"why": "long", "correct": 3.0}',
        '<think>{"correct": 1}</think>\n{"correct": 3}',
        '{"correct": 3} as I said: {"correct": 3}',
    ],
)
def test_replies_that_say_one_thing_are_taken(text: str) -> None:
    assert Rubric.of(ONE).read(text).points == {"correct": 3}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no JSON object"),
        ("4", "no JSON object"),
        ("I give it 4 of 5.", "no JSON object"),
        ('{"correct": 4', "no JSON object"),
        ('{"corect": 4}', "no JSON object"),
        ('{"correct": "4"}', "no number"),
        ('{"correct": true}', "no number"),
        ('{"correct": null}', "no number"),
        ('{"correct": NaN}', "no number"),
        ('{"correct": 6}', "off the scale"),
        ('{"correct": 3.5}', "off the scale"),
        ('{"correct": 2} no, {"correct": 4}', "differ"),
        ("{" * 20_000, "no JSON object"),
    ],
)
def test_a_reply_that_cannot_be_taken_is_no_score(text: str, reason: str) -> None:
    reply = Rubric.of(ONE).read(text)
    assert reply.points is None
    assert reason in reply.reason


def test_refused_replies_are_counted_said_and_no_reward(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {"a": '{"correct": 5}', "b": "very good!", "c": '{"correct": 1}'}
    server.answer = lambda body, before: texts[body["messages"][-1]["content"].split("Answer: ")[1][0]]
    settings = {"rubric": ONE, "base_url": server.url, "model": "m", "cache": str(tmp_path / "kept")}
    (tmp_path / "tuneport-judge.json").write_text(json.dumps(settings), "utf-8")
    monkeypatch.chdir(tmp_path)
    rewards._judge.cache_clear()
    logged: dict[str, float] = {}
    prompts = [[{"role": "user", "content": "q"}]] * 3
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    found = tuneport_judge.reward(
        prompts=prompts, completions=completions, completion_ids=[[1]] * 3, log_metric=logged.__setitem__
    )
    assert found == [1.0, None, 0.0]
    assert logged == {"judge/refused": pytest.approx(1 / 3), "judge/cached": 0}
    assert "judge: 1 of 3 replies could not be taken: no JSON object" in capsys.readouterr().out
    assert tuneport_judge.reward(["q"] * 2, ["a", "b"]) == [1.0, None], "text is the same question"
    assert len(server.seen) == 4, "what was taken is kept, what was refused is asked about again"
    rewards._judge.cache_clear()


def test_the_reference_is_a_column_of_the_data(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {**ONE, "template": "{question} {answer} {reference}", "reference": "solution"}
    settings = {"rubric": document, "base_url": server.url, "model": "m", "cache": False}
    (tmp_path / "tuneport-judge.json").write_text(json.dumps(settings), "utf-8")
    monkeypatch.chdir(tmp_path)
    rewards._judge.cache_clear()
    assert tuneport_judge.reward(["q"], ["a"], solution=["42"]) == [0.75]
    assert "q a 42" in server.seen[0]["messages"][0]["content"]
    with pytest.raises(JudgeError, match="the column solution"):
        tuneport_judge.reward(["q"], ["a"])
    rewards._judge.cache_clear()


def test_what_passes_is_asked_again_and_what_does_not_is_not(server: Server) -> None:
    bad: list[Any] = [
        (503, {"Retry-After": "0"}, "busy"),
        (429, {"Retry-After": "0"}, "slow down"),
        (200, {}, "<html>proxy</html>"),
        (200, {}, '{"choices": []}'),
        (200, {}, '{"choices": [{"message": {"content": null}}]}'),
    ]
    server.answer = lambda body, before: bad[before] if before < len(bad) else '{"correct": 5}'
    (result,) = judge(server).score(["q"], ["a"])
    assert result.value == 1
    assert len(server.seen) == 6
    server.answer = lambda body, before: (401, {}, "wrong key")
    with pytest.raises(JudgeError, match="HTTP 401 wrong key"):
        judge(server).score(["q"], ["a"])
    assert len(server.seen) == 7


def test_a_judge_that_stays_silent_ends_the_run(server: Server) -> None:
    server.answer = slow(0.5)
    with pytest.raises(JudgeError, match="cannot be asked"):
        judge(server, timeout=0.05, attempts=3).score(["q"], ["a"])
    assert len(server.seen) == 3
    nobody = Judge(Rubric.of(ONE), Endpoint("http://127.0.0.1:9/v1", "m", attempts=2, pause=0.01))
    with pytest.raises(JudgeError, match="refused"):
        nobody.score(["q"], ["a"])


def test_a_pause_that_the_server_asks_for_is_kept(server: Server) -> None:
    server.answer = lambda body, before: (429, {"Retry-After": "0.3"}, "") if not before else '{"correct": 5}'
    start = time.monotonic()
    judge(server).score(["q"], ["a"])
    assert time.monotonic() - start >= 0.3


def test_no_more_requests_at_once_than_asked_for_and_equal_ones_once(server: Server) -> None:
    server.answer = slow(0.03)
    answers = [str(number) for number in range(12)] * 2
    results = judge(server, concurrency=3).score(["q"] * 24, answers)
    assert [result.value for result in results] == [0.75] * 24
    assert server.most == 3
    assert len(server.seen) == 12


def test_a_reply_that_was_cut_is_said_to_be(server: Server) -> None:
    server.answer = lambda body, before: completion('{"corr', "length")
    (result,) = judge(server).score(["q"], ["a"])
    assert (result.value, result.reason) == (None, "the reply was cut short")


def test_the_key_comes_from_the_environment_and_is_in_no_message(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(JudgeError, match="JUDGE_KEY, which is not set"):
        judge(server, api_key_env="JUDGE_KEY").score(["q"], ["a"])
    monkeypatch.setenv("JUDGE_KEY", "very-secret")
    assert judge(server, api_key_env="JUDGE_KEY").score(["q"], ["a"])[0].value == 0.75
    assert server.keys == ["Bearer very-secret"]
    server.answer = lambda body, before: (403, {}, "the key very-secret is not known")
    with pytest.raises(JudgeError) as failed:
        judge(server, api_key_env="JUDGE_KEY").score(["q"], ["a"])
    assert "very-secret" not in str(failed.value)
    assert "***" in str(failed.value)


def test_the_key_is_not_carried_to_another_address(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "very-secret")
    server.answer = lambda body, before: (302, {"Location": f"{server.url}/elsewhere"}, "")
    with pytest.raises(JudgeError, match="HTTP 302"):
        judge(server, api_key_env="JUDGE_KEY").score(["q"], ["a"])
    assert len(server.seen) == 1


def test_the_cache_goes_by_rubric_model_and_answer(server: Server, tmp_path: Path) -> None:
    kept = str(tmp_path)

    def asked(
        document: dict[str, Any] = ONE, question: str = "q", answer: str = "a", model: str = "m"
    ) -> int:
        before = len(server.seen)
        judge(server, document, cache=kept, model=model).score([question], [answer])
        return len(server.seen) - before

    assert asked() == 1
    assert asked() == 0
    assert asked(document={**ONE, "version": "2"}) == 1
    assert asked(question="r") == 1
    assert asked(answer="b") == 1
    assert asked(model="n") == 1
    for path in tmp_path.rglob("*.json"):
        path.write_bytes(path.read_bytes()[:7])
    assert asked() == 1, "a damaged file is no reply"
    assert asked() == 0


def test_a_cache_that_cannot_be_written_costs_time_only(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    one = judge(server, cache=str(tmp_path / "file"))
    assert [one.score(["q"], ["a"])[0].value for _ in range(2)] == [0.75, 0.75]
    assert len(server.seen) == 2


WORK = """
import json, sys
from tuneport_judge import Judge
judge = Judge.open(sys.argv[1])
results = judge.score(["q"] * 40, [str(n % 20) for n in range(40)])
print(json.dumps([result.value for result in results]))
"""


def test_several_processes_share_a_cache_and_agree(server: Server, tmp_path: Path) -> None:
    server.answer = lambda body, before: json.dumps(
        {"correct": 1 + int(body["messages"][-1]["content"].split("Answer: ")[1].split()[0]) % 5}
    )
    settings = {"rubric": ONE, "base_url": server.url, "model": "m", "cache": str(tmp_path / "kept")}
    (tmp_path / "j.json").write_text(json.dumps(settings), "utf-8")
    # As in a job: only what is shipped, and an interpreter without anything of Tuneport.
    package = Path(tuneport_judge.__file__).parent
    target = tmp_path / "tuneport_judge"
    target.mkdir()
    from tuneport_judge.compiled import _package

    for name, spec in _package().items():
        (tmp_path / name).write_text(str(spec.content), "utf-8")
    assert not (target / "compiled.py").exists() and (package / "compiled.py").exists()
    command = [sys.executable, "-S", "-c", WORK, str(tmp_path / "j.json")]
    running = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": ""})
        for _ in range(3)
    ]
    outputs = [process.communicate(timeout=60)[0] for process in running]
    assert all(process.returncode == 0 for process in running)
    values = [json.loads(output) for output in outputs]
    assert values[0] == [(n % 20 % 5) / 4 for n in range(40)]
    assert values[1] == values[2] == values[0]
    assert 20 <= len(server.seen) <= 60
    before = len(server.seen)
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert len(server.seen) == before
    assert not list((tmp_path / "kept").rglob(".*")), "no draft is left"


def test_rows_for_a_scores_document(server: Server) -> None:
    texts = ['{"correct": 5, "clear": 1}', '{"correct": 3, "clear": 1}', "no"]
    server.answer = lambda body, before: texts[int(body["messages"][-1]["content"].split("Answer: ")[1][0])]
    one = judge(server, TWO)
    rows = one.rows("t", one.score(["q"] * 3, ["0", "1", "2"]))
    assert [(row["metric"], row["value"], row["n"], row["refused"]) for row in rows] == [
        ("judge", pytest.approx((0.75 + 0.375) / 2), 2, 1),
        ("judge/correct", 4, 2, 1),
        ("judge/clear", 1, 2, 1),
    ]
    assert {row["rubric"] for row in rows} == {digest(TWO)}


@given(
    st.fixed_dictionaries(
        {"scale": st.fixed_dictionaries({"min": st.integers(-9, 0), "max": st.floats(0.001, 1e6)})},
        optional={
            "text": st.text(st.characters(exclude_categories=["Cs"])),
            "weights": st.lists(st.floats(1e-6, 1e6)),
            "nested": st.dictionaries(
                st.from_regex(r"[a-z][a-z0-9_-]{0,5}", fullmatch=True), st.integers(-(2**50), 2**50)
            ),
        },
    )
)
def test_the_digest_is_that_of_canonical_json(document: dict[str, Any]) -> None:
    assert digest(document) == core_digest(document)


def test_a_job_without_a_judge_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JudgeError, match=r"set judge in config\.yaml"):
        Judge.open()
    (tmp_path / "tuneport-judge.json").write_text('{"rubric": 3}', "utf-8")
    with pytest.raises(JudgeError, match="describes no judge"):
        Judge.open()
