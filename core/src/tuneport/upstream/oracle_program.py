"""Run by the Python of a release's own runtime: what its parsers hold, and whether they take these arguments.

`python -I oracle_program.py ANSWERS < QUESTION`. It needs nothing but the standard library and is written
for every Python that a runtime may have. QUESTION is `{"parser", "parse", "entries", "cases"}`: each entry is
a module with a function `parser` that makes its parser, and `parse` is what of that parser is called with a
list of words. A case is `{"id", "entry", "args", "env", "folder"}`. ANSWERS is a file, since a framework may
write to any stream: `{"held": {entry: [[dest, options, default, choices, required], …]}, "broken": {entry:
why}, "refused": {id: why}}`; a case that is accepted has an empty text. Every case runs in a fork of a
process that has the release imported, with its folder as the working directory.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import sys
from typing import Any


def held(parser: Any) -> list[list[Any]]:
    """What an argparse parser knows; nothing for another kind."""
    found = []
    for action in getattr(parser, "_actions", ()):
        if isinstance(action, (argparse._HelpAction, argparse._VersionAction, argparse._SubParsersAction)):
            continue
        default = action.default
        if isinstance(default, str):  # argparse reads a default that is text as if it had been typed
            with contextlib.suppress(Exception):
                default = parser._get_value(action, default)
        choices = [plain(item) for item in action.choices] if action.choices else None
        found.append([action.dest, list(action.option_strings), plain(default), choices, action.required])
    return found


def plain(value: Any) -> Any:
    """A value as JSON holds it; `{"other": TEXT}` for one that it does not."""
    value = getattr(value, "value", value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, float) and value - value != 0:  # an infinity, or no number
        return {"other": repr(value)}
    return value if value is None or isinstance(value, (str, int, float)) else {"other": repr(value)[:200]}


def refusal(parser: Any, parse: str, case: dict[str, Any]) -> str:
    """Why a parser does not take the arguments of a case; empty where it takes them."""
    os.makedirs(case["folder"], exist_ok=True)
    os.chdir(case["folder"])
    os.environ.update(case["env"])
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            read: Any = parser
            for name in parse.split("."):
                read = getattr(read, name)
            read(case["args"])
    except SystemExit as end:
        lines = [line for line in said.getvalue().splitlines() if line.strip()]
        return "" if end.code in (0, None) else (lines or [f"it ended with {end.code}"])[-1]
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""


def in_fork(parser: Any, parse: str, case: dict[str, Any]) -> str:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            with os.fdopen(write, "w", encoding="utf-8") as pipe:
                json.dump(refusal(parser, parse, case), pipe)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    answer: str = json.loads(text) if text else f"the parser ended its process with status {status}"
    return answer


def main() -> None:
    question, file = json.load(sys.stdin), sys.argv[1]
    answers: dict[str, Any] = {"held": {}, "broken": {}, "refused": {}}
    for entry in question["entries"]:
        sys.argv = [entry]
        try:
            parser = getattr(importlib.import_module(entry), question["parser"])()
        except (Exception, SystemExit) as error:
            answers["broken"][entry] = f"{type(error).__name__}: {error}"
            continue
        answers["held"][entry] = held(parser)
        for case in question["cases"]:
            if case["entry"] == entry:
                answers["refused"][case["id"]] = in_fork(parser, question["parse"], case)
    with open(file, "w", encoding="utf-8") as stream:
        json.dump(answers, stream)


if __name__ == "__main__":
    main()
