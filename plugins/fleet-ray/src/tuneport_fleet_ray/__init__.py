"""Runs plans on a Ray cluster that is there, through its Jobs API. Ray itself is not imported."""
