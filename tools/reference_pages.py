"""Writes the reference pages of frameworks that are too large to describe by hand, from their manifests.

`python tools/reference_pages.py` writes docs/findings-<framework>.md and docs/methods-<framework>.md. A test
holds the pages to what this would write, so a change of a manifest shows in the page that goes with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tuneport.experiment.values import describe
from tuneport.registry import catalog

ROOT = Path(__file__).resolve().parents[1]
FRAMEWORKS = ("verl",)
SEVERITY = {
    "error": "Nothing is launched until it is resolved.",
    "warning": "It would run, but not do what was asked.",
    "note": "Worth knowing.",
}
LICENCE = "<!-- Written by tools/reference_pages.py from the manifests: change those, then run it again. -->"


def pages() -> dict[str, str]:
    """File name -> content of every page."""
    found = {}
    for framework in FRAMEWORKS:
        found[f"docs/findings-{framework}.md"] = findings_page(framework)
        found[f"docs/methods-{framework}.md"] = methods_page(framework)
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
    for path in sorted((ROOT / "manifests/tuneport_manifests" / framework / "rules").glob("*.yaml")):
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


def _paragraph(entry: dict[str, Any]) -> Iterator[str]:
    yield f"{_sentence(entry['say'])} {SEVERITY[entry.get('severity', 'warning')]}"
    if entry.get("hint"):
        yield f"Fix: {_text(entry['hint'])}."
    yield f"Decided in `{entry['source']}`."


def _sentence(text: str) -> str:
    words = _text(text)
    return words[:1].upper() + words[1:].rstrip(".") + "."


def _text(text: str) -> str:
    """One line, with each placeholder as code."""
    return re.sub(r"\{([A-Za-z_][\w.\[\]-]*)\}", r"`\1`", " ".join(text.split())).replace("<", "&lt;")


def methods_page(framework: str) -> str:
    """Each method with what it needs, pins, gives and takes."""
    title = catalog.framework_spec(framework).get("title", framework)
    lines = [f"# Methods of {title}", "", LICENCE, ""]
    rows = catalog.methods(framework)
    common = set.intersection(*(set(catalog.method(row[0]).params) for row in rows))
    for method_id, _, _ in rows:
        lines += [*_method(framework, method_id, common), ""]
    lines += ["## Parameters of every method", "", *_table(catalog.method(rows[0][0]).params, common)]
    return "\n".join(lines) + "\n"


def _method(framework: str, method_id: str, common: set[str]) -> Iterator[str]:
    method = catalog.method(method_id)
    spec, releases = method.spec, catalog.releases(framework)
    default = catalog.default_release(framework)
    yield from (f"## {method_id}", "", f"{spec.get('summary', method.title).rstrip('.')}.", "")
    yield from ("| | |", "|---|---|")
    listed = [release + (" (default)" if release == default else "") for release in releases]
    yield f"| releases | {', '.join(listed)} |"
    required = [name for name, bind in spec.get("bind", {}).items() if bind.get("required")]
    needs = [f"`--{name.replace('_', '-')}`" for name in required]
    yield f"| needs | {', '.join(needs) or 'nothing'} |"
    pins = [f"`{key}: {json.dumps(value)}`" for key, value in spec.get("identity", {}).items()]
    yield f"| pins | {', '.join(pins) or 'nothing'} |"
    yield f"| watch | {', '.join(f'`{name}`' for name in catalog.metric_aliases(method_id)[0])} |"
    formats = spec.get("lifecycle", {}).get("export", {}).get("formats", [])
    yield f"| export | {', '.join(f'`{name}`' for name in formats) or 'none'} |"
    yield ""
    offered: dict[str, Any] = {}
    for release in releases:
        offered |= catalog.method(method_id, release).params
    own = set(offered) - common
    if own:
        yield from ("Parameters beside [those of every method](#parameters-of-every-method):", "")
        yield from _table(offered, own)


def _table(params: dict[str, Any], names: set[str]) -> Iterator[str]:
    yield from ("| parameter | values | default | native key |", "|---|---|---|---|")
    for name in sorted(names):
        param = params[name]
        default = json.dumps(param.default) if param.has_default else ""
        keys = ", ".join(f"`{key}`" for key in param.keys)
        yield f"| `{name}` | {describe(param)} | {default} | {keys} |".replace("|  |", "| |")


if __name__ == "__main__":
    for name, content in pages().items():
        (ROOT / name).write_text(content, "utf-8")
        print(f"written {name}")
