"""Everything about a custom job is in its manifest, so this adapter adds nothing to the declarative one."""

from __future__ import annotations

from tuneport.compiler.adapter import DeclarativeAdapter


class Adapter(DeclarativeAdapter):
    """`custom/custom`: `sh train.sh` with config.yaml as environment variables."""
