"""For every test."""

from __future__ import annotations

import os
import signal

import pytest

# A shell's background job, and many a CI runner, ignores Ctrl-C, and children inherit that: those that a
# test interrupts would never hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("tuneport.testing.fleets")
ONE_IN = 6


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of tests marked `sweep`, which ask the same of many cases, keep every sixth case of each, or all with
    TUNEPORT_TEST_SWEEP=all; a test that takes long as a whole (`whole=True`) runs only then. Tests that
    are named on the command line run as they are."""
    named = any(".py" in argument for argument in config.invocation_params.args)
    if named or os.environ.get("TUNEPORT_TEST_SWEEP") == "all":
        return
    seen: dict[str, int] = {}
    kept, dropped = [], []
    for item in items:
        marker = item.get_closest_marker("sweep")
        if marker is None:
            kept.append(item)
            continue
        test = item.nodeid.partition("[")[0]
        seen[test] = seen.get(test, -1) + 1
        part = not marker.kwargs.get("whole") and seen[test] % ONE_IN == 0
        (kept if part else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept
