"""Tries a policy on a framework that the kit brings along: a script that takes one flag."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tuneport.registry import catalog, surfaces
from tuneport.registry.plugins import Hooks
from tuneport.types import Context, Finding, Json, LaunchPlan, Pool, Request, Topology

_PLAIN = Request()
_PROBE = Path(__file__).with_name("probe")


def try_policy(
    policy: object,
    *,
    gpus: int = 8,
    request: Request = _PLAIN,
    facts: Mapping[str, Json] | None = None,
    name: str = "tried",
) -> tuple[list[Finding], LaunchPlan]:
    """What a policy says about a request for `gpus` H200 cards, eight to a node, and the plan that it leaves.

    Raises:
        Invalid: it implements or changes more than a policy may, or fails; its `code` says which.
    """
    with probe_catalog():
        hooks = Hooks("probe")
        hooks.add_policy(name, policy)
        context = probe_context(gpus, request, facts)
        return hooks.validate(context), hooks.launch(context)


def probe_context(
    gpus: int = 8, request: Request = _PLAIN, facts: Mapping[str, Json] | None = None
) -> Context:
    """A request for `gpus` H200 cards on the kit's own framework, inside `probe_catalog`."""
    pool = Pool("main", "h200", -(-gpus // 8), min(gpus, 8))
    config = {"steps": 1}
    return Context(
        method=catalog.method("probe/run"),
        release=surfaces.release("probe"),
        request=request,
        topology=Topology((pool,)),
        facts=facts or {},
        config=config,
        own=config,
        origins={},
        files={},
    )


@contextmanager
def probe_catalog() -> Iterator[None]:
    """A block in which the kit's framework is one of those that are known."""
    before = os.environ.get("TUNEPORT_MANIFEST_PATH")
    os.environ["TUNEPORT_MANIFEST_PATH"] = os.pathsep.join(filter(None, (before, str(_PROBE))))
    try:
        yield
    finally:
        if before is None:
            del os.environ["TUNEPORT_MANIFEST_PATH"]
        else:
            os.environ["TUNEPORT_MANIFEST_PATH"] = before
