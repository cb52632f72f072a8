"""Files of an experiment that a key names and that have to fit a schema: they are read before the hooks
run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tuneport.compiler.adapter import native_value, relative_path
from tuneport.compiler.layers import flatten
from tuneport.errors import TuneportError
from tuneport.types import Finding, Json, Method


def read(
    method: Method, params: Mapping[str, Json], config: Json, folder: Path
) -> tuple[dict[str, Json], list[Finding]]:
    """(native key -> content of the file that it names, what is wrong with such files).

    Args:
        config: the content of config.yaml; a parameter of the request wins over it.
    """
    wanted: Mapping[str, str] = method.spec.get("documents", {})
    if not wanted:
        return {}, []
    values = (
        {".".join(path): value for path, value in flatten(config, {})} if isinstance(config, dict) else {}
    )
    for name, value in params.items():
        param = method.params[name]
        values |= dict.fromkeys(param.keys, native_value(param, value))
    found: dict[str, Json] = {}
    findings: list[Finding] = []
    for key, schema in wanted.items():
        file = values.get(key)
        if isinstance(file, str) and file:
            content, problems = _one(key, file, schema, folder)
            findings += problems
            if not problems:
                found[key] = content
    return found, findings


def _one(key: str, name: str, schema: str, folder: Path) -> tuple[Json, list[Finding]]:
    from tuneport.experiment.yamlread import read_yaml
    from tuneport.registry import schemas

    inside = relative_path(name)
    path = folder / inside
    if not inside or not os.path.isfile(path) or path.is_symlink():
        what = "is not in the experiment" if inside else "is not inside the experiment"
        message = f"`{key}` names the {schema} {name}, which {what}"
        hint = f"put it there: `tp schema {schema}` prints what it holds"
        return None, [Finding("file-missing", "error", message, hint, key, name)]
    try:
        document = read_yaml(path)
    except TuneportError as error:
        return None, [Finding(error.code, "error", error.message, error.hint, key, str(path))]
    problems = document.findings or schemas.check(document, schema, "document-schema", root=f"{key}:")
    return document.data, problems
