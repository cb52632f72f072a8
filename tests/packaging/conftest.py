"""Makes the helper beside it importable, and builds once for all files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from packaging_support import Built, make


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return make(tmp_path_factory.mktemp("packaging"))
