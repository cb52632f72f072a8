"""Tuneport: one registry between people who post-train models and the frameworks that do it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuneport._version import __version__

if TYPE_CHECKING:
    from tuneport.api import Experiment, Project, job, jobs, methods, open_project

__all__ = ["Experiment", "Project", "__version__", "job", "jobs", "methods", "open_project"]


def __getattr__(name: str) -> Any:
    # Lazy, so that importing the hook contract costs a plugin nothing but these lines.
    if name in __all__:
        import tuneport.api

        return getattr(tuneport.api, name)
    raise AttributeError(f"module 'tuneport' has no attribute {name!r}")
