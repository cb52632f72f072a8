"""Keys that a user may not set: the method's identity and what the platform writes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping

from tuneport.types import Finding, Json, Method, Origin


def check(
    method: Method,
    user_keys: Mapping[str, Origin],
    values: Mapping[str, Json],
    given: Collection[str] = (),
) -> Iterator[Finding]:
    """Findings for the keys that `config.yaml` or `job.yaml` set and somebody else owns.

    Args:
        user_keys: native key -> where the user set it.
        values: what the user set it to.
        given: names in `bind` that the request has.
    """
    owned = dict(owners(method, given))
    for name, origin in user_keys.items():
        for owner, (code, what, hint) in owned.items():
            if name == owner or name.startswith(owner + "."):
                if code == "identity-key" and values.get(name) == method.spec["identity"][owner]:
                    what = "is what makes the method what it is, and already has this value"
                    hint = "delete the line"
                yield Finding(code, "error", f"`{name}` {what}", hint, name, origin.file, origin.line)
                break


def owners(method: Method, given: Collection[str] = ()) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """native key -> (code, what is said of it, what to do instead)."""
    spec = method.spec
    for name, value in spec.get("identity", {}).items():
        what = f"is {json.dumps(value, ensure_ascii=False)}: that is what makes this {method.id}"
        yield name, ("identity-key", what, "choose another method instead: `tp methods` lists them")
    for flag, binding in spec.get("bind", {}).items():
        option = f"--{flag.replace('_', '-')}"
        hint = binding.get("hint") or f"give {option}, or the matching field of job.yaml"
        hint = "delete the line" if flag in given else hint
        yield binding["key"], ("platform-key", f"is written from {option}", hint)
    for field, name in spec.get("topology", {}).items():
        hint = "give --profile or --resources"
        yield name, ("platform-key", f"is written from the hardware you ask for ({field})", hint)
    for name in spec.get("platform", {}):
        yield name, ("platform-key", "is written by the platform", "delete the line")
    for name, hint in spec.get("reserved", {}).items():
        yield name, ("platform-key", "is not yours to set here", hint)
