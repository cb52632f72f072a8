"""Findings: their order, their JSON and how a person sees them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from tuneport.text import printable
from tuneport.types import Finding, Json

_RANK = {"error": 0, "warning": 1, "note": 2}


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Without repeats, errors first, then by place and code: the same input gives the same list."""
    unique = dict.fromkeys(findings)
    return sorted(unique, key=lambda f: (_RANK[f.severity], f.file, f.line, f.key, f.code, f.message))


def failed(findings: Iterable[Finding]) -> bool:
    """True where any of them is an error."""
    return any(finding.severity == "error" for finding in findings)


def finding_to_json(finding: Finding) -> dict[str, Json]:
    """The eight documented fields."""
    return {name: getattr(finding, name) for name in Finding.__slots__}


def findings_text(findings: Sequence[Finding]) -> str:
    """One block per finding: place, severity, code, message; then hint and source."""
    lines = []
    here = _cwd()
    for finding in findings:
        file = finding.file.removeprefix(here)
        place = f"{file}:{finding.line}: " if file and finding.line else (f"{file}: " if file else "")
        lines.append(f"{printable(place)}{finding.severity}[{finding.code}]: {printable(finding.message)}")
        if finding.hint:
            lines.append(f"    hint: {printable(finding.hint)}")
        if finding.source:
            lines.append(f"    source: {printable(finding.source)}")
    return "".join(line + "\n" for line in lines)


def _cwd() -> str:
    """The prefix to leave out of paths shown to a person; none where the folder is gone."""
    try:
        return os.getcwd() + os.sep
    except OSError:
        return os.sep * 2
