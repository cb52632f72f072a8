"""Tuneport's adapter for OpenRLHF."""
