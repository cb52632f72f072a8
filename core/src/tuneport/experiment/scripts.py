"""Reads the command-line flags of an experiment's script by its syntax alone: nothing is run or imported.

The answer errs on the side of "cannot be decided": a flag that is added in a way this reader does not
follow makes the facts incomplete, so that nobody is told a key is unknown when it is not.
"""

from __future__ import annotations

import ast
import sys
import warnings

from tuneport.types import Json

MAX_SIZE = 128 * 1024
"""Characters; larger files are not read: above this, hostile source costs the parser a second and 200 MB."""

_MAX_FSTRING = 1_000_000_000
"""Characters times braces: CPython 3.11 parses f-strings in time that grows with this product."""


def read_flags(source: str, filename: str = "train.py") -> dict[str, Json]:
    """What `source` accepts on its command line through argparse. Never raises, whatever the text.

    Returns a mapping with
        ok: False where the file is not Python as this interpreter reads it; then `error`, `error_line`.
        complete: every flag is listed, so another one is unknown to the script.
        strict: an unknown flag makes the script fail (False where it calls `parse_known_args`).
        abbrev: a unique prefix of a flag is taken for the flag.
        flags: name, with underscores for dashes -> types (as a surface has them), style (the option as
            it is written on the command line), action (argparse's word, `custom` for a class), required,
            line, and where known and applicable default, choices, nargs, dest, converter (`bool`: any
            text but the empty one is true), computed (names of facts that only a run can tell).
        positionals: names of arguments that are no options.
        undecided: why the facts are incomplete, one line each.
    """
    facts: dict[str, Json] = {
        "ok": True,
        "complete": False,
        "strict": True,
        "abbrev": True,
        "error": "",
        "error_line": 0,
        "flags": {},
        "positionals": [],
        "undecided": [],
    }
    text = source.removeprefix("\ufeff")
    if len(text) > MAX_SIZE or len(text) * text.count("{") > _MAX_FSTRING:
        return facts | {"undecided": [f"{filename} is too large to read flags from"]}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, filename)
        from tuneport.experiment.script_walk import walk

        walk(tree, facts)
    except SyntaxError as error:
        reader = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        return facts | {
            "ok": False,
            "error": f"{error.msg} (as {reader} reads it)",
            "error_line": error.lineno or 0,
        }
    except ValueError:
        wrong = "contains a NUL character" if "\0" in text else "is not valid Unicode text"
        return facts | {"ok": False, "error": f"{filename} {wrong}"}
    except (RecursionError, MemoryError):
        return facts | {
            "complete": False,
            "undecided": [f"{filename} is nested too deeply to read flags from"],
        }
    return facts
