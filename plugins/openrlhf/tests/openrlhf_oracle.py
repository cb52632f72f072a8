"""Asks a release's own code whether it takes an argument list: parser, checks after it, and `train(args)`.

    python openrlhf_oracle.py PURELIB < questions.json > answers.json

Nothing of the release is imported: a module's source runs with every name that the standard library does
not have standing for nothing in particular, so what the release checks about its arguments is checked and no
model is loaded. A question is {"entry", "args"}, or {"file", "symbol", "words"} for a class or function that
is called.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
import os
import sys
import tempfile
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

STANDARD = {
    "argparse",
    "math",
    "os",
    "datetime",
    "typing",
    "abc",
    "functools",
    "collections",
    "itertools",
    "time",
}


class Names(dict[str, Any]):
    """The built-in names, and something for every other one."""

    def __missing__(self, name: str) -> Any:
        if name in ("__path__", "__file__", "__name__"):
            raise KeyError(name)
        return MagicMock(name=name)


class Plain:
    """What modules of torch derive from, without torch."""


def namespace(path: Path, name: str) -> dict[str, Any]:
    import builtins

    names = Names(vars(builtins))
    names["deepspeed"] = types.SimpleNamespace(version="0.19.6")
    names |= {"nn": types.SimpleNamespace(Module=Plain), "ABC": Plain, "Dataset": Plain}
    return {"__name__": name, "__file__": str(path), "__builtins__": names}


def module(path: Path, name: str) -> dict[str, Any]:
    """Run a module without what it imports from elsewhere. Only the entry point that places roles looks at
    its arguments again when it trains."""
    tree = ast.parse(path.read_text("utf-8"), str(path))
    tree.body = [node for node in tree.body if not foreign(node)]
    if path.stem != "train_ppo_ray":
        tree.body = [n for n in tree.body if not (isinstance(n, ast.FunctionDef) and n.name == "train")]
    found = namespace(path, name)
    exec(compile(tree, str(path), "exec"), found)
    return found


def foreign(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] not in STANDARD for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] not in STANDARD
    return False


def helpers(root: Path) -> None:
    """The one module of the release that an entry point imports when it has read its flags."""
    for name in ("openrlhf", "openrlhf.utils"):
        sys.modules[name] = types.ModuleType(name)
    helper = types.ModuleType("openrlhf.utils.config")
    exec((root / "openrlhf/utils/config.py").read_text("utf-8"), helper.__dict__)
    sys.modules["openrlhf.utils.config"] = helper
    for name in ("trainer", "trainer.ppo_trainer", "trainer.ppo_trainer_async", "utils.utils"):
        sys.modules[f"openrlhf.{name}"] = MagicMock(name=name)


def answer(root: Path, question: Mapping[str, Any]) -> dict[str, Any]:
    path = root / question.get("file", question.get("entry", "").replace(".", "/") + ".py")
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            if "entry" in question:
                sys.argv = [question["entry"], *question["args"]]
                module(path, "__main__")
            else:
                call(path, question["symbol"], question["words"])
    except SystemExit:
        return {"accepted": False, "error": err.getvalue().strip().splitlines()[-1], "said": []}
    except Exception as error:
        frame = inspect.getinnerframes(error.__traceback__)[-1] if error.__traceback__ else None
        mine = frame is not None and frame.filename == str(path)
        text = f"{type(error).__name__}: {error}"
        mine = mine and "MagicMock" not in text
        return {"accepted": not mine, "error": text, "said": out.getvalue().splitlines()}
    return {"accepted": True, "error": "", "said": out.getvalue().splitlines()}


def call(path: Path, symbol: str, words: Mapping[str, Any]) -> None:
    """Call a class or function of a module; keyword `a.b` is attribute b of argument a."""
    given: dict[str, Any] = {}
    for name, value in words.items():
        head, *rest = name.split(".")
        here = given.setdefault(head, MagicMock(name=head)) if rest else None
        for part in rest[:-1]:
            here = getattr(here, part)
        if rest:
            setattr(here, rest[-1], value)
        else:
            given[head] = value
    module(path, "release")[symbol](**given)


def surface(root: Path, entry: str) -> dict[str, Any]:
    """What the parser of an entry point really holds: option -> dest, default, type, choices, nargs."""
    import argparse

    held: dict[str, Any] = {}

    class Stop(Exception):
        pass

    def parse(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> Any:
        for action in parser._actions:
            for option in action.option_strings:
                held[option] = {
                    "dest": action.dest,
                    "default": action.default if action.default != float("inf") else "inf",
                    "type": getattr(action.type, "__name__", None),
                    "choices": list(action.choices) if action.choices else None,
                    "nargs": action.nargs,
                    "required": action.required,
                    "kind": type(action).__name__,
                }
        raise Stop

    original = argparse.ArgumentParser.parse_args
    argparse.ArgumentParser.parse_args = parse  # type: ignore[method-assign,assignment]
    try:
        with contextlib.suppress(Stop):
            module(root / (entry.replace(".", "/") + ".py"), "__main__")
    finally:
        argparse.ArgumentParser.parse_args = original  # type: ignore[method-assign]
    return held


def main() -> None:
    root = Path(sys.argv[1]).resolve()
    questions = json.load(sys.stdin)
    helpers(root)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        answers = [
            surface(root, one["surface"]) if "surface" in one else answer(root, one) for one in questions
        ]
        os.chdir("/")
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
