"""The recorded contract: what a plugin was written against, kept as data so that only additions pass.

`contract.json` lists the hooks with their arguments, the public types with their fields, and the methods of
a fleet, as signatures. `python -m tuneport.testing.contract` writes it anew after an addition.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuneport import errors, hookspec, types
from tuneport.fleets import protocol
from tuneport.types import Json

RECORD = Path(__file__).with_name("contract.json")


def recorded(file: Path = RECORD) -> dict[str, Json]:
    """The contract as it was recorded: `hooks`, `types`, `errors` and `fleet`."""
    found: dict[str, Json] = json.loads(file.read_text("utf-8"))
    return found


def current() -> dict[str, Json]:
    """The contract as the code has it now, in the form of the record."""
    hooks = {
        name: {
            "arguments": _arguments(function),
            "returns": str(inspect.signature(function).return_annotation),
            "firstresult": bool(function.tuneport_spec["firstresult"]),
        }
        for name, function in sorted(vars(hookspec).items())
        if callable(function) and hasattr(function, "tuneport_spec")
    }
    plain = {**_records(types), **_records(protocol)}
    fleet = {
        name: {
            "arguments": _arguments(function),
            "returns": str(inspect.signature(function).return_annotation),
        }
        for name, function in sorted(vars(protocol.Fleet).items())
        if inspect.isfunction(function) and not name.startswith("_")
    }
    failures = {
        name: found.exit_code
        for name, found in sorted(vars(errors).items())
        if isinstance(found, type) and issubclass(found, errors.TuneportError)
    }
    return {"hooks": hooks, "types": plain, "refs": list(types.REFS), "errors": failures, "fleet": fleet}


def breaks(old: Mapping[str, Json], new: Mapping[str, Json]) -> list[str]:
    """What changed from `old` to `new` that a plugin written against `old` could notice: everything but an
    added hook, an argument or a field with a default at the end, a new type, a new error or a new Ref.

    A method added to the fleet protocol is one that fleets in the field do not have, so that breaks them too.
    """
    return [
        *_hooks(old, new),
        *_types(old, new),
        *(f"Ref {name} is gone" for name in old["refs"] if name not in new["refs"]),
        *(
            f"{name} has exit code {new['errors'].get(name)}, not {code}"
            for name, code in old["errors"].items()
            if new["errors"].get(name) != code
        ),
        *(
            f"fleet.{name} is {new['fleet'].get(name)}, not {old['fleet'].get(name)}"
            for name in sorted({*old["fleet"], *new["fleet"]})
            if old["fleet"].get(name) != new["fleet"].get(name)
        ),
    ]


def unfit(implementation: Any, hook: str) -> str:
    """Why a function does not fit the recorded hook; empty where it fits. It may take fewer arguments."""
    known = [name for name, _ in recorded()["hooks"][hook]["arguments"]]
    try:
        parameters = [p for p in inspect.signature(implementation).parameters.values() if p.name != "self"]
    except (TypeError, ValueError) as error:
        return f"{hook} has no signature: {error}"
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    odd = [
        p.name
        for p in parameters
        if p.name not in known and p.kind not in open_ended and p.default is inspect.Parameter.empty
    ]
    return f"{hook} takes {', '.join(odd)}; the contract has {', '.join(known)}" if odd else ""


def _hooks(old: Mapping[str, Json], new: Mapping[str, Json]) -> Iterator[str]:
    for name, was in old["hooks"].items():
        now = new["hooks"].get(name)
        if now is None:
            yield f"hook {name} is gone"
            continue
        count = len(was["arguments"])
        if now["arguments"][:count] != was["arguments"]:
            yield f"hook {name} takes {now['arguments']}, not {was['arguments']}"
        for key in ("returns", "firstresult"):
            if now[key] != was[key]:
                yield f"hook {name}: {key} is {now[key]}, not {was[key]}"


def _types(old: Mapping[str, Json], new: Mapping[str, Json]) -> Iterator[str]:
    for name, was in old["types"].items():
        now = new["types"].get(name)
        if now is None:
            yield f"type {name} is gone"
            continue
        if now[: len(was)] != was:
            yield f"type {name} has the fields {now}, not {was}"
        for field, kind, default in now[len(was) :]:
            if not default:
                yield f"type {name}: the added field {field}: {kind} has no default"


def _arguments(function: Any) -> list[list[str]]:
    parameters = inspect.signature(function).parameters.values()
    return [[p.name, str(p.annotation)] for p in parameters if p.name != "self"]


def _records(module: Any) -> dict[str, Json]:
    """The fields of a module's named tuples and dataclasses with their types as they are written, after the
    word `tuple` or `dataclass`: a changed copy is made by `_replace` of the one, by `dataclasses.replace` of
    the other."""
    found: dict[str, Json] = {}
    for written in ast.parse(inspect.getsource(module)).body:
        record = getattr(module, written.name) if isinstance(written, ast.ClassDef) else None
        if dataclasses.is_dataclass(record):
            made, given = "dataclass", {field.name: _default(field) for field in dataclasses.fields(record)}
        elif record is not None and issubclass(record, tuple):
            made, given = "tuple", {name: repr(value) for name, value in record._field_defaults.items()}
        else:
            continue
        assert isinstance(written, ast.ClassDef)
        fields = [
            [line.target.id, _type(line.annotation), given.get(line.target.id, "")]
            for line in written.body
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        ]
        found[written.name] = [[made, "", ""], *fields]
    return dict(sorted(found.items()))


def _type(annotation: ast.expr) -> str:
    """A type as it is written; a class that is named before it is made stands in quotes."""
    return re.sub(r"'([A-Z]\w*)'", r"\1", ast.unparse(annotation))


def _default(field: dataclasses.Field[Any]) -> str:
    """How a default reads; empty where the field must be given."""
    if field.default is not dataclasses.MISSING:
        return repr(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return f"{getattr(field.default_factory, '__name__', 'made')}()"
    return ""


if __name__ == "__main__":
    problems = breaks(recorded(), current()) if RECORD.exists() else []
    if problems:
        raise SystemExit("\n".join(["plugins in the field would break:", *problems]))
    RECORD.write_text(json.dumps(current(), indent=1) + "\n", "utf-8")
