"""The launch plan as canonical JSON: what `tp plan` prints, what is stored, what the digest covers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneport.errors import Invalid
from tuneport.types import REFS, Command, FileSpec, Json, LaunchPlan, Pool, Ref, RuntimeNeed, Value


def plan_to_json(plan: LaunchPlan) -> dict[str, Json]:
    """The documented shape, `digest` first."""
    from tuneport.registry.digest import digest

    body = _body(plan)
    return {"digest": digest(body), **body}


def plan_digest(plan: LaunchPlan) -> str:
    """SHA-256 over the canonical JSON of everything but the digest itself; no Ref is resolved."""
    from tuneport.registry.digest import digest

    return digest(_body(plan))


def plan_from_json(document: Mapping[str, Json]) -> LaunchPlan:
    """The plan of `plan_to_json`.

    Raises:
        Invalid: it is not a plan, or its digest does not hold.
    """
    from tuneport.registry import schemas

    broken = [
        f"{'/'.join(map(str, path))}: {text}"
        for path, text, _ in schemas.problems(document, schemas.schema("plan"))
    ]
    if broken:
        raise Invalid(f"not a launch plan: {'; '.join(broken[:3])}", code="plan-broken")
    runtime = document["runtime"]
    plan = LaunchPlan(
        method=document["method"],
        release=document["release"],
        action=document.get("action", "train"),
        runtime=RuntimeNeed(
            runtime["id"], runtime.get("variant", ""), runtime.get("image", ""), runtime.get("host", False)
        ),
        pools=tuple(Pool(p["name"], p["series"], p["nodes"], p["gpus_per_node"]) for p in document["pools"]),
        commands=tuple(_command(item) for item in document["commands"]),
        config=put_refs(document["config"], document.get("config_refs", {})),
        lifecycle=document["lifecycle"],
        source=document.get("source", {}),
        labels=document.get("labels", {}),
        mounts=tuple(document.get("mounts", ())),
    )
    if plan_digest(plan) != document["digest"]:
        raise Invalid(
            "the plan's digest does not hold: it was edited", code="plan-tampered", hint="make it again"
        )
    return plan


def _body(plan: LaunchPlan) -> dict[str, Json]:
    config, refs = take_refs(dict(plan.config))
    body: dict[str, Json] = {
        "method": plan.method,
        "release": plan.release,
        "action": plan.action,
        "runtime": {
            "id": plan.runtime.id,
            "variant": plan.runtime.variant,
            "image": plan.runtime.image,
            "host": plan.runtime.host,
        },
        "pools": [
            {"name": p.name, "series": p.series, "nodes": p.nodes, "gpus_per_node": p.gpus_per_node}
            for p in plan.pools
        ],
        "commands": [
            {
                "role": command.role,
                "pool": command.pool,
                "argv": [_value(item) for item in command.argv],
                "env": {name: _value(item) for name, item in sorted(command.env.items())},
                "files": {name: _file(item) for name, item in sorted(command.files.items())},
            }
            for command in plan.commands
        ],
        "config": config,
        "config_refs": refs,
        "lifecycle": dict(plan.lifecycle),
        "source": dict(plan.source),
        "labels": dict(plan.labels),
        "mounts": list(plan.mounts),
    }
    return body


def ref_to_json(ref: Ref) -> dict[str, Json]:
    """`{"ref": …}` with the other fields only where they say something."""
    return {
        "ref": ref.ref,
        **({"suffix": ref.suffix} if ref.suffix else {}),
        **({"name": ref.name} if ref.name else {}),
        **({"prefix": ref.prefix} if ref.prefix else {}),
        **({"plain": ref.plain} if ref.plain else {}),
    }


def ref_from_json(item: Mapping[str, Json]) -> Ref:
    """The Ref of `ref_to_json`.

    Raises:
        Invalid: no fleet knows such a reference.
    """
    if item.get("ref") not in REFS:
        raise Invalid(f"no reference is called {item.get('ref')!r}", code="ref-unknown")
    return Ref(
        item["ref"],
        str(item.get("suffix", "")),
        str(item.get("name", "")),
        str(item.get("prefix", "")),
        bool(item.get("plain", False)),
    )


def _value(value: Value) -> Json:
    return ref_to_json(value) if isinstance(value, Ref) else value


def _read_value(item: Json) -> Value:
    return ref_from_json(item) if isinstance(item, dict) else str(item)


def _file(spec: FileSpec) -> dict[str, Json]:
    content, refs = take_refs(spec.content)
    return {"format": spec.format, "content": content, **({"refs": refs} if refs else {})}


def _command(item: Mapping[str, Json]) -> Command:
    return Command(
        role=item["role"],
        pool=item.get("pool", "main"),
        argv=tuple(_read_value(value) for value in item["argv"]),
        env={name: _read_value(value) for name, value in item["env"].items()},
        files={
            name: FileSpec(spec["format"], put_refs(spec["content"], spec.get("refs", {})))
            for name, spec in item["files"].items()
        },
    )


def take_refs(tree: Json) -> tuple[Json, dict[str, Json]]:
    """A tree with null in place of each Ref, and JSON pointer -> Ref. Kept apart, so that text or a
    mapping that a user wrote can never be mistaken for a reference."""
    refs: dict[str, Json] = {}

    def walk(value: Any, pointer: str) -> Json:
        if isinstance(value, Ref):
            refs[pointer] = ref_to_json(value)
            return None
        if isinstance(value, Mapping):
            return {key: walk(item, f"{pointer}/{_escape(str(key))}") for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [walk(item, f"{pointer}/{index}") for index, item in enumerate(value)]
        return value

    return walk(tree, ""), refs


def put_refs(tree: Json, refs: Mapping[str, Json]) -> Json:
    """The inverse of `take_refs`, as a copy.

    Raises:
        Invalid: a pointer leads nowhere, or to something that is not null.
    """
    left = dict(refs)

    def walk(value: Any, pointer: str) -> Json:
        if value is None and pointer in left:
            return ref_from_json(left.pop(pointer))
        if isinstance(value, Mapping):
            return {key: walk(item, f"{pointer}/{_escape(str(key))}") for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [walk(item, f"{pointer}/{index}") for index, item in enumerate(value)]
        return value

    filled = walk(tree, "")
    if left:
        raise Invalid(f"the plan has no empty place {next(iter(left))!r}", code="plan-broken")
    return filled


def _escape(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")
