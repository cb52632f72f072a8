"""Makes the helpers beside it importable, and their fixtures known."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from trl_support import interpreter, oracle, tiny, workshop

__all__ = ["interpreter", "oracle", "tiny", "workshop"]
