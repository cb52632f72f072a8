"""What a release's own parsers hold: run by the Python of a runtime, on the release's own files.

    python upstream_oracle.py < {"trees", "modules", "alone", "make_parser"} > {module: {key: facts}}

`trees` are folders that hold packages, `modules` those with a parser. `alone`: packages that are not run
themselves and of which a part is there; everything else of the first one stands for nothing in particular.
`make_parser`: the parser is made of dataclasses, whose fields are told instead of their flags.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import types
from typing import Any
from unittest.mock import MagicMock


def facts(parser: argparse.ArgumentParser, *, spelled: bool) -> dict[str, Any]:
    found = {}
    for action in parser._actions:
        long = [option for option in action.option_strings if option.startswith("--")]
        if long and not isinstance(action, argparse._HelpAction):
            for option in long:
                default = action.default
                plain = default is None or isinstance(default, bool | int | float | str | list | dict)
                found[option[2:].replace("-", "_") if spelled else action.dest] = {
                    "default": default if plain and default is not argparse.SUPPRESS else "<other>",
                    "choices": None if action.choices is None else [str(item) for item in action.choices],
                    "required": action.required,
                    "type": getattr(action.type, "__name__", None),
                    "dest": action.dest,
                }
    return found


def parser_of(module: Any) -> argparse.ArgumentParser:
    if hasattr(module, "make_parser"):
        return module.make_parser()
    if hasattr(module, "get_args_parser"):
        return module.get_args_parser()
    made = argparse.ArgumentParser()
    if hasattr(module, "Run"):
        return module.Run(made.add_subparsers())._parser
    module.add_argument(made)
    return made


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands for the modules of a package that is not here."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        ours = name.startswith(f"{self.package}.")
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if ours else None

    def create_module(self, spec: Any) -> Any:
        return MagicMock(__path__=[], __name__=spec.name)

    def exec_module(self, module: Any) -> None:
        pass


def main() -> None:
    asked = json.load(sys.stdin)
    sys.path[:0] = asked["trees"]
    if "alone" in asked:  # packages whose modules are read without running the packages themselves
        sys.meta_path.append(Absent(asked["alone"][0]))
        for name in asked["alone"]:
            package = types.ModuleType(name)
            package.__path__ = [f"{tree}/{name.replace('.', '/')}" for tree in asked["trees"]]
            sys.modules[name] = package
    out = {
        name: facts(parser_of(importlib.import_module(name)), spelled="make_parser" not in asked)
        for name in asked["modules"]
    }
    json.dump(out, sys.stdout, default=str)


main()
