"""What a command from a script leaves open, for whoever judges it and for the person who can settle it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from tuneport.experiment.command_line import Invocation
from tuneport.shell.gaps import Gap, Gaps, open_, shown
from tuneport.types import Finding, Method

MAX_KEYS = 4


def is_free(word: str) -> bool:
    """Whether a word may be any setting: not even its key is known."""
    return open_(word) and (open_(word.partition("=")[0]) or "=" not in word or word.startswith("-"))


def findings(run: Invocation, gaps: Gaps) -> Iterator[Finding]:
    """A note for each thing that is not known, with the variable that would settle it."""
    about: dict[tuple[str, str], list[str]] = {}
    places: dict[tuple[str, str], Gap] = {}
    for word in run.arguments:
        for gap in gaps.of(word):
            free = is_free(word)
            what = (
                shown(word) if not free else "some of the words" if shown(word) == "…" else repr(shown(word))
            )
            key = f"`{what.partition('=')[0].lstrip('+')}`" if not free else what
            about.setdefault((gap.why, gap.variable), []).append(key)
            places.setdefault((gap.why, gap.variable), gap)
    for why, keys in about.items():
        gap = places[why]
        keys = list(dict.fromkeys(keys))
        named = ", ".join(keys[:MAX_KEYS]) + (
            f" and {len(keys) - MAX_KEYS} more" if len(keys) > MAX_KEYS else ""
        )
        hint = (
            f"give --env {gap.variable}=VALUE"
            if gap.variable
            else "check the command with the value written out"
        )
        key = keys[0].strip("`") if keys[0].startswith("`") else ""
        message = f"{named}: not known, so not judged: {gap.why}"
        yield Finding("script-undecided", "note", message, hint, key, gap.file, gap.line)


def placed(finding: Finding, run: Invocation) -> Finding:
    """A finding that no word's place is known for, with that of the command."""
    return finding if finding.line or finding.file else replace(finding, file=run.file, line=run.line)


def softened(finding: Finding) -> Finding:
    """An error, where words that nobody knows may put it right."""
    if finding.severity != "error":
        return finding
    message = f"{finding.message} (unless a word that is not known changes it)"
    return replace(finding, severity="warning", message=message)


def variables(method: Method, unknown: Collection[str], env: Mapping[str, str]) -> list[str]:
    """The variables of rules that depend on something which is not known."""
    more = []
    if any(key in unknown for param in method.params.values() for key in param.keys):
        more.append("params")
    if any(binding["key"] in unknown for binding in method.spec.get("bind", {}).values()):
        more += ["request", "data", "model."]
    if any(map(open_, env.values())):
        more.append("env")
    return more
