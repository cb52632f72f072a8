"""A real HTTP server that speaks the published schema of chat completions, and misbehaves on request."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Reply = Callable[[dict[str, Any], int], Any]


@dataclass
class Server:
    """`answer` is called with the request's body and how many there were before. It returns the content of
    the
    completion, or (status, headers, body) for anything else."""

    url: str = ""
    answer: Reply = lambda body, before: '{"correct": 4}'
    seen: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    running: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def completion(text: str, finish: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with state.lock:
                before = len(state.seen)
                state.seen.append({**body, "path": self.path})
                state.keys.append(self.headers.get("Authorization"))
                state.running += 1
                state.most = max(state.most, state.running)
            try:
                answer = state.answer(body, before)
            finally:
                with state.lock:
                    state.running -= 1
            if isinstance(answer, str):
                answer = completion(answer)
            status, headers, content = answer if isinstance(answer, tuple) else (200, {}, json.dumps(answer))
            data = content.encode()
            try:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                pass  # the client had enough

        def log_message(self, *args: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{httpd.server_port}/v1"
    yield state
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def slow(seconds: float, text: str = '{"correct": 4}') -> Reply:
    def answer(body: dict[str, Any], before: int) -> str:
        time.sleep(seconds)
        return text

    return answer
