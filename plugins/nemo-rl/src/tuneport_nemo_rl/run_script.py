"""Runs a program of the release where its own relative paths hold: in the folder of its source tree.
No manifest: it is a program, shipped to the job as it stands.

    python tuneport-run.py examples/run_grpo.py --config FILE [OVERRIDE…]

A program with a full path is the experiment's own. The folder is NEMO_RL_ROOT, or the one that holds the
installed `nemo_rl` package, which upstream's image installs from its source tree.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys


def main(words: list[str]) -> None:
    root = source_tree()
    os.chdir(root)
    program = os.path.join(root, words[0])
    if not os.path.isfile(program):
        sys.exit(f"tuneport: {program} is not there; set NEMO_RL_ROOT to the folder of NeMo-RL's source tree")
    sys.argv = [program, *words[1:]]
    sys.path[:0] = [os.path.dirname(program), root]
    runpy.run_path(program, run_name="__main__")


def source_tree() -> str:
    named = os.environ.get("NEMO_RL_ROOT")
    if named:
        return named
    found = importlib.util.find_spec("nemo_rl")
    if found is None or not found.submodule_search_locations:
        sys.exit("tuneport: nemo_rl is not installed here; run in NeMo-RL's image, or set NEMO_RL_ROOT")
    return os.path.dirname(os.path.abspath(next(iter(found.submodule_search_locations))))


if __name__ == "__main__":
    main(sys.argv[1:])
