"""Immutable, content-addressed dataset versions, named `owner/name@version`.

parse_reference("alice/gsm8k-zh@v2")     # ("alice", "gsm8k-zh", "v2"), or Invalid
locate("alice/gsm8k-zh@v2")              # the folder with the files, or NotFound, or Untrusted
verify("alice/gsm8k-zh@v2")              # reads every byte
"""

from __future__ import annotations

from tuneport.datasets.reference import parse_reference
from tuneport.datasets.store import describe, locate, verify

__all__ = ["describe", "locate", "parse_reference", "verify"]
