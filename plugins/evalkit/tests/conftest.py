"""Makes the helpers beside it importable, and their fixtures known."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "judge/tests"))
from evalkit_support import interpreter
from judge_server import server

__all__ = ["interpreter", "server"]
