"""Curves of a job, read from what its framework and its script wrote, without either.

found = collect(manager.metric_files(job), {"train/loss": ["loss"]})
found.series["train/loss"].last
"""

from __future__ import annotations

from tuneport.jobs.metrics.collect import Collected, Point, Series, collect
from tuneport.jobs.metrics.plot import plot

__all__ = ["Collected", "Point", "Series", "collect", "plot"]
