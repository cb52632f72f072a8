"""The reader of scripts never fails, never runs anything and never takes long, whatever it is given."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuneport.experiment.scripts import MAX_SIZE, read_flags

MAKE = "import argparse\np = argparse.ArgumentParser()\n"
HOSTILE: dict[str, Callable[[int], str]] = {
    "statements": lambda n: "a;" * (n // 2),
    "assignments": lambda n: "x=1\n" * (n // 4),
    "minus signs": lambda n: "-" * (n - 1) + "1",
    "attributes": lambda n: "a" + ".b" * (n // 2),
    "calls": lambda n: "a" + "()" * (n // 2),
    "sums": lambda n: "1" + "+1" * (n // 2),
    "elif": lambda n: "if 1:pass\n" + "elif 1:pass\n" * (n // 12 - 1),
    "parentheses": lambda n: "(" * n,
    "f-string": lambda n: "f'" + "{a}" * (n // 3 - 2) + "'",
    "long f-string": lambda n: "f'" + "{a}" * 7000 + " " * (n - 21_100) + "'",
    "comparison": lambda n: "a" + "<a" * (n // 2 - 1),
    "withs": lambda n: "with " + "a," * (n // 2 - 5) + "a:0",
    "big number": lambda n: "x=" + "9" * (n - 2),
    "chained calls": lambda n: MAKE + "p" + ".add_argument('--a')" * 90,
    "nested loops": lambda n: MAKE + _loops(9),
    "doubling list": lambda n: "a=[1]\n" + "a=[*a,*a]\n" * (n // 10 - 1),
    "doubling text": lambda n: "a='x'\n" + "a=a+a\n" * (n // 6 - 1),
    "nested lists": lambda n: MAKE + "a=[1,1]\n" + "a=[a,a]\n" * 40 + "p.add_argument('--a',default=a)",
    "tower of powers": lambda n: MAKE + "a=9\n" + "a=a**63\n" * 1000 + "p.add_argument('--a',default=a)",
    "call tree": lambda n: (
        "".join(f"def f{i}():\n f{i + 1}();f{i + 1}();f{i + 1}()\n" for i in range(50)) + "f0()"
    ),
    "recursion": lambda n: "def f(p):\n return f(p)\nf(1)\n",
    "nested functions": lambda n: (
        "".join(" " * i + f"def f{i}(p):\n" for i in range(90)) + " " * 90 + "a;" * 50_000
    ),
    "many flags": lambda n: MAKE + "".join(f"p.add_argument('--a{i}')\n" for i in range(4000)),
    "wide choices": lambda n: (
        MAKE + f"c=[{'1,' * 900}]\nfor i in {list(range(900))}:\n p.add_argument(f'--a{{i}}',choices=c)"
    ),
    "too large": lambda n: "#" * (n + 1),
}


def _loops(depth: int) -> str:
    heads = "".join(" " * i + f"for i{i} in (1,2,3,4,5,6,7,8,9):\n" for i in range(depth))
    return heads + " " * depth + "p.add_argument('--a')"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_source_is_answered_quickly_and_in_bounded_memory(name: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HOSTILE[name](MAX_SIZE))
    code = (
        "import json, sys, time\n"
        "from tuneport.experiment.scripts import read_flags\n"
        "text = open(sys.argv[1]).read()\n"
        "start = time.process_time()\n"
        "facts = read_flags(text)\n"
        "seconds = time.process_time() - start\n"
        # Not ru_maxrss, which begins with the memory of whoever started this process.
        "peak = int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) // 1024\n"
        "json.dump([facts['ok'], facts['complete'], seconds, peak], sys.stdout)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(script)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    ok, complete, seconds, peak = json.loads(done.stdout)
    assert seconds < 1, f"{seconds:.2f} s of CPU"
    assert peak < 200, f"{peak} MB"
    assert not complete or ok


def test_nothing_in_the_script_runs_and_nothing_is_imported(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    body = f"open({str(mark)!r}, 'w')\nimport this_module_is_not_there\n" + MAKE
    body += f"p.add_argument('--a', type=open({str(mark)!r}, 'w'))\np.parse_args()\n"
    facts = read_flags(body)
    assert list(facts["flags"]) == ["a"]
    assert not mark.exists()


@pytest.mark.parametrize("text", ["a\0b", "x = '\ud800'", "\ufeffimport argparse", "x = '\\d'", "\x0c\r\r\n"])
def test_odd_characters_are_no_surprise(text: str) -> None:
    facts = read_flags(text)
    assert facts["ok"] is not (("\0" in text) or ("\ud800" in text))
    assert json.dumps(facts, allow_nan=False)


_WORDS = """
parser p argparse.ArgumentParser() .add_argument( '--a' , ) = [ ] { } : for in if else: def f(x): return **k
*a lambda: 1e999 -1 2**9 import argparse from . f'{p}' class C(argparse.ArgumentParser): with .parse_args()
try: except: as match case _: while True: += del global x await yield not is None True type=int choices=
"""
_PIECES = st.sampled_from([*_WORDS.split(), "\n", "\n ", "  "])


@settings(max_examples=400, deadline=None)
@given(st.lists(_PIECES, max_size=30), st.text(max_size=20))
def test_any_text_gives_json(pieces: list[str], noise: str) -> None:
    for text in ("".join(pieces), MAKE + " ".join(pieces), noise, MAKE + noise):
        facts = read_flags(text)
        json.dumps(facts, allow_nan=False)
        assert facts["ok"] or (facts["error"] and not facts["complete"])
        assert facts["complete"] or facts["undecided"] or not facts["ok"]
