"""Tuneport's adapter for verl."""
