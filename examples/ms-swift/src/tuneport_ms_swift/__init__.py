"""Tuneport's adapter for ms-swift."""
