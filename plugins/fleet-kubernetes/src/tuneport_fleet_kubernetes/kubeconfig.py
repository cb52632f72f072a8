"""Where a cluster's API is and who asks: from a kubeconfig, or from inside a pod of the cluster."""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tuneport.errors import Invalid, Unavailable

POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""What a cluster mounts into its pods."""
_EXEC_SECONDS = 60


@dataclass
class Access:
    """An API server and what it needs to know of this user. `source` says where that was found."""

    server: str
    namespace: str
    source: str
    context: str = ""
    ca: bytes = b""
    verify: bool = True
    server_name: str = ""
    user: Mapping[str, Any] = field(default_factory=dict, repr=False)  # it holds secrets
    folder: Path = Path()
    _issued: dict[str, Any] = field(default_factory=dict, repr=False)

    def headers(self) -> dict[str, str]:
        """Who asks, for one call.

        Raises:
            Unavailable: the program or file that knows the token does not tell it.
        """
        token = self.user.get("token") or self._status().get("token")
        file = self.user.get("tokenFile")
        if file:  # it wins, and is renewed by others
            try:
                token = (self.folder / file).read_text("utf-8").strip()
            except (OSError, ValueError) as error:
                raise _denied(f"the token file {file} cannot be read: {error}") from error
        if token:
            if not str(token).isprintable() or not str(token).isascii():
                raise _denied(f"the token of {self.source} is no token: it has characters that none can have")
            return {"Authorization": f"Bearer {token}"}
        if "username" in self.user:
            pair = f"{self.user['username']}:{self.user.get('password', '')}".encode()
            return {"Authorization": "Basic " + base64.b64encode(pair).decode()}
        return {}

    def tls(self) -> ssl.SSLContext:
        """How to trust the server, and the client's certificate if that is who the user is."""
        try:
            context = ssl.create_default_context(cadata=self.ca.decode() if self.ca else None)
            if not self.verify:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            certificate, key = self._pair()
            if certificate:
                import tempfile

                with tempfile.TemporaryDirectory() as private:  # OpenSSL reads them from files only
                    pair = Path(private, "pair.pem")
                    pair.touch(0o600)
                    pair.write_bytes(certificate + b"\n" + key)
                    context.load_cert_chain(pair)
        except (ssl.SSLError, ValueError, OSError) as error:
            raise Invalid(
                f"the certificates of {self.source} cannot be used: {error}", code="kubeconfig"
            ) from error
        return context

    def _pair(self) -> tuple[bytes, bytes]:
        issued = self._status()
        if issued.get("clientCertificateData"):
            return issued["clientCertificateData"].encode(), str(issued.get("clientKeyData", "")).encode()
        return (
            _content(self.user, "client-certificate", self.folder),
            _content(self.user, "client-key", self.folder),
        )

    def _status(self) -> dict[str, Any]:
        """What the user's `exec` program issued: kept until it expires."""
        program = self.user.get("exec")
        if not program:
            return {}
        if self._issued.get("until", 0.0) < time.time():
            self._issued = {**_issue(program, self), "until": 0.0}
            self._issued["until"] = _expiry(self._issued.get("expirationTimestamp"))
        return self._issued


def find(context: str = "", namespace: str = "") -> Access:
    """The access that kubectl would use: KUBECONFIG, ~/.kube/config, or the pod this runs in.

    Raises:
        Invalid: the file is broken, or has no such context. Unavailable: there is none.
    """
    named = os.environ.get("KUBECONFIG", "")
    files = [Path(part).expanduser() for part in named.split(os.pathsep) if part] or [
        Path.home() / ".kube/config"
    ]
    known = [(file, _read(file)) for file in files if file.is_file()]
    if known:
        return _from_files(known, context, namespace)
    if not context and (POD / "token").is_file():
        return _from_pod(namespace)
    raise Unavailable(
        f"there is no kubeconfig: {', '.join(map(str, files))}",
        code="fleet-unconfigured",
        hint="set KUBECONFIG, or have your provider's command write ~/.kube/config, as for kubectl",
    )


def _from_files(known: list[tuple[Path, dict[str, Any]]], context: str, namespace: str) -> Access:
    """Of several files the first that has something wins, as kubectl has it."""

    def entries(kind: str) -> Iterator[tuple[Path, str, dict[str, Any]]]:
        for file, document in known:
            listed = document.get(f"{kind}s")
            for item in listed if isinstance(listed, list) else ():
                if isinstance(item, dict) and isinstance(item.get(kind) or {}, dict):
                    yield file, str(item.get("name")), item.get(kind) or {}

    def entry(kind: str, name: str) -> tuple[Path, dict[str, Any]] | None:
        return next(((file, body) for file, own, body in entries(kind) if own == name), None)

    contexts = [name for _, name, _ in entries("context")]
    name = context or next(
        (str(doc["current-context"]) for _, doc in known if doc.get("current-context")), ""
    )
    file = str(known[0][0])
    chosen = entry("context", name)
    if chosen is None:
        said = f"no context {name!r}" if name else "no current context"
        raise Invalid(
            f"{file} has {said}",
            code="kubeconfig",
            hint=f"set `context` of the fleet to one of {', '.join(contexts)}" if contexts else "",
        )
    place = entry("cluster", str(chosen[1].get("cluster")))
    server = str(place[1].get("server", "")) if place else ""
    if place is None or not server.startswith(("https://", "http://")):
        raise Invalid(f"context {name!r} of {file} names no cluster with a server", code="kubeconfig")
    user = entry("user", str(chosen[1].get("user"))) or (known[0][0], {})
    return Access(
        server=server.rstrip("/"),
        namespace=namespace or str(chosen[1].get("namespace") or "default"),
        source=file,
        context=name,
        ca=_content(place[1], "certificate-authority", place[0].parent),
        verify=not place[1].get("insecure-skip-tls-verify", False),
        server_name=str(place[1].get("tls-server-name") or ""),
        user=user[1],
        folder=user[0].parent,
    )


def _from_pod(namespace: str) -> Access:
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST", ""),
        os.environ.get("KUBERNETES_SERVICE_PORT", "443"),
    )
    here = (POD / "namespace").read_text("utf-8").strip() if (POD / "namespace").is_file() else "default"
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace or here,
        source="the pod's service account",
        ca=(POD / "ca.crt").read_bytes(),
        user={"tokenFile": str(POD / "token")},
    )


def _read(file: Path) -> dict[str, Any]:
    import yaml

    try:
        # Not `safe_load`, which is Python throughout: a kubeconfig holds certificates of many clusters.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(file.read_text("utf-8"))
        document = loader.get_single_data()
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise Invalid(
            f"{file} cannot be read: {' '.join(str(error).split())[:200]}", code="kubeconfig"
        ) from error
    if not isinstance(document, dict):
        raise Invalid(f"{file} is no kubeconfig", code="kubeconfig")
    return document


def _content(entry: Mapping[str, Any], name: str, folder: Path) -> bytes:
    """A certificate or key: `NAME-data` in base64, or the file NAME, relative to its kubeconfig."""
    try:
        if entry.get(f"{name}-data"):
            return base64.b64decode(str(entry[f"{name}-data"]), validate=True)
        return (folder / str(entry[name])).read_bytes() if entry.get(name) else b""
    except (OSError, binascii.Error) as error:
        raise Invalid(f"{name} of {folder} cannot be read: {error}", code="kubeconfig") from error


def _issue(program: Mapping[str, Any], access: Access) -> dict[str, Any]:
    """Ask the program of a kubeconfig's `exec` entry who this is (client.authentication.k8s.io)."""
    import subprocess

    words = [str(program.get("command", "")), *map(str, program.get("args") or ())]
    if os.sep in words[0] and not os.path.isabs(words[0]):
        words[0] = str(access.folder / words[0])
    version = str(program.get("apiVersion", "client.authentication.k8s.io/v1"))
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    env = {**os.environ, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    env.update({str(item["name"]): str(item["value"]) for item in program.get("env") or ()})
    try:
        done = subprocess.run(
            words, capture_output=True, env=env, timeout=_EXEC_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()[-300:]
            raise _denied(f"{words[0]} ended with exit code {done.returncode}: {said}")
        status: dict[str, Any] = json.loads(done.stdout)["status"]
    except (OSError, subprocess.TimeoutExpired) as error:
        hint = str(program.get("installHint") or "")
        raise _denied(f"{words[0]}, which knows who you are, cannot be run: {error}", hint) from error
    except (ValueError, KeyError, TypeError) as error:
        raise _denied(f"{words[0]} printed no credential") from error
    return status if isinstance(status, dict) else {}


def _expiry(text: Any) -> float:
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() - 30
    except ValueError:
        return float("inf")


def _denied(message: str, hint: str = "") -> Unavailable:
    return Unavailable(message, code="fleet-auth", hint=hint or "kubectl get pods shows the same problem")
