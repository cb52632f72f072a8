"""Asks ms-swift's own argument parser: run with a Python that has ms-swift 4.6 in it.

    python ms_swift_oracle.py < questions.json > answers.json

A question is {"class": "SftArguments", "argv": [...]}; its answer has what the parser made of the words, or
its error. {"class": …} alone is answered with every flag that the parser has. What the classes do after
parsing needs a model and cards, and is left out.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import io
import json
import sys
from typing import Any
from unittest.mock import MagicMock

WHERE = {
    "SftArguments": "swift.arguments",
    "RLHFArguments": "swift.arguments",
    "MegatronSftArguments": "swift.megatron.arguments",
}


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for what the megatron classes import and only a GPU machine has."""

    NAMES = ("megatron", "mcore_bridge", "transformer_engine", "apex")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in self.NAMES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        found = MagicMock(name=spec.name)
        found.__path__, found.__spec__, found.__version__ = [], spec, "0.99"
        return found

    def exec_module(self, module: Any) -> None:
        return None


def answer(question: dict[str, Any]) -> dict[str, Any]:
    from swift.utils import utils

    found = getattr(importlib.import_module(WHERE[question["class"]]), question["class"])
    found.__post_init__ = lambda self: None
    if "argv" not in question:
        with utils._patch_get_type_hints():
            parser = utils.HfArgumentParser([found])
        flags: dict[str, Any] = {}
        for action in parser._actions:  # the first of a switch and its opposite is the one with the default
            flags.setdefault(action.dest, plain(action.default))
        return {"flags": {name: value for name, value in flags.items() if name != "help"}}
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            args, rest = utils.parse_args(found, question["argv"])
    except SystemExit:
        return {"error": said.getvalue().strip().splitlines()[-1]}
    return {"values": {name: plain(value) for name, value in vars(args).items()}, "rest": rest}


def plain(value: Any) -> Any:
    value = getattr(value, "value", value)
    return value if isinstance(value, (str, int, float, bool, list, dict, type(None))) else repr(value)


if __name__ == "__main__":
    sys.meta_path.append(Absent())
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        answers = [answer(question) for question in json.load(sys.stdin)]
    json.dump(answers, out)
