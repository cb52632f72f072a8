"""The reader of scripts against argparse itself, on programs that the standard library ships."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest
from tuneport.experiment.scripts import read_flags

PROGRAMS = [
    "ast",
    "calendar",
    "compileall",
    "gzip",
    "http.server",
    "inspect",
    "json.tool",
    "pickletools",
    "py_compile",
    "random",
    "tarfile",
    "tokenize",
    "zipfile",
]

# Runs a module as a program and reports the options its parser has when it is asked to parse.
ORACLE = """
import argparse, json, runpy, sys
def report(self, *args, **kwargs):
    found = []
    for action in self._actions:
        if action.option_strings and not isinstance(action, argparse._HelpAction | argparse._VersionAction):
            found.append([action.option_strings, action.required, action.dest])
    json.dump(found, sys.stdout)
    sys.stdout.flush()
    import os
    os._exit(0)
argparse.ArgumentParser.parse_args = argparse.ArgumentParser.parse_known_args = report
sys.argv = ["program"]
runpy.run_module(NAME, run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_flags_read_are_the_flags_that_argparse_has(name: str) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        pytest.skip("not in this Python")
    code = ORACLE.replace("NAME", repr(name))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode or not done.stdout.startswith("["):
        pytest.skip("this Python's version does not parse with argparse")
    with open(spec.origin, encoding="utf-8") as file:
        facts = read_flags(file.read(), name)
    real = {}
    for options, required, _dest in json.loads(done.stdout):
        for option in [o for o in options if o.startswith("--")] or options[:1]:
            real[option.lstrip("-").replace("-", "_")] = required
    assert facts["ok"]
    assert facts["complete"], facts["undecided"]
    assert set(facts["flags"]) == set(real)
