"""Asks a chat-completions endpoint, again where that may help.
No manifest: it is a part of a program, shipped to the job as it stands.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MAX_BODY = 4 * 1024 * 1024
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_LONGEST_PAUSE = 60.0


class _Here(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: the key is for the address that was named."""

    def redirect_request(self, *_args: Any, **_words: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_Here)


class JudgeError(Exception):
    """The judge cannot be asked. Ends a run: scores that nobody gave would be worse."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the judge is. `key_variable` names the variable that holds the key; `timeout` is seconds for one
    request, `attempts` how often one is made at most, `pause` seconds before the second attempt, doubled
    each time."""

    base_url: str
    model: str
    key_variable: str = ""
    timeout: float = 60.0
    attempts: int = 6
    pause: float = 1.0

    def ask(self, messages: Sequence[Mapping[str, str]], sampling: Mapping[str, Any]) -> tuple[str, bool]:
        """(the reply's text, whether it was cut short).

        Raises:
            JudgeError: refused, or still no usable answer after the last attempt.
        """
        body = json.dumps({"model": self.model, "messages": list(messages), **sampling}).encode()
        why = ""
        for attempt in range(self.attempts):
            try:
                return self._once(body)
            except urllib.error.HTTPError as error:
                with error:
                    said = error.read(2000).decode("utf-8", "replace").strip()
                why = f"HTTP {error.code} {said[:300]}".strip()
                if error.code not in _AGAIN:
                    break
                pause = _asked_for(error.headers.get("Retry-After"))
            except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
                # URLError, time-outs and broken connections are OSErrors; the rest is a body that is no
                # completion.
                why, pause = f"{type(error).__name__}: {error}", None
            if attempt + 1 < self.attempts:
                grown = self.pause * 2**attempt * random.uniform(0.5, 1.5)  # noqa: S311 - spreads retries
                time.sleep(min(_LONGEST_PAUSE, grown if pause is None else pause))
        raise JudgeError(
            f"the judge {self.model} at {self.base_url} cannot be asked: {self._without_key(why)}"
        )

    def _once(self, body: bytes) -> tuple[str, bool]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        key = self.key()
        if key:
            headers["Authorization"] = f"Bearer {key}"
        address = self.base_url.rstrip("/") + "/chat/completions"
        if not address.startswith(("http://", "https://")):
            raise JudgeError(f"{self.base_url} is no http address")
        request = urllib.request.Request(address, body, headers)  # noqa: S310 - the scheme was looked at
        with _OPENER.open(request, timeout=self.timeout) as answer:
            document = json.loads(answer.read(_MAX_BODY))
        choice = document["choices"][0]
        text = choice["message"]["content"]
        if not isinstance(text, str):
            raise ValueError("the completion holds no text")
        return text, choice.get("finish_reason") == "length"

    def key(self) -> str:
        """The key, from the environment of the job.

        Raises:
            JudgeError: a variable was named and is not set there.
        """
        if not self.key_variable:
            return ""
        found = os.environ.get(self.key_variable, "").strip()
        if not found:
            raise JudgeError(f"the judge's key is to be in {self.key_variable}, which is not set in this job")
        return found

    def _without_key(self, text: str) -> str:
        key = os.environ.get(self.key_variable, "").strip() if self.key_variable else ""
        return text.replace(key, "***") if key else text


def _asked_for(header: str | None) -> float | None:
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:  # a date; our own pause will do
        return None
