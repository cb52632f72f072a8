"""The whole configuration as one file of a chain of YAML files; see `hydra/chain.py`."""

from __future__ import annotations

from tuneport.dialects.hydra.chain import render

__all__ = ["render"]
