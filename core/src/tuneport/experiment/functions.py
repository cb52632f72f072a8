"""The functions that a Python file defines, read from its syntax tree. Nothing is imported or executed."""

from __future__ import annotations

import ast
from pathlib import Path

from tuneport.errors import TuneportError
from tuneport.experiment.yamlread import read_text
from tuneport.types import Json


def read_functions(path: Path) -> dict[str, Json]:
    """Name -> what a caller may pass, for each function (and class) at the top level of the file.

    `args` names the parameters in order, `required` those without a default; `positional_only` cannot be
    given by name; `varargs` and `kwargs` say whether more are taken. `dynamic` under the key "" is true where
    names may also come from a star import, an assignment or a condition, and `error` where it cannot be read.
    """
    try:
        tree = ast.parse(read_text(path), str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", 0) or 0
        return {"": {"dynamic": False, "error": f"{type(error).__name__}: {error}", "line": line}}
    except TuneportError as error:
        return {"": {"dynamic": False, "error": error.message, "line": 0}}
    found: dict[str, Json] = {"": {"dynamic": False}}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = _signature(node)
        elif isinstance(node, ast.ClassDef):
            found[node.name] = {"kind": "class", "line": node.lineno}
        elif isinstance(node, ast.ImportFrom | ast.Import):
            for alias in node.names:
                if alias.name == "*":
                    found[""]["dynamic"] = True
                else:
                    name = (alias.asname or alias.name).partition(".")[0]
                    found[name] = {"kind": "import", "line": node.lineno}
        elif not isinstance(node, ast.Expr):
            _assigned(node, found)
    return found


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, Json]:
    taken = node.args
    plain = [*taken.posonlyargs, *taken.args]
    with_default = len(taken.defaults)
    required = [arg.arg for arg in plain[: len(plain) - with_default]]
    required += [
        arg.arg for arg, default in zip(taken.kwonlyargs, taken.kw_defaults, strict=True) if default is None
    ]
    return {
        "kind": "function",
        "line": node.lineno,
        "args": [arg.arg for arg in [*plain, *taken.kwonlyargs]],
        "required": required,
        "positional_only": [arg.arg for arg in taken.posonlyargs],
        "varargs": taken.vararg is not None,
        "kwargs": taken.kwarg is not None,
        "async": isinstance(node, ast.AsyncFunctionDef),
        "decorated": bool(node.decorator_list),
    }


def _assigned(node: ast.stmt, found: dict[str, Json]) -> None:
    """Names that a statement may bind; a compound one may bind anything."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    else:
        found[""]["dynamic"] = True
    for target in targets:
        if isinstance(target, ast.Name):
            found.setdefault(target.id, {"kind": "value", "line": node.lineno})
        else:
            found[""]["dynamic"] = True
