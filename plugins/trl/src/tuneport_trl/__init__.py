"""Tuneport's adapter for Hugging Face TRL."""
