"""The Kubernetes API over HTTPS: bounded calls, and errors that say what to do."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Any

from tuneport.errors import Unavailable
from tuneport.fleets.failure import NotStarted

from tuneport_fleet_kubernetes.kubeconfig import Access

_LIMIT = 256 * 1024 * 1024  # bytes of one answer
BUSY = frozenset({408, 429, 500, 502, 503, 504})
"""Answers after which the same question may be asked again."""


class Missing(Exception):
    """The cluster has no such object, or does not know the kind."""


class Taken(Exception):
    """An object of that name is there already."""


class Api:
    """One cluster. `timeout` bounds each call, in seconds. `calls` counts them."""

    def __init__(self, access: Access, timeout: float) -> None:
        self.access = access
        self.calls = 0
        self._timeout = timeout
        self._opener: urllib.request.OpenerDirector | None = None

    def get(self, path: str, **query: str) -> Any:
        """The JSON at a path.

        Raises:
            Missing: there is none. Unavailable: lost contact, or refused.
        """
        return self._json("GET", path, query)

    def text(self, path: str, **query: str) -> bytes:
        return self._call("GET", path, query)

    def create(self, path: str, document: Mapping[str, Any]) -> Any:
        """Raises:
        Taken: the name is in use. Missing: the cluster does not know the kind.
        """
        # Without it a misspelt field would be dropped without a word; servers before 1.25 ignore it.
        return self._json("POST", path, {"fieldValidation": "Strict"}, document)

    def merge(self, path: str, document: Mapping[str, Any]) -> Any:
        return self._json("PATCH", path, {}, document)

    def delete(self, path: str) -> None:
        """Ask for an object and all that belongs to it to go. Fine where it is gone."""
        try:
            self._call("DELETE", path, {}, {"propagationPolicy": "Foreground"})
        except Missing:
            return

    def objects(self, path: str, label: str, values: Iterable[str]) -> list[dict[str, Any]]:
        """All objects at a path whose label has one of the values."""
        selector = f"{label} in ({','.join(values)})"
        found: list[dict[str, Any]] = []
        more = ""
        while True:
            page = self.get(path, labelSelector=selector, **({"continue": more} if more else {}))
            if not isinstance(page, dict) or not isinstance(page.get("items"), list):
                raise self._odd(json.dumps(page)[:60])
            found += [item for item in page["items"] if isinstance(item, dict)]
            more = str((page.get("metadata") or {}).get("continue") or "")
            if not more:
                return found

    def _json(
        self, method: str, path: str, query: Mapping[str, str], document: Mapping[str, Any] | None = None
    ) -> Any:
        answer = self._call(method, path, query, document)
        try:
            return json.loads(answer)
        except ValueError:
            raise self._odd(repr(answer[:60])) from None

    def _odd(self, said: str) -> Unavailable:
        return Unavailable(
            f"{self.access.server} does not answer as Kubernetes does: {said}",
            code="fleet-answer",
            hint=f"`server` of {self.access.source} has to be that of the API",
        )

    def _call(
        self, method: str, path: str, query: Mapping[str, str], document: Mapping[str, Any] | None = None
    ) -> bytes:
        self.calls += 1
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Accept": "application/json, */*", **self.access.headers()}
        data = None
        if document is not None:
            data, headers["Content-Type"] = json.dumps(document).encode(), kind
        words = f"?{urllib.parse.urlencode(query)}" if query else ""
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked when the kubeconfig was read
            self.access.server + path + words, data, headers, method=method
        )
        try:
            with self._open(request) as answer:
                body: bytes = answer.read(_LIMIT)
                return body
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error or type(error).__name__
            raise Unavailable(
                f"{self.access.server} cannot be reached: {reason}",
                code="fleet-unreachable",
                hint=f"context {self.access.context or '-'} of {self.access.source}: does kubectl reach it?",
            ) from error

    def _open(self, request: urllib.request.Request) -> Any:
        if self._opener is None:
            context = self.access.tls() if self.access.server.startswith("https") else None
            secure = _Secure(context, self.access.server_name)
            self._opener = urllib.request.build_opener(secure, _Unled())
        return self._opener.open(request, timeout=self._timeout)

    def _refused(self, error: urllib.error.HTTPError) -> Exception:
        with error:
            said = _message(error)
        if error.code == 404:
            return Missing(said)
        if error.code == 409 and "AlreadyExists" in said:
            return Taken(said)
        if error.code == 401:
            self._opener = None
            return Unavailable(
                f"{self.access.server} does not know this user: {said}",
                code="fleet-auth",
                hint=f"sign in again: the credentials of {self.access.source} have expired or are wrong",
            )
        if error.code == 403 and "quota" not in said:
            hint = f"kubectl auth can-i create jobs --namespace {self.access.namespace}"
            return Unavailable(f"{self.access.server} forbids it: {said}", code="fleet-auth", hint=hint)
        if error.code in BUSY or error.code == 409:
            return NotStarted(
                f"{self.access.server} is busy ({error.code}): {said}", code="fleet-unreachable"
            )
        return Unavailable(f"{self.access.server} refuses it ({error.code}): {said}", code="fleet-refused")


class _Secure(urllib.request.HTTPSHandler):
    """HTTPS with a cluster's own authority, and where need be under another name than its address."""

    def __init__(self, context: ssl.SSLContext | None, server_name: str) -> None:
        super().__init__(context=context)
        self._tls, self._server_name = context, server_name

    def https_open(self, request: urllib.request.Request) -> Any:
        def connection(host: str, **more: Any) -> http.client.HTTPSConnection:
            made = _Connection(host, context=self._tls, **more)
            made.server_name = self._server_name
            return made

        return self.do_open(connection, request)


class _Unled(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token is for this server alone."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _Connection(http.client.HTTPSConnection):
    server_name = ""

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._context.wrap_socket(  # type: ignore[attr-defined]
            self.sock, server_hostname=self.server_name or self.host
        )


def _message(error: urllib.error.HTTPError) -> str:
    """The reason and message of the API's Status object, or the beginning of what came instead."""
    try:
        body = error.read(1 << 20)
        status = json.loads(body)
        text = f"{status.get('reason') or error.reason}: {status.get('message') or ''}"
    except (ValueError, OSError, AttributeError, http.client.HTTPException):
        text = str(error.reason)
    return " ".join(text.split())[:500]
