"""The contract of fleets, on the local one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tuneport.fleets.local import LocalFleet
from tuneport.testing.fleets import FleetTests

sys.path.insert(0, str(Path(__file__).parent))
from jobs_support import SETTINGS, own_state


class TestLocal(FleetTests):
    """Nothing is between this fleet and what runs: what it survives instead is in test_jobs_kills.py."""

    kind = "local"

    @pytest.fixture
    def fleet(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalFleet]:
        for _ in own_state(tmp_path, monkeypatch):
            yield LocalFleet(SETTINGS)
