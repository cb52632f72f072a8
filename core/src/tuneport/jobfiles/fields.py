"""Fields of Kubernetes' objects and their types, held against what the published schemas say.

`fields.json` is made by tools/kube_fields.py, which says how it is written.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources
from typing import Any

from tuneport.jobfiles.documents import FILLED, Object, Place
from tuneport.text import closest
from tuneport.types import Json

SOURCE = "Kubernetes 1.37 API, KubeRay 1.7, JobSet 0.12 and Trainer 2.3, published schemas"
MAX_SAID = 20
_OWN = ("v1", "batch/v1", "apps/v1")
_QUANTITY = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?\Z")
_WORDS = {"str": "text", "int": "a whole number", "num": "a number", "bool": "true or false"}
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "num": (int, float), "bool": (bool,), "port": (int, str),
}  # fmt: skip


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        resources.files(__package__).joinpath("fields.json").read_text("utf-8")
    )
    return found


def check(one: Object) -> None:
    """Say which fields of an object the API would refuse: unknown ones, and values of another type."""
    kind = _table()["kinds"].get(one.kind)
    if kind:
        _object(one, one.data, (), kind)
        return
    version, _, name = one.kind.partition(" ")
    own = next((known for known in _table()["kinds"] if known.endswith(f" {name}")), "")
    if own and version in _OWN:
        message = f"there is no {name} in {version}: kubectl knows no such kind"
        hint = f"write apiVersion: {own.partition(' ')[0]}"
        one.say("kube-field", "error", ("apiVersion",), message, hint, SOURCE)


def check_pod(one: Object, place: Place, spec: Json) -> None:
    """The same for a pod within an object of a kind that is not known here."""
    if one.kind not in _table()["kinds"]:
        _object(one, spec, place, "PodSpec")


def _value(one: Object, value: Json, place: Place, kind: str) -> None:
    if value is None or len(one.findings) > MAX_SAID:
        return
    if kind[0] == "[":
        if isinstance(value, list):
            for number, item in enumerate(value):
                _value(one, item, (*place, number), kind[1:-1])
        else:
            _wrong(one, place, value, "a list")
    elif kind[0] == "{":
        if isinstance(value, dict):
            for name, item in value.items():
                _value(one, item, (*place, name), kind[1:-1])
        else:
            _wrong(one, place, value, "a mapping")
    elif kind in _table()["types"]:
        _object(one, value, place, kind)
    else:
        _plain(one, value, place, kind)


def _object(one: Object, value: Json, place: Place, kind: str) -> None:
    fields = _table()["types"][kind]
    if not isinstance(value, dict):
        _wrong(one, place, value, "a mapping")
        return
    for name, item in value.items():
        if name in fields:
            _value(one, item, (*place, name), fields[name])
        elif not (place == () and name.startswith("x-")):
            close = closest(name, fields, cutoff=0.8)
            if close:
                message = f"there is no field {name!r} here, and kubectl refuses the object"
                _say(one, (*place, name), message, f"did you mean {close}?")
            elif one.kind in _table()["kinds"]:  # what stands beside a pod may belong to the kind
                message = f"there is no field {name!r} here, in the versions that are known"
                one.say("kube-field", "warning", (*place, name), message, "", SOURCE)


def _plain(one: Object, value: Json, place: Place, kind: str) -> None:
    if kind == "quantity":
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        if not (fits or (isinstance(value, str) and _QUANTITY.match(value.strip()))):
            _wrong(one, place, value, "a quantity, such as 8, 500m or 64Gi")
    elif kind[0] == "=":
        choices = kind[1:].split("|")
        if value not in choices and value != "":
            close = closest(value, choices) if isinstance(value, str) else ""
            hint = f"did you mean {close}?" if close else ""
            message = f"{value!r} is none of {', '.join(choices)}"
            _say(one, place, message, hint)
    elif kind in _TYPES:
        number = isinstance(value, bool) and kind != "bool"
        if number or not isinstance(value, _TYPES[kind]):
            _wrong(one, place, value, _WORDS.get(kind, "a number or a name"))


def _wrong(one: Object, place: Place, value: Json, wanted: str) -> None:
    if isinstance(value, str) and FILLED.search(value):
        one.template = True
        return
    shown = json.dumps(value)[:40] if not isinstance(value, dict | list) else "this"
    text = wanted == "text" and not isinstance(value, dict | list)
    raw = one.document.raw.get(place, "") or (str(value) if text else "")
    hint = f'quote it: "{raw}"' if text else ""
    names = [f"[{part}]" if isinstance(part, int) else part for part in place]
    name = "".join(names[-2:] if names and names[-1][0] == "[" else names[-1:])
    _say(
        one,
        place,
        f"{name or 'the object'} must be {wanted}, and {shown} is not: the API refuses the object",
        hint,
    )


def _say(one: Object, place: Place, message: str, hint: str) -> None:
    """An error, but for a version whose fields still change from release to release."""
    known = "alpha" not in one.kind
    if not known:
        message = message.replace("refuses", "of the known version refuses")
    one.say("kube-field", "error" if known else "warning", place, message, hint, SOURCE)
