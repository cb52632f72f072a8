"""Ray's Jobs API over HTTP: bounded calls, and errors that say what to do."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from tuneport.errors import Invalid, Unavailable

_LIMIT = 512 * 1024 * 1024  # bytes of one answer
TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of a variable


class Missing(Exception):
    """The cluster does not know what was asked about."""


class JobsApi:
    """`address` is the dashboard's, such as http://head:8265; `timeout` bounds each call, in seconds."""

    def __init__(self, address: str, timeout: float, token: str = TOKEN) -> None:
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise Invalid(
                f"fleet setting address must be the URL of Ray's dashboard, not {address!r}",
                code="fleet-setting",
                hint="for example address: http://head-node:8265 (ray:// is another protocol)",
            )
        self.address = address.rstrip("/")
        self._timeout = timeout
        self._token = token

    def ask(self, path: str) -> Any:
        return self._json("GET", path)

    def send(self, path: str, document: Mapping[str, Any]) -> Any:
        return self._json("POST", path, json.dumps(document).encode())

    def has(self, path: str) -> bool:
        try:
            self._call("GET", path)
        except Missing:
            return False
        return True

    def put(self, path: str, data: bytes) -> None:
        self._call("PUT", path, data, "application/octet-stream")

    def _json(self, method: str, path: str, data: bytes | None = None) -> Any:
        answer = self._call(method, path, data)
        try:
            return json.loads(answer)
        except ValueError:
            raise Unavailable(
                f"{self.address} does not answer as Ray does: {answer[:60]!r}",
                code="fleet-answer",
                hint="`address` has to be that of Ray's dashboard (port 8265 unless it was changed)",
            ) from None

    def _call(
        self, method: str, path: str, data: bytes | None = None, kind: str = "application/json"
    ) -> bytes:
        headers = {"Content-Type": kind} if data is not None else {}
        if token := os.environ.get(self._token):
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            self.address + path, data, headers, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:  # noqa: S310 - as above
                body: bytes = answer.read(_LIMIT)
                return body
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise Unavailable(
                f"{self.address} cannot be reached: {reason}",
                code="fleet-unreachable",
                hint="is the head node up, and its dashboard reachable from here?",
            ) from error

    def _refused(self, error: urllib.error.HTTPError) -> Exception:
        with error:
            said = error.read(65536).decode(errors="replace").strip().splitlines()
        if error.code == 404:
            return Missing()
        last = said[-1][:300] if said else error.reason
        if error.code in (401, 403):
            hint = f"set {self._token} to the cluster's token where tp runs"
            return Unavailable(f"{self.address} refuses this user: {last}", code="fleet-auth", hint=hint)
        if error.code in (429, 502, 503, 504):
            return Unavailable(f"{self.address} is busy ({error.code}): {last}", code="fleet-unreachable")
        return Unavailable(f"{self.address} refuses it ({error.code}): {last}", code="fleet-refused")
