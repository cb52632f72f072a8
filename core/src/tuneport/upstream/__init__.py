"""Reads what a release accepts out of its own source files, without importing any of them."""
