"""Curves from any script: `init`, `log`, `finish`. One file, standard library only; copy it anywhere.

    import tuneport_report as report

    report.init(learning_rate=1e-3)
    for step in range(100):
        report.log({"train/loss": loss}, step=step)
    report.finish()

Each call appends one JSON line to the file that TUNEPORT_REPORT_FILE names and hands it to the kernel
before it returns, so nothing that was logged is lost when the process dies a moment later; several
processes may log at once. Without the variable every call does nothing. No call ever raises: reporting
must not end a training that took days.

A script written for `tuneplane.report` runs with this file under that name: its further functions
record what they are given and return whether they could.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable

__all__ = [
    "Callback",
    "TunePlaneCallback",
    "configure_observability",
    "enabled",
    "finish",
    "init",
    "log",
    "log_hparams",
    "observe",
    "validation_metric",
    "validation_outcome",
    "validation_population",
    "validation_protocol",
]

_VARIABLE = "TUNEPORT_REPORT_FILE"
_LONGEST_TEXT = 4000
_step = 0


def _never_raises(function: Callable[..., bool]) -> Callable[..., bool]:
    """Also a call with the wrong arguments only returns False."""

    @functools.wraps(function)
    def call(*args: object, **more: object) -> bool:
        try:
            return function(*args, **more)
        except Exception:
            return False

    return call


def enabled() -> bool:
    """Whether anything is recorded."""
    return bool(os.environ.get(_VARIABLE))


@_never_raises
def init(*args: object, hparams: object = None, **config: object) -> bool:
    """Record what this run was configured with. May be called again; `log` works without it."""
    values: dict[str, object] = {}
    for item in (*args, hparams, config):
        values.update(_flat(item))
    return _append("init", values)


@_never_raises
def log(metrics: object = None, step: object = None, prefix: str = "", **more: object) -> bool:
    """Record numbers of one step. Without `step` it is one more than that of the call before.

    Nested mappings are joined with dots. NaN and infinities are kept. An array counts as its mean; what
    is no number at all is kept as text.
    """
    global _step
    try:
        number = int(step)  # type: ignore[call-overload]
    except Exception:
        number = _step + 1
    _step = number
    values = {**_flat(metrics), **_flat(more)}
    if prefix:
        values = {
            name if name.startswith(f"{prefix}/") else f"{prefix}/{name}": v for name, v in values.items()
        }
    return _append("log", values, step=number)


@_never_raises
def finish(*args: object, **more: object) -> bool:
    """Record that the run came to its end."""
    values: dict[str, object] = {}
    for item in (*args, more):
        values.update(_flat(item))
    return _append("finish", values)


@_never_raises
def log_hparams(params: object = None, **more: object) -> bool:
    """Record further configuration."""
    return init(params, **more)


@_never_raises
def observe(name: object = "", *, values: object = None, step: object = None, **more: object) -> bool:
    """Record several numbers under one name."""
    if values is None:
        return _append("observe", {"name": name, **more})
    return log(values, step=step, prefix=str(name))


@_never_raises
def validation_metric(round_id: object = "", key: object = "", value: object = None, **more: object) -> bool:
    """Record one number of a validation round."""
    return _append("validation_metric", {"round": round_id, "key": key, "value": value, **more})


@_never_raises
def validation_population(*args: object, **more: object) -> bool:
    """Record how large a validation round is."""
    return _event("validation_population", args, more)


@_never_raises
def validation_protocol(*args: object, **more: object) -> bool:
    """Record how a validation round was made."""
    return _event("validation_protocol", args, more)


@_never_raises
def validation_outcome(*args: object, **more: object) -> bool:
    """Record how one trial of a validation round ended."""
    return _event("validation_outcome", args, more)


@_never_raises
def configure_observability(*args: object, **more: object) -> bool:
    """Record what the script says it can observe."""
    return _event("configure_observability", args, more)


class Callback:
    """A callback for trainers that call `on_log(args, state, control, logs=…)` and the like; events it
    has no use for are accepted."""

    def __init__(self, *, prefix: str = "", **options: object) -> None:
        self._prefix = prefix
        self._options = options

    def on_log(
        self,
        args: object = None,  # noqa: ARG002 - trainers pass it
        state: object = None,
        control: object = None,  # noqa: ARG002
        **kwargs: object,
    ) -> None:
        log(kwargs.get("logs"), step=getattr(state, "global_step", None), prefix=self._prefix)

    def on_train_end(self, *_args: object, **_kwargs: object) -> None:
        finish()

    def __getattr__(self, name: str) -> object:
        if name.startswith("on_"):
            return lambda *_args, **_kwargs: None
        raise AttributeError(name)


TunePlaneCallback = Callback


def _event(kind: str, args: tuple[object, ...], more: dict[str, object]) -> bool:
    return _append(kind, {**({"args": list(args)} if args else {}), **more})


def _flat(item: object, prefix: str = "") -> dict[str, object]:
    """A nested mapping as one level; anything else as nothing."""
    found: dict[str, object] = {}
    try:
        for name, value in item.items():  # type: ignore[attr-defined]
            path = f"{prefix}.{name}" if prefix else str(name)
            if isinstance(value, dict):
                found.update(_flat(value, path))
            else:
                found[path] = value
    except Exception:
        return found
    return found


def _append(kind: str, values: dict[str, object], **more: object) -> bool:
    try:
        path = os.environ.get(_VARIABLE)
        if not path:
            return False
        record = {
            "time": time.time(),
            "kind": kind,
            **more,
            "values": {k: _plain(v) for k, v in values.items()},
        }
        line = json.dumps(record).encode() + b"\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            # One call, so that lines of several processes never mix.
            written = os.write(descriptor, line)
            if written < len(line):
                os.write(descriptor, b"\n")  # what follows must not grow onto the torn line
            return written == len(line)
        finally:
            os.close(descriptor)
    except Exception:
        return False


def _plain(value: object) -> object:
    """What JSON can hold: a number where there is one, text otherwise."""
    try:
        if value is None or isinstance(value, (bool, int, float)):
            json.dumps(value)
            return value
        if isinstance(value, str):
            return value[:_LONGEST_TEXT]
        if isinstance(value, (list, tuple, set, frozenset)):
            return [_plain(item) for item in list(value)[:1000]]
        return _number(value)
    except Exception:
        return _text(value)


def _number(value: object) -> float:
    """A tensor or array scalar of whatever library, by what they have in common; several count as mean."""
    detach = getattr(value, "detach", None)
    if detach is not None:
        value = detach()
    try:
        return float(value)  # type: ignore[arg-type]
    except Exception:
        return float(value.mean())  # type: ignore[attr-defined]


def _text(value: object) -> str:
    try:
        return str(value)[:_LONGEST_TEXT]
    except Exception:
        return f"<{type(value).__name__}>"
