"""The entry of `tp`: answers `--help` and `--version` from a table, and loads one verb otherwise."""

from __future__ import annotations

import sys
from typing import NoReturn

COMMANDS: dict[str, str] = {
    "init": "Start a project.",
    "new": "Create an experiment folder for a method.",
    "ls": "List the experiments of this project.",
    "methods": "List methods, or one method's parameters.",
    "plugins": "List installed plugins and what is wrong with them.",
    "plugin": "Start a plugin, hold one to the contract, sign its data.",
    "schema": "Print a JSON Schema for editors.",
    "validate": "Say everything that is wrong with an experiment.",
    "check": "Say what is wrong with an existing command or script.",
    "import": "Make an experiment of an existing command.",
    "port": "Carry an experiment to another method or framework.",
    "plan": "Print the exact launch of an experiment.",
    "explain": "Say where a key's value comes from, or what a method is.",
    "submit": "Plan an experiment and run it on a fleet.",
    "job": "List, watch, follow, stop and retry jobs.",
    "export": "Turn a checkpoint into a layout that others can load.",
    "eval": "Evaluate a model or a finished job.",
    "recipe": "Show and move an experiment's lock.",
    "runtime": "List, install and remove what releases run in.",
    "upstream": "Read and compare releases of frameworks, adopt one.",
    "dataset": "Store and look up immutable dataset versions.",
    "fleet": "List and check the places that run plans.",
    "completion": "Print the shell completion script.",
}

USAGE = "Usage: tp [--version] [--help] COMMAND [ARGS]...\n"
INTRO = (
    "Validate, plan and run post-training jobs on pinned framework releases.\n"
    "Every command takes --json and --help. Start with: tp init demo && cd demo && tp methods\n"
)


def help_text() -> str:
    rows = "".join(f"  {name:<11} {text}\n" for name, text in COMMANDS.items())
    return f"{USAGE}\n{INTRO}\nCommands:\n{rows}"


def main() -> NoReturn:
    """Run one command and leave with its exit code. Ctrl-C during the imports is one, too."""
    try:
        code = _run(sys.argv[1:])
    except KeyboardInterrupt:
        _interrupted()
    _leave(code)


def _run(args: list[str]) -> int:
    import os

    if "_TP_COMPLETE" not in os.environ and (not args or args[0] in ("-h", "--help", "help")):
        return _write(help_text())
    if args == ["--version"]:
        from tuneport import __version__

        return _write(f"tp {__version__}\n")
    from tuneport.cli.run import run

    return run(args)


def _interrupted() -> NoReturn:
    """As `run` says it, without importing anything: an import is what was interrupted."""
    try:  # noqa: SIM105 - contextlib may be what was being imported
        sys.stderr.write("tp: interrupted\n")
    except (OSError, AttributeError):
        pass
    _leave(130)


def _write(text: str) -> int:
    """Write without importing anything; how it can fail is told by the module that knows."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
        return 0
    except (OSError, AttributeError, UnicodeError):
        from tuneport.cli.run import guarded

        return guarded(lambda: sys.stdout.write(text) and 0)


def _leave(code: int) -> NoReturn:
    """Flush and end without the interpreter's teardown, which costs more than some commands."""
    import os

    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError:
        code = code or 6
    os._exit(code)
