"""Frameworks, releases, surfaces, methods and rules, read as package data."""
