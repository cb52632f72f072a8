"""Writes the reference pages of every framework of the tree from its manifests.

`python tools/reference_pages.py` writes docs/frameworks/<framework>.md and, for a framework with rules,
docs/findings-<framework>.md.
A test holds the pages to what this would write, so a change of a manifest shows in its page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent))
from framework_page import LICENCE, framework_page

ROOT = Path(__file__).resolve().parents[1]
FRAMEWORKS = ("custom", "evalkit", "nemo-rl", "openrlhf", "pytorch", "trl", "verl")
SEVERITY = {
    "error": "Nothing is launched until it is resolved.",
    "warning": "It would run, but not do what was asked.",
    "note": "Worth knowing.",
}


def pages() -> dict[str, str]:
    """File name -> content of every page."""
    found = {}
    for framework in FRAMEWORKS:
        if _rules(framework):
            found[f"docs/findings-{framework}.md"] = findings_page(framework)
        found[f"docs/frameworks/{framework}.md"] = framework_page(framework)
    return found


def findings_page(framework: str) -> str:
    """One heading for each code of the framework's rules, by topic."""
    lines = [f"# Findings of {framework}", "", LICENCE, ""]
    lines += [
        f"What the rules of {framework} say. A key stands for its value. What all frameworks share is in",
        "[findings.md](findings.md).",
        "",
    ]
    seen: set[str] = set()
    for path in _rules(framework):
        document = yaml.safe_load(path.read_text("utf-8"))
        entries = [*document.get("rules", ()), *(e for e in document.get("inert", ()) if "code" in e)]
        fresh = [entry for entry in entries if entry["code"] not in seen]
        if fresh:
            lines += [f"## {path.stem.replace('-', ' ').capitalize()}", ""]
        for entry in fresh:
            if entry["code"] not in seen:
                seen.add(entry["code"])
                lines += [f"### `{entry['code']}`", "", *_paragraph(entry), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _rules(framework: str) -> list[Path]:
    return sorted((ROOT / "manifests/tuneport_manifests" / framework / "rules").glob("*.yaml"))


def _paragraph(entry: dict[str, Any]) -> Iterator[str]:
    yield f"{_sentence(entry['say'])} {SEVERITY[entry.get('severity', 'warning')]}"
    if entry.get("hint"):
        yield f"Fix: {_text(entry['hint'])}."
    yield f"Decided in `{entry['source']}`."


def _sentence(text: str) -> str:
    words = _text(text).rstrip(".") + "."
    named = "_" in words.partition(" ")[0]  # a parameter, which has no capitals
    return words if named else words[:1].upper() + words[1:]


def _text(text: str) -> str:
    """One line, with each placeholder as code."""
    return re.sub(r"\{([A-Za-z_][\w.\[\]-]*)\}", r"`\1`", " ".join(text.split())).replace("<", "&lt;")


if __name__ == "__main__":
    for name, content in pages().items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(content, "utf-8")
        print(f"written {name}")
