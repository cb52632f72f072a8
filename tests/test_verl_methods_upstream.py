"""The release takes what every method compiles to: at its defaults, and at each parameter's bounds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tuneport.registry import catalog

sys.path.insert(0, str(Path(__file__).parent))
from verl_commands import RELEASES, Command
from verl_plans import METHODS, Workshop, command, samples
from verl_reference import ask

pytestmark = pytest.mark.upstream
EVERYWHERE = os.environ.get("TUNEPORT_TEST_UPSTREAM") == "all"


def plans(workshop: Workshop, release: str) -> Iterator[tuple[str, Command]]:
    """(what was asked, the command) for every method on one node and on two, and for the values of every
    parameter at the first method that binds it so, or at each with TUNEPORT_TEST_UPSTREAM=all. What our own
    rules refuse is not asked."""
    for method in METHODS:
        for nodes in (1, 2) if method != "verl/distillation" else (1,):
            module, arguments = command(workshop.compile(method, release, {}, nodes))
            yield f"{method} on {nodes} node(s)", Command(module, arguments, nodes, 8)
    seen: set[tuple[str, str]] = set()
    for method in METHODS:
        for name, param in catalog.method(method, release).params.items():
            if (name, repr(param.keys)) in seen and not EVERYWHERE:
                continue
            seen.add((name, repr(param.keys)))
            for value in samples(name, param):
                compiled = workshop.compile(method, release, {name: value})
                if not any(finding.severity == "error" for finding in compiled.findings):
                    module, arguments = command(compiled)
                    yield f"{method} {name}={value!r}", Command(module, arguments, 1, 8)


@pytest.mark.parametrize("release", RELEASES)
def test_the_release_takes_every_plan(release: str, tmp_path: Path) -> None:
    asked = list(plans(Workshop(tmp_path), release))
    answers = ask(release, [command for _, command in asked])
    refused = [
        f"{what}: {answer['stage']}: {answer['error']}"
        for (what, _), answer in zip(asked, answers, strict=True)
        if not answer["accepted"]
    ]
    assert not refused, "\n".join(refused)
    assert len(asked) > 150
