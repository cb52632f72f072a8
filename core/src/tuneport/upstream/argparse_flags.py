"""The configuration keys of an entry script that adds its flags to an argparse parser itself."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from tuneport.errors import Invalid
from tuneport.experiment.scripts import read_flags
from tuneport.upstream.dataclasses import Scan
from tuneport.upstream.sources import Sources


def scan_parser(sources: Sources, entry: str, *, partial: bool = False) -> Scan:
    """Every flag that the parser built by module `entry` takes, under its name without dashes before it.

    Args:
        partial: whether a parser that cannot be told in full is read as far as it can; `undecided` of the
            result then says what is missing.

    Raises:
        Invalid: the module is not in the source roots, or its parser is one that cannot be told in full.
    """
    path = sources.path(entry)
    if path is None:
        raise Invalid(f"{entry} is not in the source roots", code="entry-missing", hint="check --entry")
    facts = read_flags(path.read_text("utf-8", "replace"), path.name)
    why = [*facts["undecided"], *([facts["error"]] if facts["error"] else [])]
    why += [f"it takes the argument {name}, which is no flag" for name in facts["positionals"]]
    why += ["it takes flags that it does not know"] * (not facts["strict"])
    why += ["it takes no abbreviations"] * (not facts["abbrev"])
    if why and not partial:
        raise Invalid(f"{entry} cannot be told in full: {'; '.join(why)}", code="entry-undecided")
    file = sources.label(entry, ast.Pass()).rpartition(":")[0]
    scan = Scan(undecided=why)
    for name, fact in facts["flags"].items():
        scan.keys[name] = _key(name, fact, file)
        if "default" not in fact:
            scan.unknown.append(name)
        scan.undecided += [f"the {what} of {name} are computed" for what in fact.get("computed", ())]
    return scan


def _key(name: str, fact: Mapping[str, Any], file: str) -> dict[str, Any]:
    key: dict[str, Any] = {"types": fact["types"]}
    if fact["required"]:
        key["required"] = True
    elif "default" in fact:
        key["default"] = fact["default"]
    if fact.get("choices"):
        key["choices"] = fact["choices"]
    if fact["action"] != "store":
        key["action"] = fact["action"]
    key |= {word: fact[word] for word in ("nargs", "dest", "converter") if word in fact}
    if fact["style"] != f"--{name}":
        key["style"] = fact["style"]
    return {**key, "source": f"{file}:{fact['line']}"}
