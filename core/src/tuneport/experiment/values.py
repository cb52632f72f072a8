"""Reads `--set NAME=VALUE`: what the text means is decided by the parameter's own schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from tuneport.errors import UsageError
from tuneport.experiment.yamlread import parse_yaml
from tuneport.text import closest
from tuneport.types import Finding, Json, Method, Param

_INT = r"[-+]?[0-9]+\Z"
_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"
_WORDS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def split(text: str) -> tuple[str, str]:
    """`NAME=VALUE` at the first equals sign.

    Raises:
        UsageError: there is none.
    """
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise UsageError(
            f"--set takes NAME=VALUE, got {text!r}", code="set-form", hint="for example --set seed=7"
        )
    return name, value


def collect(texts: list[str], method: Method) -> tuple[dict[str, Json], list[Finding]]:
    """The values of every `--set`, and a note for each name that was given twice."""
    values: dict[str, Json] = {}
    findings = []
    for text in texts:
        name, value = split(text)
        if name in values:
            message = f"--set {name} is given more than once; the last one counts"
            findings.append(Finding("set-repeated", "note", message, "", name))
        param = method.params.get(name)
        values[name] = read(value, param) if param is not None else value
    return values, findings


def read(text: str, param: Param) -> Json:
    """The value of `text` for one parameter: verbatim where only text is allowed, otherwise one JSON or
    YAML 1.2 scalar, list or object; text that reads as something the schema refuses stays text if the
    schema takes text."""
    kinds = set(_types(param.schema))
    if kinds == {"string"}:
        return text
    value = _read(text)
    if isinstance(value, str) or "string" not in kinds:
        return value
    from tuneport.registry.schemas import problems

    return text if any(problems(value, dict(param.schema))) else value


MAX_INTEGER = 2**63 - 1
"""The largest whole number that tensors, and most configurations, can hold."""


def check(values: Mapping[str, Json], method: Method, where: str) -> Iterator[Finding]:
    """Findings for parameter values from one place (`--set`, or `params` of job.yaml)."""
    natives = _natives(method)
    for name, value in values.items():
        param = method.params.get(name)
        if param is None:
            yield _unknown(name, method, natives, where)
            continue
        from tuneport.registry.schemas import problems

        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            message = f"{where} {name}: it is beyond 2^63, which no release can hold"
            yield Finding("param-value", "error", message, describe(param), name)
            continue
        for path, message, hint in problems(value, dict(param.schema)):
            inside = "".join(f"[{part}]" for part in path)
            yield Finding(
                "param-value", "error", f"{where} {name}{inside}: {message}", hint or describe(param), name
            )


def describe(param: Param) -> str:
    """The values a parameter takes, in one line."""
    schema = param.schema
    if "enum" in schema:
        return "one of " + ", ".join(json.dumps(option) for option in schema["enum"])
    said = " or ".join(_bounds(branch) for branch in schema.get("anyOf", (schema,)))
    shown = " or ".join(json.dumps(example) for example in schema.get("examples", ()))
    return f"{said}, for example {shown}" if shown else said


def _bounds(schema: Mapping[str, Json]) -> str:
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {schema[key]}" for key, sign in signs.items() if key in schema]
    return " ".join([" or ".join(_types(schema)) or "any value", *bounds])


def _natives(method: Method) -> dict[str, str]:
    """Native key -> the parameter that writes it, in whichever variant of the method."""
    found = {
        key: name
        for case in method.spec.get("variants", {}).get("cases", {}).values()
        for name, keys in case.items()
        if name in method.params
        for key in keys
    }
    return found | {key: param.name for param in method.params.values() for key in param.keys}


def closest_parameter(name: str, method: Method) -> str:
    """The parameter that somebody meant: one that the vocabulary says goes by this name too, one whose native
    key ends in it, then one that is spelt alike; empty where there is none."""
    from tuneport.registry import vocabulary

    words = vocabulary.words()
    asked = name.lower().replace("-", "_")
    for known in method.params:
        if asked in words.get(known, {}).get("also", ()):
            return known
    *above, last = asked.split(".")
    shared = {
        key: len(set(above).intersection(key.split(".")))
        for key in _natives(method)
        if key.split(".")[-1] == last
    }
    best = max(shared.values(), default=0)
    ends = {param for key, param in _natives(method).items() if shared.get(key, -1) == best}
    if len(ends) == 1:
        return ends.pop()
    # In a very short name one letter more is another word: lr is not lora.
    return closest(name, method.params, cutoff=0.6 if len(name) > 3 else 0.75)


def _unknown(name: str, method: Method, natives: Mapping[str, str], where: str) -> Finding:
    if name in natives:
        message = f"{where} {name}: that is a native key of the framework; its parameter is `{natives[name]}`"
        return Finding("param-native", "error", message, f"--set {natives[name]}=…", name)
    close = closest_parameter(name, method)
    message = f"{where} {name}: {method.id} has no parameter of that name"
    hint = f"did you mean `{close}`?" if close else f"`tp methods {method.id}` lists them"
    if "." in name:
        hint = "native keys belong in config.yaml; " + hint
    return Finding("param-unknown", "error", message, hint, name)


def _types(schema: Mapping[str, Json]) -> list[str]:
    kinds = schema.get("type", [])
    if isinstance(kinds, str):
        return [kinds]
    if not kinds and "enum" in schema:
        return sorted({_kind(option) for option in schema["enum"]})
    found = list(kinds)
    for branch in [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        found += [kind for kind in _types(branch) if kind not in found]
    return found


def _kind(value: Json) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _read(text: str) -> Json:
    if text[:1] in ("[", "{", '"'):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            document = parse_yaml(text, plain=_scalar)
            return text if document.findings else document.data
    return _scalar(text)


def _scalar(text: str) -> Json:
    """A plain scalar of YAML 1.2, where `no` is text; empty text stays text."""
    if text in ("null", "~"):
        return None
    if text in _WORDS:
        return _WORDS[text]
    if re.match(_INT, text) and len(text) < 400:
        return int(text)
    return float(text) if re.match(_FLOAT, text) else text
