"""JSON Schemas, read as package data."""
