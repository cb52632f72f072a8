"""The review sheet of an adoption: what was proved, what a person must decide, what needs a GPU canary, and
what is as well to know."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from tuneport.registry import catalog
from tuneport.types import Json
from tuneport.upstream import adopt_release
from tuneport.upstream.adopt import SURE, Adoption
from tuneport.upstream.adopt_gates import PROVED

_MOST = 40
"""Lines of one kind in the text; the JSON has all."""


def document(adoption: Adoption) -> dict[str, Json]:
    """The sheet as JSON."""
    difference = adoption.difference
    return {
        "ok": adoption.ok,
        "framework": adoption.framework,
        "release": adoption.release,
        "base": adoption.base,
        "files": dict(adoption.files),
        "proved": list(_proved(adoption)),
        "failed": list(_failed(adoption)),
        "decide": list(_decide(adoption)),
        "canary": list(_canary(adoption)),
        "notes": list(_notes(adoption)),
        "verdicts": [{name: getattr(one, name) for name in one.__slots__} for one in adoption.verdicts],
        "methods": adoption.proof["methods"],
        "commands": adoption.proof["commands"],
        "oracle": adoption.proof["oracle"],
        "difference": difference.document(),
    }


def sheet(adoption: Adoption) -> str:
    """The sheet as Markdown."""
    head = f"# {adoption.framework} {adoption.release}, adopted from {adoption.base}\n"
    parts = [
        head,
        "Opt-in: nobody gets this release who does not name it, and no existing lock changes.\n",
        _section("Proved", _proved(adoption)),
        _section("Failed", _failed(adoption)),
        _section("For a person to decide", _decide(adoption)),
        _section("For a GPU canary", _canary(adoption)),
        _section("Notes", _notes(adoption)),
    ]
    return "\n".join(part for part in parts if part)


def _section(title: str, lines: Iterator[str]) -> str:
    found = list(lines)
    shown = [f"- {line}" for line in found[:_MOST]]
    if len(found) > _MOST:
        shown.append(f"- … and {len(found) - _MOST} more; --json has them")
    return f"## {title}\n\n" + "\n".join(shown) + "\n" if found else ""


def _proved(adoption: Adoption) -> Iterator[str]:
    scan, rows = adoption.scan, adoption.proof["methods"]
    for item in scan.artefacts:
        identity = item.get("sha256") or item.get("commit") or "a folder"
        yield f"the surface was read from {item['name']} {item['version']} ({identity})"
    yield f"{sum(map(len, scan.keys.values()))} keys of {len(scan.keys)} entry points; nothing was imported"
    for row in rows:
        if not row["errors"]:
            tried = f"{row['params']} parameters with {row['values']} values, {row['keys']} native keys"
            yield f"{row['method']}: {tried} bring no error that {adoption.base} does not bring"
            if not row["plan"]:
                yield f"{row['method']}: its plan is that of {adoption.base}"
    oracle, commands = adoption.proof["oracle"], adoption.proof["commands"]
    if oracle["accepted"]:
        names = ", ".join(oracle["accepted"])
        yield f"the release's own parser, in {oracle['runtime']}, takes the starting command of {names}"
    if oracle["entries"] and not oracle["unlike"]:
        yield (
            f"it holds what the surface says: names, defaults and choices of {oracle['keys']} keys of"
            f" {oracle['entries']} entry points"
        )
    if commands["commands"]:
        yield _counted(commands, adoption)
    same = [one for one in adoption.verdicts if one.how == "same code"]
    other = [one for one in adoption.verdicts if one.how == "other package"]
    gone = [one for one in adoption.verdicts if one.how == "no such key"]
    if same:
        yield f"{len(same)} rules stand on code that is the same in a release beside it"
    if other:
        yield f"{len(other)} rules stand on code of packages that the runtimes pin as before"
    if gone:
        names = ", ".join(sorted(one.name for one in gone))
        yield f"{len(gone)} rules and parameters are gated because their key is gone: {names}"
    if not adoption.changed:
        count = len(adoption.proof["digests"])
        yield f"{count} recipes of other releases keep their digest: their locks hold"
    spec = catalog.release_spec(adoption.framework, adoption.base)
    if spec["runtime"].get("venv") and not (adoption.unmet or adoption.left_open):
        yield "what the release requires is among the versions that its runtimes pin"


def _failed(adoption: Adoption) -> Iterator[str]:
    errors: dict[str, list[str]] = {}  # methods share parameters, and so their errors
    for row in adoption.proof["methods"]:
        for error in row["errors"]:
            errors.setdefault(error, []).append(row["method"])
    yield from (f"{', '.join(methods)}: {error}" for error, methods in errors.items())
    yield from (f"the lock of {name} would go stale" for name in adoption.changed)
    yield from adoption.unmet
    if adoption.proof["problems"]:
        yield from adoption.proof["problems"].splitlines()


def _counted(commands: dict[str, Json], adoption: Adoption) -> str:
    """How the commands of scripts fared, in one sentence."""
    folders = ", ".join(commands["folders"])
    count = f"{_some(commands['commands'], 'command')} in {_some(commands['scripts'], 'script')} of {folders}"
    said = f"{commands['both']} without an error at {adoption.base} and at {adoption.release}"
    same = f", {commands['neither']} with the same ones at both" if commands["neither"] else ""
    return f"{count}: {said}{same}"


def _some(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _decide(adoption: Adoption) -> Iterator[str]:
    oracle, commands = adoption.proof["oracle"], adoption.proof["commands"]
    for method, why in oracle["refused"].items():
        asked = f"the release's own parser, in {oracle['runtime']}"
        yield f"{method}: {asked}, refuses its starting command: {why}"
    yield from (f"the surface and the release's own parser differ: {line}" for line in oracle["unlike"])
    yield from (f"an error at {adoption.release} alone: {line}" for line in commands["new"])
    sides = {
        "apart": f"as in {adoption.base} and unlike the release after it",
        "both sides": "as on both sides of it",
    }
    # Those about which the releases beside it disagree are the likeliest to be wrong.
    for one in sorted(adoption.verdicts, key=lambda verdict: verdict.how != "apart"):
        if one.how not in PROVED:
            state = "applies" if one.applies else f"is gated ({one.reason})"
            basis = sides.get(one.how, f"as in {adoption.base}")
            read = one.place or "its source"
            yield f"{one.kind[:-1]} {one.name} {state} {basis}, and no code proves it: read {read}"
    for fate, check in adoption.difference.checks:
        if fate != "removed":
            word = "is new" if fate == "added" else "is another than it was"
            read = f"{check.file}:{check.line}, {check.symbol}"
            yield f"a check of {', '.join(check.names)} {word}, and a rule may have to say it: read {read}"
    yield from (f"{line}, as it is not for {adoption.base}" for line in adoption.left_open)
    yield from adopt_release.pins(catalog.release_spec(adoption.framework, adoption.base), adoption.scan)
    difference = adoption.difference
    for move in difference.moved:
        sure = "is in the draft" if move.confidence >= SURE else "is not in the draft"
        why = "; ".join(move.evidence)
        yield f"{move.old} may be {move.new} now ({move.confidence:.2f}: {why}); the move {sure}"
    for key in difference.removed:
        touched = difference.touches.get(key.key, ())
        named = f", and {', '.join(touched)} name it" if touched else ""
        yield f"{key.key} is gone from {_where(key.entries)}{named}"
    for change in difference.changed:
        touched = difference.touches.get(change.key, ())
        named = f": {', '.join(touched)}" if touched else ""
        old, new = (json.dumps(value, ensure_ascii=False)[:200] for value in (change.old, change.new))
        yield f"{change.kind} of {change.key}{_where(change.entries, ' in ')}: {old} -> {new}{named}"
    for row in adoption.proof["methods"]:
        yield from (f"{row['method']}: plan: {line}" for line in row["plan"])
    yield from (f"undecided: {line}" for line in adoption.scan.undecided)
    for key in difference.added:
        yield f"{key.key} is new in {_where(key.entries)}: a parameter, or a native key alone?"


def _where(entries: Sequence[str], before: str = "") -> str:
    shown = ", ".join(entries[:3]) + (f" and {len(entries) - 3} more" if len(entries) > 3 else "")
    return before + shown if entries else ""


def _notes(adoption: Adoption) -> Iterator[str]:
    oracle, commands = adoption.proof["oracle"], adoption.proof["commands"]
    if oracle["why"]:
        yield oracle["why"]
    for method, why in oracle["unasked"].items():
        yield f"{method}: the release's own parser was not asked: {why}"
    if commands["why"]:
        yield f"no command was checked: {commands['why']}"
    elif commands["folders"]:
        read = f"{_some(commands['scripts'], 'script')} of {', '.join(commands['folders'])} read"
        yield f"{read}; {commands['others']} of them start nothing of {adoption.framework}"
    yield from (f"not read: {line}" for line in commands["unread"])
    yield from (f"an error at {adoption.base} alone: {line}" for line in commands["gone"])


def _canary(adoption: Adoption) -> Iterator[str]:
    yield "the images: the draft names none, since those of the base hold the base's code"
    for row in adoption.proof["methods"]:
        yield f"{row['method']}: one short job on its hardware, beside the same job on {adoption.base}"
