"""The judge against a real server with a real model behind it: `transformers serve` on the CPU."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tuneport.registry import surfaces
from tuneport.runtimes.install import install
from tuneport.runtimes.variants import pick
from tuneport.runtimes.venvs import find_built
from tuneport.settings import cache_dir
from tuneport_judge import Judge, JudgeError

pytestmark = pytest.mark.engine
# What the server needs beside the runtime of evalscope, which brings Transformers and the types of OpenAI.
SERVER = ("fastapi==0.121.0", "starlette==0.49.1", "uvicorn==0.38.0")
TINY = Path(__file__).parents[2] / "trl/tests/tiny_model.py"
RUBRIC: dict[str, Any] = {
    "rubric": "politeness",
    "version": "1",
    "scale": {"min": 1, "max": 5, "step": 1},
    "criteria": [{"name": "polite", "text": "The answer is polite."}],
    "template": "Score the answer. {criteria}\nQuestion: {question}\nAnswer: {answer}",
    "sampling": {"max_tokens": 16},
    "examples": [
        {"question": "Where is the station?", "answer": "Find it yourself.", "scores": {"polite": 1}},
        {"question": "What time is it?", "answer": "It is noon, with pleasure.", "scores": {"polite": 5}},
    ],
}


@pytest.fixture(scope="module")
def interpreter() -> str:
    spec = surfaces.release("evalkit", "evalscope-1.14.1").spec
    variant = pick(spec, "evalkit", "cpu")
    return str((find_built(variant) or install(variant, print)).interpreter)


@pytest.fixture(scope="module")
def packages() -> Path:
    folder = cache_dir() / "judge-server"
    if not (folder / "done").exists():
        words = ["-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", str(folder), *SERVER]
        subprocess.run([sys.executable, *words], check=True)
        (folder / "done").touch()
    return folder


@pytest.fixture(scope="module")
def serve(
    interpreter: str, packages: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], Any]:
    home = tmp_path_factory.mktemp("home")

    @contextmanager
    def running(model: Path) -> Iterator[str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        words = ["-m", "transformers.cli.transformers", "serve", "--host", "127.0.0.1", "--port", str(port)]
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(home), "PYTHONPATH": str(packages)}
        with (home / f"{port}.log").open("wb") as log:
            server = subprocess.Popen(
                [interpreter, *words, "--device", "cpu", str(model)], stdout=log, stderr=log, env=env
            )
        try:
            deadline = time.monotonic() + 200
            while True:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    break
                except OSError:
                    alive = server.poll() is None and time.monotonic() < deadline
                    assert alive, (home / f"{port}.log").read_text("utf-8")[-2000:]
                    time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            server.wait(30)

    return running


def judge(url: str, model: Path, cache: Path) -> Judge:
    settings = {"rubric": RUBRIC, "base_url": url, "model": str(model), "cache": str(cache), "timeout": 200}
    return Judge.of({**settings, "concurrency": 2})


def test_a_model_that_knows_nothing_is_never_taken_for_a_judge(
    serve: Callable[[Path], Any], interpreter: str, tmp_path: Path
) -> None:
    tiny = tmp_path / "tiny"
    subprocess.run(
        [interpreter, str(TINY), str(tiny)], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    with serve(tiny) as url:
        results = judge(url, tiny, tmp_path / "kept").score(
            ["Can you help me?"] * 3, ["Yes.", "No.", "Gladly!"]
        )
        assert [result.value for result in results] == [None] * 3
        assert all(result.reason for result in results)
        assert not list((tmp_path / "kept").rglob("*.json")), "what could not be taken is not kept"
        with pytest.raises(JudgeError, match="HTTP 4"):  # the server holds this one model
            judge(url, tmp_path / "another", tmp_path / "kept").score(["q"], ["a"])


def test_a_small_model_that_is_shown_examples_judges(serve: Callable[[Path], Any], tmp_path: Path) -> None:
    known = sorted((cache_dir() / "demo").glob("smollm2-*"))
    if not known:
        pytest.skip("no SmolLM2 in the cache: `make demo` brings it")
    with serve(known[0]) as url:
        one = judge(url, known[0], tmp_path / "kept")
        results = one.score(["Can you help me?"] * 2, ["Of course, with pleasure.", "Go away."])
    taken = [result for result in results if result.value is not None]
    assert taken, [result.reason for result in results]
    for result in taken:
        assert result.points["polite"] in (1, 2, 3, 4, 5)
        assert result.value == (result.points["polite"] - 1) / 4
    rows = one.rows("t", results)
    assert rows[0]["n"] == len(taken) and rows[0]["refused"] == 2 - len(taken)
    kept = [json.loads(path.read_bytes())["reply"] for path in (tmp_path / "kept").rglob("*.json")]
    assert len(kept) == len(taken) and all("polite" in reply for reply in kept)
    # The server is gone: what was kept needs nobody.
    again = judge("http://127.0.0.1:9/v1", known[0], tmp_path / "kept")
    with pytest.raises(JudgeError):
        again.endpoint.ask([], {})
