"""Golden plans: what a request compiled to when somebody last looked at it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tuneport.compiler.plan import plan_to_json
from tuneport.types import Json, LaunchPlan


def write_golden(path: Path, plan: LaunchPlan) -> None:
    """Keep a plan; read the difference before committing it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_kept(plan), indent=1, ensure_ascii=False) + "\n", "utf-8")


def golden_problems(path: Path, plan: LaunchPlan) -> Iterator[str]:
    """Where a plan differs from the one that was kept, one sentence for each part."""
    document = _kept(plan)
    try:
        kept = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        yield f"{path.name} is not there: write it first"
        return
    except ValueError as error:
        yield f"{path.name} is not JSON: {error}"
        return
    for part in sorted({*document, *kept}):
        if document.get(part) != kept.get(part):
            yield f"{path.name} differs in `{part}`: {difference(kept.get(part), document.get(part))}"


def difference(old: Json, new: Json) -> str:
    """The first place where two values part."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                return f"{key}: {difference(old.get(key), new.get(key))}"
    if isinstance(old, list) and isinstance(new, list):
        for number, (one, other) in enumerate(zip(old, new, strict=False)):
            if one != other:
                return f"[{number}]: {difference(one, other)}"
        return f"{len(old)} items kept, {len(new)} now"
    return f"{json.dumps(old)[:200]} kept, {json.dumps(new)[:200]} now"


def _kept(plan: LaunchPlan) -> dict[str, Json]:
    """What has tests of its own is left out: the digest and the source, which change with the lock and the
    templates, and the text of code that comes along."""
    document = plan_to_json(plan)
    del document["digest"], document["source"]
    for command in document["commands"]:
        command["files"] = {
            name: "…" if name.endswith(".py") else file for name, file in command["files"].items()
        }
    return document
